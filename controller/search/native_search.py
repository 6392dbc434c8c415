"""What the searches of the native engine share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from controller.interface import ProgressCallback
from controller.search.replayed import Found, Search
from taso_ext import SearchResult, State


class NativeSearch(Search):
    """A search that the engine carries out."""

    @abstractmethod
    def search(self, state: State, seed: int, progress: Any) -> SearchResult:
        """Runs the engine's search from `state`; `progress` is passed on to it."""

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`."""
        result = self.search(state, seed, _native_progress(self._limits.budget, on_progress))
        return Found(list(result.actions), result.cost_ms, _describe_stop(result))


def _native_progress(budget: int, on_progress: ProgressCallback | None) -> Any:
    """The engine reports (expanded, best cost in ms); controllers report (done, total, metrics)."""
    if on_progress is None:
        return None
    return lambda expanded, best_cost_ms: on_progress(expanded, budget, {"best_cost_ms": best_cost_ms})


def _describe_stop(result: SearchResult) -> str:
    said = [result.stop_reason]
    if result.evicted:
        said.append(f"{result.evicted:,} rewrites, the dearest, were given up for want of memory")
    if result.unpriced:
        said.append(f"{result.unpriced:,} rewrites were left alone for want of a price")
    return "; ".join(said)
