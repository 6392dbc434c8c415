"""`random`: uniformly random play."""

from __future__ import annotations

from typing import Any, ClassVar

from controller.interface import Controller
from environment.policies.random import RandomAgent


class RandomController(Controller):
    """The environment's `RandomAgent` as a controller. `deterministic` has no effect: the seed decides all."""

    name: ClassVar[str] = "random"
    stochastic: ClassVar[bool] = True

    def __init__(self, noop_probability: float = 0.01) -> None:
        """
        Args:
          noop_probability: probability of NO-OP at each step. At the published 0.2, episodes end after about 5 steps.
        """
        self._agent = RandomAgent(0, noop_probability)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._agent = RandomAgent(seed, self._agent.noop_probability)

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        return self._agent(observation)
