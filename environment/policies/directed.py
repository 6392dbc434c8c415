"""Random play that also tries, in a share of its steps, what pays and what is seldom legal.

Uniform play hardly ever reaches the states around good graphs. A world model that has not seen them does not know
which rewrites are legal there, and a dream then omits the very rewrites that pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from environment.policies.greedy import ForeseeingEnv, softmax
from environment.policies.random import RandomAgent

TEMPERATURE_PERCENT = 1.0
"""The loss of gain that makes a rewrite e times less likely, as for `GreedyAgent`."""


class DirectedAgent:
    """An agent that plays at random, except in a share of the steps, its directed ones.

        agent = DirectedAgent(env, RandomAgent(seed=0), directed=0.3)
        action = agent(observation, generator)

    Half of the directed steps, drawn at random, try what pays: a rewrite with a probability proportional to
    exp(gain / temperature), by the costs that the environment predicts for its rewrites. The other half try what is
    seldom legal: a rewrite with a probability inversely proportional to the number of states in which this agent has
    seen it legal. So the agent has a memory, and two agents play equal episodes only if both have seen the same before.

    The observation must be that of the state that `env` is in.
    """

    def __init__(
        self,
        env: ForeseeingEnv,
        otherwise: RandomAgent,
        directed: float,
        *,
        temperature_percent: float = TEMPERATURE_PERCENT,
    ) -> None:
        """
        Args:
          env: the environment that predicts the costs of rewrites.
          otherwise: the agent of all other steps.
          directed: share of the directed steps, in [0, 1].
          temperature_percent: see `TEMPERATURE_PERCENT`; positive.
        Raises:
          ValueError: an argument is out of its range.
        """
        if not 0.0 <= directed <= 1.0 or temperature_percent <= 0.0:
            raise ValueError(
                f"directed must lie in [0, 1] and temperature_percent be positive, got {directed} and "
                f"{temperature_percent}"
            )
        self._env, self._otherwise, self._directed = env, otherwise, directed
        self._temperature = temperature_percent
        self._seen: npt.NDArray[np.int64] | int = 0

    def __call__(self, observation: Mapping[str, Any], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Returns the action [rule, location]."""
        legal = np.asarray(observation["location_mask"], np.int64)
        self._seen = self._seen + legal
        if not legal.any() or rng.random() >= self._directed:
            return self._otherwise(observation, rng)
        return self._paying(rng) if rng.random() < 0.5 else self._rare(legal, rng)

    def _paying(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        rules, locations, costs_ms = self._env.candidates()
        chosen = rng.choice(len(rules), p=softmax(-100.0 * np.log(costs_ms), self._temperature))
        return np.array([rules[chosen], locations[chosen]], np.int64)

    def _rare(self, legal: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        pairs = np.argwhere(legal)
        weights = 1.0 / np.asarray(self._seen)[tuple(pairs.T)]
        chosen: npt.NDArray[np.int64] = pairs[rng.choice(len(pairs), p=weights / weights.sum())]
        return chosen
