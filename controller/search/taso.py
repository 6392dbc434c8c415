"""`taso`: cost-based backtracking search over whole graphs, in the native engine."""

from __future__ import annotations

from typing import Any, ClassVar

import taso_ext
from controller.interface import ProgressCallback
from controller.search.native_search import NativeSearch
from controller.search.passes import PassesController
from controller.search.replayed import DEFAULT_LIMITS, Found, SearchLimits, shares


class TasoController(NativeSearch):
    """A priority queue of graphs by cost: the cheapest is expanded, and what costs less than `alpha` times the best
    joins the queue.

    Source: Jia et al. 2019 (TASO), algorithm 1; alpha 1.05 as published. `passes` is ours.
    """

    name: ClassVar[str] = "taso"

    def __init__(self, alpha: float = 1.05, limits: SearchLimits = DEFAULT_LIMITS, passes: bool = False) -> None:
        """
        Args:
          alpha: how much dearer than the best a graph may be to be searched further; at least 1.
          limits: when to stop.
          passes: whether the `passes` controller climbs first, and a second search goes on from where that ends; the
            three share the limit of time, each has the others to itself.
        Raises:
          ValueError: for values outside these ranges.
        """
        super().__init__(limits)
        if not alpha >= 1:
            raise ValueError(f"taso: alpha is {alpha}, but below 1 even the best graph would be pruned; use 1 or more.")
        self._alpha, self._passes = alpha, passes

    def find(self, state: taso_ext.State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`."""
        if not self._passes:
            return super().find(state, seed, on_progress)
        limits = shares(self._limits, 3)
        climbed = PassesController(next(limits)).find(state.copy(), seed, on_progress)
        top = state.copy()
        for action in climbed.actions:
            top.step(*action)
        further = TasoController(self._alpha, next(limits)).find(top, seed, on_progress)
        joined = Found([*climbed.actions, *further.actions], further.cost_ms, f"{further.stop_reason}, after passes")
        plain = TasoController(self._alpha, next(limits)).find(state, seed, on_progress)
        return min(joined, plain, key=lambda each: each.cost_ms)

    def search(self, state: taso_ext.State, seed: int, progress: Any) -> taso_ext.SearchResult:
        return taso_ext.search_taso(state, self._alpha, **self._limits.arguments(), progress=progress)
