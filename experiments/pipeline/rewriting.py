"""Ways to rewrite a graph without looking for a better one, and how far they may go."""

from __future__ import annotations

import numpy as np

from environment.costs.limits import affordable
from taso_ext import State

__all__ = ["affordable", "random_step"]


def random_step(state: State, rng: np.random.Generator) -> bool:
    """Applies a random legal rule at a random one of its locations; returns False if there is none."""
    actions = state.legal_actions()
    if not len(actions):
        return False
    rule = rng.choice(np.unique(actions[:, 0]))
    state.step(*rng.choice(actions[actions[:, 0] == rule]).tolist())
    return True
