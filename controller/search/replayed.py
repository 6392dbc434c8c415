"""What searches share: they find an action log in `train` and replay it as an episode."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.interface import Controller, ProgressCallback
from taso_ext import State
from taso_ext.files import write_text

Actions = list[tuple[int, int]]
"""[(rule, location)]."""


@dataclasses.dataclass(frozen=True)
class SearchLimits:
    """When a search stops. Without a time limit its result is the same on every machine, with any number of threads.

    Attributes:
      budget: graphs to expand.
      seconds: 0 means no limit.
      memory_mb: of the queue, the graphs and what was seen; the dearest rewrites are given up to stay within it.
      threads: that carry out rewrites.
    """

    budget: int = 1000
    seconds: float = 0.0
    memory_mb: int = 512
    threads: int = 1

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"a budget of {self.budget} graphs expands nothing; use 1 or more.")
        if not self.seconds >= 0:
            raise ValueError(f"a time limit of {self.seconds} seconds cannot be kept; use 0 for none.")
        if self.memory_mb < 16:
            raise ValueError(f"{self.memory_mb} MB of memory are too little for a search; use 16 or more.")
        if not 1 <= self.threads <= 256:
            raise ValueError(f"{self.threads} threads cannot search; use 1 to 256.")

    def arguments(self) -> dict[str, Any]:
        """As the engine's searches take them."""
        return {
            "budget": self.budget,
            "seconds": self.seconds,
            "memory_bytes": self.memory_mb << 20,
            "threads": self.threads,
        }


DEFAULT_LIMITS = SearchLimits()
SHORTEST_S = 1e-3
"""Of a search whose time is used up: 0 would be no limit."""


def shares(limits: SearchLimits, parts: int) -> Iterator[SearchLimits]:
    """Limits of searches that follow one another within one limit of time; all else each has to itself.

    Each is to be asked for when its search begins: it gets an equal share of what those before have left.
    """
    deadline = time.monotonic() + limits.seconds
    for left in range(parts, 0, -1):
        seconds = max(deadline - time.monotonic(), SHORTEST_S) / left if limits.seconds else 0.0
        yield dataclasses.replace(limits, seconds=seconds)


class Found(NamedTuple):
    """What a search has to show: how to get to the best graph, what that costs, and why it stopped."""

    actions: Actions
    cost_ms: float
    stop_reason: str


class Search(Controller):
    """Searches in `train`, then replays the action log that leads to the best graph found.

    Attributes:
      actions: the log found; `None` before `train` or `load`.
      stop_reason: why the search stopped, and what it had to give up.
    """

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self.actions: Actions | None = None
        self.stop_reason = ""
        self._graph_hash = ""
        self._position = 0
        self._num_rules = 0

    @abstractmethod
    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Searches from `state`, which is the search's own."""

    @property
    def max_steps(self) -> int | None:
        """See `Controller.max_steps`: the log, and a NO-OP."""
        return None if self.actions is None else len(self.actions) + 1

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Searches from the graph that `world`, the real environment, is at."""
        state = world.unwrapped.state
        self.actions, _, self.stop_reason = self.find(state.copy(), seed, on_progress)
        self._graph_hash = state.hash

    def begin_episode(self, view: Any, *, seed: int) -> None:
        """Rewinds the log.

        Raises:
          ValueError: if there is no log, or it was found on another graph.
        """
        if self.actions is None:
            raise ValueError(f"{self.name} has no action log to play: call train(env), or load a saved one, first.")
        env = view.unwrapped
        if env.state.hash != self._graph_hash:
            raise ValueError(
                f"{self.name}'s action log starts at graph {self._graph_hash}, but the environment is at "
                f"{env.state.hash}: search again with train(env)."
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
