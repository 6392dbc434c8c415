"""All 1000 episodes that the paper trains with, on two small networks: the curves, and the graphs by the clock.

rlflow reproduce xrlflow-curve
rlflow reproduce xrlflow-curve squeezenet1.1 --seeds 0

The other tables cut the episodes, so that a run takes at most half an hour. Here `xrlflow published` is the paper's
agent with the paper's schedule, and `xrlflow 1000` is ours with as many episodes. A curve shows what the best graphs of
episodes save of their prices. A run takes up to an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from functools import partial

from experiments.executors.units import Record
from experiments.pipeline.learning.rounds import STAGE as TRAINING
from experiments.reproduce.papers.curves import Curves
from experiments.reproduce.papers.inference import add_measured
from experiments.reproduce.table import Table
from experiments.reproduce.xrlflow.results import by_the_clock, timed
from experiments.reproduce.xrlflow.rows import SEEDS, THOUSAND
from experiments.runs.progress import ProgressDisplay

GRAPHS = ("squeezenet1.1", "bert-l2-h128")
LEARNING = Curves(
    "a thousand episodes",
    tuple(row for row, player in THOUSAND.items() if player.learns),
    TRAINING,
    {"percent": "mean of an update's episodes [%]", "best_percent": "best so far [%]"},
    "updates, of 10 episodes each",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_measured(parser, GRAPHS, SEEDS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains, and times the graphs; what is finished is not done again."""
    found = timed(options, progress, GRAPHS, THOUSAND)
    presets = "`xrlflow published` has the preset `xrlflow`, `xrlflow 1000` has `demo`."
    table = by_the_clock("A thousand episodes of X-RLflow, by the clock", found, found.about(presets), options)
    points = list(LEARNING.rows_of(found.plays))
    curves = {f"curve-{name}": partial(LEARNING.draw, name, of_graph(points, name)) for name in found.records}
    return dataclasses.replace(
        table, finding=f"{table.finding}\n\n{LEARNING.finding(points)}", figures={**table.figures, **curves}
    )


def of_graph(points: Sequence[Record], name: str) -> list[Record]:
    """Returns the points of the curves on one graph."""
    return [point for point in points if point["graph"] == name]
