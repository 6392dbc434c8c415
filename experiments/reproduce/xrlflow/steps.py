"""Candidates in a step (X-RLflow, Table 3), by the rules of this project.

rlflow reproduce xrlflow-table3

Counted are the rewrites in all states of random play: each is a candidate of its own, although a few of them lead to
the same graph. Nothing is trained or measured; a graph takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np

from controller.xrlflow.config import XrlflowConfig
from environment import GraphSubstitutionEnv
from environment.policies.random import random_step
from experiments.executors.local import Unit
from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seed, chosen_graphs, chosen_seed, run_units
from experiments.reproduce.search.plays import PRICES
from experiments.reproduce.table import UNDEFINED, Table
from experiments.reproduce.xrlflow.printed import CANDIDATES
from experiments.reproduce.xrlflow.rows import GRAPHS, QUICK
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

EPISODES, STEPS = {"smoke": 2, "full": 20}, 100
SLOTS = XrlflowConfig().slots
COLUMNS = {
    "graph": "cleaned in full",
    "candidates": f"in a state of random play of up to {STEPS} steps, mean",
    "start": "in the start graph",
    "graphs": "different graphs that these lead to",
    "most": "in any of these states",
    "beyond": f"states with more candidates than the {SLOTS - 1} that the published head has places for [%]",
    "printed": "the paper's, by TASO's rules",
}
FORMATS = {"candidates": ".1f", "beyond": ".1f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_seed(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Counts the candidates of each graph."""
    names, seed = chosen_graphs(options, GRAPHS, QUICK), chosen_seed(options)
    units = [Unit(name, partial(counted, name, EPISODES[options.scale], seed)) for name in names]
    rows = run_units(units, options, progress)
    return Table(
        "Candidates in a step",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{EPISODES[options.scale]} episodes; {len(RuleSet.default())} rules. Printed: Table 3 of X-RLflow.",
        finding(rows),
    )


def counted(name: str, episodes: int, seed: int, progress: ProgressDisplay) -> Record:
    """Returns the row of a graph."""
    env = GraphSubstitutionEnv(name, costs=PRICES, max_steps=STEPS)
    rng, counts = np.random.default_rng(seed), []
    for _ in range(episodes):
        env.reset(seed=seed)
        state = env.state.copy()
        counts.append(len(state.legal_actions()))
        for _ in range(STEPS):
            if not random_step(state, rng):
                break
            counts.append(len(state.legal_actions()))
    return {
        "graph": name,
        "candidates": float(np.mean(counts)),
        "start": counts[0],
        "graphs": different_graphs(env),
        "most": max(counts),
        "beyond": 100 * float(np.mean(np.array(counts) > SLOTS - 1)),
        "printed": CANDIDATES.get(name, UNDEFINED),
    }


def different_graphs(env: GraphSubstitutionEnv) -> int:
    """Returns the number of different graphs that one rewrite of the start graph leads to."""
    env.reset(seed=0)
    found = set()
    for rule, location in env.state.legal_actions().tolist():
        state = env.state.copy()
        state.step(rule, location)
        found.add(state.hash)
    return len(found)


def finding(rows: Sequence[Record]) -> str:
    """Returns how many candidates there are beside those that the paper prints, in a sentence."""
    known = [float(row["candidates"]) / row["printed"] for row in rows if isinstance(row["printed"], int)]
    if not known:
        return "The paper prints none of these graphs."
    times = f"{min(known):.1f} to {max(known):.1f} times"
    return f"Over {len(known)} graphs, a state has {times} as many candidates as the paper prints."
