"""Rewards by the clock against rewards by prices: what X-RLflow makes of either, judged by one clock.

rlflow reproduce xrlflow-rewards
rlflow reproduce xrlflow-rewards bert-l2-h128 --seeds 0

The two rows of X-RLflow differ in their costs alone. `xrlflow` learns from the sum of the prices of a graph's kernels;
`xrlflow endtoend` has every graph that it meets timed beside the model, a few times each. A run takes up to half an
hour on a small network.
"""

from __future__ import annotations

import argparse
import dataclasses

from experiments.reproduce.papers.inference import add_measured
from experiments.reproduce.search.plays import Player
from experiments.reproduce.table import Table
from experiments.reproduce.xrlflow.results import TASO, by_the_clock, timed
from experiments.reproduce.xrlflow.rows import SEEDS, players
from experiments.runs.progress import ProgressDisplay

BY_PRICES, BY_TIME = "xrlflow", "xrlflow endtoend"
GRAPHS = ("squeezenet1.1", "bert-l2-h128")
PAIRS = 4
"""Timings of each graph beside the model; `rlflow reproduce fig-real-rewards` compares numbers of them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_measured(parser, GRAPHS, SEEDS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains by either reward, and times the graphs; what is finished is not done again."""
    rows = players_of(options.device)
    found = timed(options, progress, GRAPHS, rows)
    presets = (
        f"`{BY_TIME}` minimises {costs_of(options.device)} instead. Both have the preset `{rows[BY_TIME].preset}`."
    )
    return by_the_clock("Rewards by the clock and by prices", found, found.about(presets), options)


def players_of(device: str) -> dict[str, Player]:
    """Returns the players by row, for a device whose clock pays."""
    rows = players((TASO, BY_PRICES))
    paid = (*rows[BY_PRICES].settings, f"costs={costs_of(device)}")
    return {**rows, BY_TIME: dataclasses.replace(rows[BY_PRICES], settings=paid)}


def costs_of(device: str) -> str:
    """Returns the costs of the row that the clock pays."""
    return f"endtoend:{device}:pairs={PAIRS}"
