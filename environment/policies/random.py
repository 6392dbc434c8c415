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


def random_step(
    state: State, generator: np.random.Generator, everywhere_probability: float = 0.0
) -> list[tuple[int, int]]:
    """Applies a `uniform_rewrite`.

    Args:
      everywhere_probability: how often the drawn rule is carried out everywhere instead, if it has two matches.
    Returns:
      The single rewrites (rule, location) that were carried out, in order; empty if no rewrite is legal.
    """
    legal = state.legal_actions()
    if not len(legal):
        return []
    rule, location = uniform_rewrite(legal, generator)
    if everywhere_probability and state.everywhere_mask()[rule] and generator.random() < everywhere_probability:
        return [(rule, place) for place in state.step_everywhere(rule).tolist()]
    state.step(rule, location)
    return [(rule, location)]


EVERYWHERE_PROBABILITY = 0.2
"""Probability of the everywhere-action of the drawn rule, if it is legal.

If all places of a rule were equally likely, one step of 20 on BERT-Base would be an everywhere-action, and some that
are legal would hardly ever be played. If it were much more often, few episodes would reach the states in between,
because ten everywhere-actions rewrite most of a network of repeated layers. At 0.2 most episodes of 50 steps hold some,
and four of five steps still show what single rewrites do.
"""


class RandomAgent:
    """An agent that draws rewrites as `uniform_rewrite` does, from the masks of an observation.

        agent = RandomAgent(seed=0)
        action = agent(observation)                  # its own random stream, or
        action = agent(observation, generator)       # a stream of the caller's

    It takes NO-OP with probability `noop_probability` in every step, and always if nothing else is legal. At the
    published 0.2, episodes end after about five steps and teach little; the default keeps them deep.

    If the environment has everywhere-actions, the last column of `location_mask` is theirs. `everywhere_probability`
    says how often the agent then takes that of the rule that it has drawn, if it is legal. None draws uniformly among
    all places of the rule, and is the value for environments without everywhere-actions.
    """

    def __init__(
        self, seed: int = 0, noop_probability: float = 0.01, everywhere_probability: float | None = None
    ) -> None:
        for name, value in (("noop_probability", noop_probability), ("everywhere_probability", everywhere_probability)):
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], got {value}")
        self.noop_probability, self.everywhere_probability = noop_probability, everywhere_probability
        self._generator = np.random.default_rng(seed)

    def __call__(self, observation: Mapping[str, Any], rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
        """Returns the action [rule, location] for an observation of `GraphSubstitutionEnv`."""
        generator = self._generator if rng is None else rng
        num_rules = len(observation["rule_mask"]) - 1
        rules = np.flatnonzero(observation["rule_mask"][:num_rules])
        if not len(rules) or generator.random() < self.noop_probability:
            return np.array([num_rules, 0], np.int64)
        rule = generator.choice(rules)
        return np.array([rule, self._place(observation["location_mask"][rule], generator)], np.int64)

    def _place(self, legal: npt.NDArray[np.int8], generator: np.random.Generator) -> int:
        """Draws one of the places of a rule, which `legal` marks."""
        if self.everywhere_probability is not None:
            if legal[-1] and generator.random() < self.everywhere_probability:
                return len(legal) - 1
            legal = legal[:-1]
        return int(generator.choice(np.flatnonzero(legal)))
