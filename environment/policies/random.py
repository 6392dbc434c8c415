"""Uniformly random play: the papers' source of training data, and the baseline of every evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext import State


def uniform_rewrite(legal: npt.NDArray[np.int32], generator: np.random.Generator) -> tuple[int, int]:
    """Draws a rule uniformly among those with a legal location, then one of its locations uniformly.

    Args:
      legal: [C, 2] pairs (rule, location), C at least 1: `GraphSubstitutionEnv.legal_actions()`.
    Returns:
      (rule, location).
    """
    rule = generator.choice(np.unique(legal[:, 0]))
    return int(rule), int(generator.choice(legal[legal[:, 0] == rule, 1]))


def random_step(state: State, generator: np.random.Generator) -> bool:
    """Applies a `uniform_rewrite`; returns False if no rewrite is legal."""
    legal = state.legal_actions()
    if len(legal):
        state.step(*uniform_rewrite(legal, generator))
    return bool(len(legal))


class RandomAgent:
    """An agent that draws rewrites as `uniform_rewrite` does, from the masks of an observation.

        agent = RandomAgent(seed=0)
        action = agent(observation)                  # its own random stream, or
        action = agent(observation, generator)       # a stream of the caller's

    It takes NO-OP with probability `noop_probability` in every step, and always if nothing else is legal. At the
    published 0.2, episodes end after about five steps and teach little; the default keeps them deep.
    """

    def __init__(self, seed: int = 0, noop_probability: float = 0.01) -> None:
        if not 0.0 <= noop_probability <= 1.0:
            raise ValueError(f"noop_probability must lie in [0, 1], got {noop_probability}")
        self.noop_probability = noop_probability
        self._generator = np.random.default_rng(seed)

    def __call__(self, observation: Mapping[str, Any], rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
        """Returns the action [rule, location] for an observation of `GraphSubstitutionEnv`."""
        generator = self._generator if rng is None else rng
        num_rules = len(observation["rule_mask"]) - 1
        rules = np.flatnonzero(observation["rule_mask"][:num_rules])
        if not len(rules) or generator.random() < self.noop_probability:
            return np.array([num_rules, 0], np.int64)
        rule = generator.choice(rules)
        location = generator.choice(np.flatnonzero(observation["location_mask"][rule]))
        return np.array([rule, location], np.int64)
