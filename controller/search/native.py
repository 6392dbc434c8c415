"""`taso`, `beam` and `restarts`: searches that the native engine carries out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import taso_ext
from controller.interface import ProgressCallback
from controller.search.passes import PassesController
from controller.search.replayed import DEFAULT_LIMITS, Found, Search, SearchLimits, StopCause, StopReason, shares
from taso_ext import SearchResult, State

ALPHA = 1.05
"""The published factor over the best cost up to which TASO's search goes on."""
MOST_MATCHES = 4096
"""The largest number of matches of one rule that a search of the tables counts and tries."""


class NativeSearch(Search):
    """A search that the engine carries out."""

    @abstractmethod
    def search(self, state: State, seed: int, progress: Any) -> SearchResult:
        """Runs the engine's search from `state`; `progress` is passed on to it."""

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`."""
        result = self.search(state, seed, _native_progress(self._limits.budget, on_progress))
        stop = StopReason(StopCause(result.stop_reason), evicted=result.evicted, unpriced_rewrites=result.unpriced)
        return Found(list(result.actions), result.cost_ms, stop)


def _native_progress(budget: int, on_progress: ProgressCallback | None) -> Any:
    """Returns the callback of the engine, which reports (expanded, best cost in ms), for a callback of a controller."""
    if on_progress is None:
        return None
    return lambda expanded, best_cost_ms: on_progress(expanded, budget, {"best_cost_ms": best_cost_ms})


class TasoController(NativeSearch):
    """A cost-based backtracking search over whole graphs.

    A priority queue holds graphs by cost. The cheapest is expanded, and every result that costs less than `alpha` times
    the best joins the queue.

    Source: Jia et al. 2019 (TASO), algorithm 1; alpha 1.05 as published. The argument `passes` is our addition.
    """

    name: ClassVar[str] = "taso"

    def __init__(self, alpha: float = ALPHA, limits: SearchLimits = DEFAULT_LIMITS, passes: bool = False) -> None:
        """
        Args:
          alpha: factor over the best cost up to which a graph is searched further; at least 1.
          limits: when to stop.
          passes: whether the `passes` controller climbs first and a second TASO search starts from the graph that it
            finds; the better result counts. The three searches share the limit of time; each has the other limits to
            itself.
        Raises:
          ValueError: a value is outside its range.
        """
        super().__init__(limits)
        if not alpha >= 1:
            raise ValueError(f"taso: alpha is {alpha}, but below 1 even the best graph would be pruned; use 1 or more.")
        self._alpha, self._passes = alpha, passes

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`."""
        if not self._passes:
            return super().find(state, seed, on_progress)
        limits = shares(self._limits, 3)
        climbed = PassesController(next(limits)).find(state.copy(), seed, on_progress)
        top = state.copy()
        for action in climbed.actions:
            top.step(*action)
        further = TasoController(self._alpha, next(limits)).find(top, seed, on_progress)
        stop = further.stop_reason.following_passes()
        joined = Found([*climbed.actions, *further.actions], further.cost_ms, stop)
        plain = TasoController(self._alpha, next(limits)).find(state, seed, on_progress)
        return min(joined, plain, key=lambda each: each.cost_ms)

    def search(self, state: State, seed: int, progress: Any) -> SearchResult:
        return taso_ext.search_taso(state, self._alpha, **self._limits.arguments(), progress=progress)


class BeamController(NativeSearch):
    """A search level by level: rewrites of a level give new graphs, and the `width` cheapest make the next level.

    If the environment has everywhere-actions, a rule that is carried out everywhere is one of the rewrites.
    """

    name: ClassVar[str] = "beam"

    def __init__(self, width: int = 16, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        """
        Args:
          width: number of graphs in a level; at least 1.
          limits: when to stop.
        Raises:
          ValueError: a value is outside its range.
        """
        super().__init__(limits)
        if width < 1:
            raise ValueError(f"beam: a width of {width} keeps no graph; use 1 or more.")
        self._width = width

    def search(self, state: State, seed: int, progress: Any) -> SearchResult:
        return taso_ext.search_beam(state, self._width, self._everywhere, **self._limits.arguments(), progress=progress)


class RestartsController(NativeSearch):
    """Random walks, each followed by steepest descent.

    A walk takes `walk` rewrites drawn at random: a legal rule, then one of its locations.
    """

    name: ClassVar[str] = "restarts"

    def __init__(self, walk: int = 10, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        """
        Args:
          walk: number of random rewrites before each descent; at least 1.
          limits: when to stop.
        Raises:
          ValueError: a value is outside its range.
        """
        super().__init__(limits)
        if walk < 1:
            raise ValueError(f"restarts: a walk of {walk} steps leads nowhere; use 1 or more.")
        self._walk = walk

    def search(self, state: State, seed: int, progress: Any) -> SearchResult:
        return taso_ext.search_restarts(state, self._walk, seed, **self._limits.arguments(), progress=progress)
