"""Ways to rewrite a graph without looking for a better one, and how far they may go."""

from __future__ import annotations

import numpy as np

from taso_ext import Cost, State

MOST_WORK = 4.0
"""Graphs with more than this multiple of the start's operations, or of the memory moved, are left out.

All groups of ResNet-50's convolutions by Winograd merged into one would have 4.8 GB of weights."""
MOST_STEPS = 400
"""Of one rule applied until it applies no longer; most end soon, some never do."""


def random_step(state: State, rng: np.random.Generator) -> bool:
    """Applies a random legal rule at a random one of its locations; returns False if there is none."""
    actions = state.legal_actions()
    if not len(actions):
        return False
    rule = rng.choice(np.unique(actions[:, 0]))
    state.step(*rng.choice(actions[actions[:, 0] == rule]).tolist())
    return True


def exhaust(state: State, rule: int, most_steps: int = MOST_STEPS) -> list[tuple[int, int]]:
    """Applies a rule wherever it applies, until it does not; returns the actions taken."""
    actions: list[tuple[int, int]] = []
    while len(actions) < most_steps and len(places := np.flatnonzero(state.location_mask()[rule])):
        actions.append((rule, int(places[0])))
        state.step(*actions[-1])
    return actions


def affordable(start: Cost, cost: Cost) -> bool:
    """Whether a graph is small enough to be run."""
    return cost.flops <= MOST_WORK * start.flops and cost.memory_bytes <= MOST_WORK * start.memory_bytes
