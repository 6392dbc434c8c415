"""Ways to rewrite a graph without looking for a better one, and how far they may go."""

from __future__ import annotations

import numpy as np

from taso_ext import Cost, State

MOST_WORK = 4.0
"""Graphs with more than this multiple of the start's operations, or of the memory moved, are left out.

All groups of ResNet-50's convolutions by Winograd merged into one would have 4.8 GB of weights."""


def random_step(state: State, rng: np.random.Generator) -> bool:
    """Applies a random legal rule at a random one of its locations; returns False if there is none."""
    actions = state.legal_actions()
    if not len(actions):
        return False
    rule = rng.choice(np.unique(actions[:, 0]))
    state.step(*rng.choice(actions[actions[:, 0] == rule]).tolist())
    return True


def affordable(start: Cost, cost: Cost) -> bool:
    """Whether a graph is small enough to be run."""
    return cost.flops <= MOST_WORK * start.flops and cost.memory_bytes <= MOST_WORK * start.memory_bytes
