"""`taso`: cost-based backtracking search over whole graphs, in the native engine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import taso_ext
from controller.base import Controller, ProgressCallback
from controller.storage import write_text


class TasoController(Controller):
    """Searches in `train`, then replays the action log that leads to the best graph found.

    A priority queue of graphs by cost; the cheapest is expanded by every candidate, and children cheaper than
    `alpha` times the best cost are queued, until the queue is empty or `budget` graphs were expanded.

    Source: Jia et al. 2019 (TASO), algorithm 2; alpha 1.05 as published.

    Attributes:
      actions: the log found, [(rule, location)]; `None` before `train` or `load`.
      stop_reason: why the search stopped.
    """

    name: ClassVar[str] = "taso"

    def __init__(self, alpha: float = 1.05, budget: int = 1000) -> None:
        """
        Args:
          alpha: how much dearer than the best a graph may be to be searched further; at least 1.
          budget: graphs to expand; at least 1.
        Raises:
          ValueError: for values outside these ranges.
        """
        if not alpha >= 1:
            raise ValueError(f"taso: alpha is {alpha}, but below 1 even the best graph would be pruned; use 1 or more.")
        if budget < 1:
            raise ValueError(f"taso: a budget of {budget} graphs expands nothing; use 1 or more.")
        self._alpha, self._budget = alpha, budget
        self.actions: list[tuple[int, int]] | None = None
        self.stop_reason = ""
        self._graph_hash = ""
        self._position = 0
        self._num_rules = 0

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Searches from the graph that `world`, the real environment, is at. Nothing is drawn: `seed` has no effect."""
        state, report = world.unwrapped.state, _native_progress(self._budget, on_progress)
        result = taso_ext.search_taso(state.copy(), self._alpha, self._budget, progress=report)
        self.actions, self.stop_reason, self._graph_hash = list(result.actions), result.stop_reason, state.hash

    def begin_episode(self, view: Any, *, seed: int) -> None:
        """Rewinds the log.

        Raises:
          ValueError: if there is no log, or it was found on another graph.
        """
        if self.actions is None:
            raise ValueError("taso has no action log to play: call train(env), or load a saved one, first.")
        env = view.unwrapped
        if env.state.hash != self._graph_hash:
            raise ValueError(
                f"taso's action log starts at graph {self._graph_hash}, but the environment is at {env.state.hash}: "
                "search again with train(env)."
            )
        self._position, self._num_rules = 0, env.num_rules

    def act(self, observation: Any, *, deterministic: bool) -> np.ndarray:
        assert self.actions is not None  # begin_episode has checked it
        self._position += 1
        if self._position > len(self.actions):
            return np.array([self._num_rules, 0], np.int64)
        return np.array(self.actions[self._position - 1], np.int64)

    def save(self, path: str | os.PathLike[str]) -> None:
        fields = {"graph_hash": self._graph_hash, "actions": self.actions, "stop_reason": self.stop_reason}
        write_text(path, json.dumps(fields))

    def load(self, path: str | os.PathLike[str]) -> None:
        fields: Mapping[str, Any] = json.loads(Path(path).read_text())
        actions = fields["actions"]
        self.actions = None if actions is None else [(int(rule), int(location)) for rule, location in actions]
        self._graph_hash, self.stop_reason = fields["graph_hash"], fields["stop_reason"]


def _native_progress(budget: int, on_progress: ProgressCallback | None) -> Any:
    """The engine reports (expanded, best cost in ms); controllers report (done, total, metrics)."""
    if on_progress is None:
        return None
    return lambda expanded, best_cost_ms: on_progress(expanded, budget, {"best_cost_ms": best_cost_ms})
