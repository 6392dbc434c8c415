"""`random` and `greedy`: controllers that look no further than one step."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from controller.interface import Controller
from controller.records import is_improvement
from environment.policies.random import EVERYWHERE_PROBABILITY, RandomAgent


class RandomController(Controller):
    """The environment's `RandomAgent` as a controller. `deterministic` has no effect, because the seed decides all."""

    name: ClassVar[str] = "random"
    stochastic: ClassVar[bool] = True

    def __init__(
        self, noop_probability: float = 0.01, everywhere_probability: float | None = EVERYWHERE_PROBABILITY
    ) -> None:
        """
        Args:
          noop_probability: probability of NO-OP at each step. At the published 0.2, episodes end after about 5 steps.
          everywhere_probability: see `RandomAgent`; it has no effect in environments without everywhere-actions.
        """
        self._noop, self._everywhere = noop_probability, everywhere_probability
        self._agent = RandomAgent(0, noop_probability)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._agent = RandomAgent(seed, self._noop, self._everywhere if view.unwrapped.everywhere else None)

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        return self._agent(observation)


LONGEST_DESCENT = 1_000_000
"""Steps of a descent, which ends by itself long before."""


class GreedyController(Controller):
    """Steepest descent: takes the candidate that lowers the real cost most, and NO-OP if none does beyond rounding.

    It goes on until nothing is left to gain, whatever the environment's limit of steps is. Where costs are measured, a
    step that was predicted to gain may lose; then the limit is that of the steps since the best graph so far. It needs
    the predicted cost of every candidate (`env.candidates`), and therefore plays only in the real environment.
    """

    name: ClassVar[str] = "greedy"

    def __init__(self) -> None:
        self._env: Any = None
        self._best_ms, self._since = math.inf, 0

    @property
    def max_steps(self) -> int | None:
        """See `Controller.max_steps`."""
        return LONGEST_DESCENT

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._env = view.unwrapped
        self._best_ms, self._since = math.inf, 0

    def act(self, observation: Any, *, deterministic: bool) -> np.ndarray:
        cost_ms = self._env.state.cost.ms
        if is_improvement(cost_ms, self._best_ms):
            self._best_ms, self._since = cost_ms, 0
        else:
            self._since += 1
        rules, locations, costs_ms = self._env.candidates()
        if len(costs_ms) and self._since < self._env.max_steps:
            best = int(np.argmin(costs_ms))  # ties: the first in (rule, location) order
            if is_improvement(float(costs_ms[best]), cost_ms):
                return np.array([rules[best], locations[best]], np.int64)
        return np.array([self._env.num_rules, 0], np.int64)
