"""`greedy`: steepest descent on the real cost with a look-ahead of one step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from controller.interface import Controller
from controller.records import is_improvement


class GreedyController(Controller):
    """Takes the candidate that lowers the cost most, and NO-OP if none lowers it by more than rounding.

    It needs the predicted cost of every candidate (`env.candidates`), and so plays in the real environment only.
    """

    name: ClassVar[str] = "greedy"

    def __init__(self) -> None:
        self._env: Any = None

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._env = view.unwrapped

    def act(self, observation: Any, *, deterministic: bool) -> np.ndarray:
        rules, locations, costs_ms = self._env.candidates()
        if len(costs_ms):
            best = int(np.argmin(costs_ms))  # ties: the first in (rule, location) order
            if is_improvement(float(costs_ms[best]), self._env.state.cost.ms):
                return np.array([rules[best], locations[best]], np.int64)
        return np.array([self._env.num_rules, 0], np.int64)
