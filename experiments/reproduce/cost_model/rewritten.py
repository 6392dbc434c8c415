"""Graphs that rewriting reaches: at random, and by one rule wherever it applies, in a whole graph or its first part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from controller.search.passes import MOST_STEPS, exhaust
from environment.costs.limits import affordable
from environment.policies.random import random_step
from taso_ext import State

RANDOM = "random"
EARLY = 0.25
"""Part of a graph that counts as its first: the first stage of a ResNet, three layers of BERT."""


@dataclass(frozen=True)
class Rewritten:
    """
    Attributes:
      how: `RANDOM`, or the name of the rule that was applied wherever it applies, with `, early` in the first part.
    """

    state: State
    how: str
    steps: int


def at_random(start: State, count: int, seed: int) -> Iterator[Rewritten]:
    """Distinct graphs, each up to as many steps from the start as that has nodes: a legal rule, then a location."""
    rng = np.random.default_rng(seed)
    met, most_steps = {start.hash}, len(start.graph.nodes())
    found = 0
    for _ in range(20 * count):
        steps = int(rng.integers(1, most_steps + 1))
        state, taken = start.copy(), 0
        while taken < steps and random_step(state, rng):
            taken += 1
        if state.hash in met or not affordable(start.cost, state.cost):
            continue
        met.add(state.hash)
        found += 1
        yield Rewritten(state, RANDOM, taken)
        if found == count:
            return


def everywhere(start: State, names: list[str], most_steps: int = MOST_STEPS) -> Iterator[Rewritten]:
    """For each rule that applies to the start: the graph in which it has been applied until it applies no longer.

    Args:
      names: of the rules.
      most_steps: some rules never end.
    """
    met = {start.hash}
    for rule in np.unique(start.legal_actions()[:, 0]).tolist():
        state = start.copy()
        actions = exhaust(state, rule, most_steps)
        if state.hash not in met and affordable(start.cost, state.cost):
            met.add(state.hash)
            yield Rewritten(state, names[rule], len(actions))


def early(start: State, names: list[str], most_steps: int = MOST_STEPS) -> Iterator[Rewritten]:
    """The same where rules apply in the first part of the graph only, for those that apply elsewhere too.

    What pays where activations are large may cost where they are small.
    """
    met = {start.hash}
    end = int(EARLY * len(start.graph.nodes()))
    for rule in np.unique(start.legal_actions()[:, 0]).tolist():
        places = np.flatnonzero(start.location_mask()[rule])
        if (places < end).all():
            continue
        state, steps = start.copy(), 0
        while steps < most_steps and len(places := np.flatnonzero(state.location_mask()[rule][:end])):
            state.step(rule, int(places[0]))
            steps += 1
        if state.hash not in met and affordable(start.cost, state.cost):
            met.add(state.hash)
            yield Rewritten(state, f"{names[rule]}, early", steps)
