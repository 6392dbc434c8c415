"""`beam`: level by level, the cheapest new graphs of each, in the native engine."""

from __future__ import annotations

from typing import Any, ClassVar

import taso_ext
from controller.search.native_search import NativeSearch
from controller.search.replayed import DEFAULT_LIMITS, SearchLimits


class BeamController(NativeSearch):
    """Of all rewrites of the graphs of a level, the `width` cheapest that lead to new graphs make the next level."""

    name: ClassVar[str] = "beam"

    def __init__(self, width: int = 16, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        """
        Args:
          width: graphs of a level; at least 1.
          limits: when to stop.
        Raises:
          ValueError: for values outside these ranges.
        """
        super().__init__(limits)
        if width < 1:
            raise ValueError(f"beam: a width of {width} keeps no graph; use 1 or more.")
        self._width = width

    def search(self, state: taso_ext.State, seed: int, progress: Any) -> taso_ext.SearchResult:
        return taso_ext.search_beam(state, self._width, **self._limits.arguments(), progress=progress)
