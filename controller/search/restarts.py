"""`restarts`: random walks followed by steepest descent, again and again, in the native engine."""

from __future__ import annotations

from typing import Any, ClassVar

import taso_ext
from controller.search.native_search import NativeSearch
from controller.search.replayed import DEFAULT_LIMITS, SearchLimits


class RestartsController(NativeSearch):
    """Each time `walk` rewrites drawn at random (a legal rule, then one of its locations), then steepest descent."""

    name: ClassVar[str] = "restarts"

    def __init__(self, walk: int = 10, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        """
        Args:
          walk: random rewrites before each descent; at least 1.
          limits: when to stop.
        Raises:
          ValueError: for values outside these ranges.
        """
        super().__init__(limits)
        if walk < 1:
            raise ValueError(f"restarts: a walk of {walk} steps leads nowhere; use 1 or more.")
        self._walk = walk

    def search(self, state: taso_ext.State, seed: int, progress: Any) -> taso_ext.SearchResult:
        return taso_ext.search_restarts(state, self._walk, seed, **self._limits.arguments(), progress=progress)
