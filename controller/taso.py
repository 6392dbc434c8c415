"""`taso`: cost-based backtracking search over whole graphs, in the native engine."""

from __future__ import annotations

from typing import Any, ClassVar

import taso_ext
from controller.native_search import DEFAULT_LIMITS, NativeSearch, SearchLimits


class TasoController(NativeSearch):
    """A priority queue of graphs by cost: the cheapest is expanded, and what costs less than `alpha` times the best
    joins the queue.

    Source: Jia et al. 2019 (TASO), algorithm 1; alpha 1.05 as published.
    """

    name: ClassVar[str] = "taso"

    def __init__(self, alpha: float = 1.05, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        """
        Args:
          alpha: how much dearer than the best a graph may be to be searched further; at least 1.
          limits: when to stop.
        Raises:
          ValueError: for values outside these ranges.
        """
        super().__init__(limits)
        if not alpha >= 1:
            raise ValueError(f"taso: alpha is {alpha}, but below 1 even the best graph would be pruned; use 1 or more.")
        self._alpha = alpha

    def search(self, state: taso_ext.State, seed: int, progress: Any) -> taso_ext.SearchResult:
        return taso_ext.search_taso(state, self._alpha, **self._limits.arguments(), progress=progress)
