"""`best-of-n`: the best of many random episodes on the exact engine."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from controller.interface import ProgressCallback
from controller.records import is_improvement
from controller.search.replayed import DEFAULT_LIMITS, Actions, Found, Search, SearchLimits, StopCause, StopReason
from environment.counting import count
from environment.policies.random import EVERYWHERE_PROBABILITY, random_step
from taso_ext import State
from taso_ext.errors import UnpricedError


class BestOfNController(Search):
    """Random episodes of the environment's length; the cheapest graph that any of them passes is the result.

    Each episode counts as one graph of the budget. An episode draws rewrites as the environment's `RandomAgent` does,
    but never NO-OP, because an episode that goes on loses nothing: the log ends at the cheapest graph. The limits of
    threads and memory do not apply, because this search keeps only two graphs.
    """

    name: ClassVar[str] = "best-of-n"

    def __init__(
        self, limits: SearchLimits = DEFAULT_LIMITS, everywhere_probability: float = EVERYWHERE_PROBABILITY
    ) -> None:
        """
        Args:
          limits: when to stop.
          everywhere_probability: see `RandomAgent`; it has no effect in environments without everywhere-actions.
        Raises:
          ValueError: the probability is outside [0, 1].
        """
        super().__init__(limits)
        if not 0 <= everywhere_probability <= 1:
            raise ValueError(f"best-of-n: everywhere_probability is {everywhere_probability}, outside [0, 1].")
        self._everywhere_probability = everywhere_probability
        self._length = 0

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        self._length = world.unwrapped.max_steps
        super().train(world, seed=seed, on_progress=on_progress)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Plays the episodes; see `Search.find`."""
        generator, limits = np.random.default_rng(seed), self._limits
        deadline = time.monotonic() + limits.seconds if limits.seconds else float("inf")
        best, best_ms, unpriced, cause = Actions(), state.cost.ms, 0, StopCause.BUDGET
        for episode in range(limits.budget):
            actions, cost_ms, is_priced = self._episode(state.copy(), generator, deadline)
            unpriced += not is_priced
            if is_improvement(cost_ms, best_ms):
                best, best_ms = actions, cost_ms
            if on_progress is not None:
                on_progress(episode + 1, limits.budget, {"best_cost_ms": best_ms})
            if time.monotonic() > deadline:
                cause = StopCause.TIME
                break
        return Found(best, best_ms, StopReason(cause, unpriced_rewrites=unpriced))

    def _episode(self, state: State, generator: np.random.Generator, deadline: float) -> tuple[Actions, float, bool]:
        """Plays one episode, which changes `state`, and returns (actions, cost in ms, is priced).

        The actions lead to the cheapest graph that it passes. It ends early at a graph without a price.
        """
        probability = self._everywhere_probability if self._everywhere else 0.0
        taken, length, best_ms = Actions(), 0, state.cost.ms
        for _ in range(self._length):
            try:
                rewrites = random_step(state, generator, probability)
                cost_ms = state.cost.ms
            except UnpricedError:
                return taken[:length], best_ms, False
            if not rewrites:
                break
            count(cost_evaluations=1)
            if time.monotonic() > deadline:
                break
            taken += rewrites
            if is_improvement(cost_ms, best_ms):
                best_ms, length = cost_ms, len(taken)
        return taken[:length], best_ms, True
