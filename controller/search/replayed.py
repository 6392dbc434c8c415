"""The base of all searches: `train` finds an action log, and an episode replays it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.interface import Controller, ProgressCallback
from taso_ext import Graph, State
from taso_ext.files import write_text
from taso_ext.graph_json import graph_from_json, graph_to_json

Actions = list[tuple[int, int]]
"""Pairs (rule, location), in order."""


@dataclasses.dataclass(frozen=True)
class SearchLimits:
    """The limits of a search.

    Without a time limit, the result is the same on every machine and with any number of threads.

    Attributes:
      budget: number of graphs to expand.
      seconds: limit of time; 0 means none.
      memory_mb: limit of the memory of the queue, the graphs and the seen hashes, in MB; the dearest rewrites are
        dropped to stay within it.
      threads: number of threads that carry out rewrites.
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
        """Returns the limits as arguments of the engine's searches."""
        return {
            "budget": self.budget,
            "seconds": self.seconds,
            "memory_bytes": self.memory_mb << 20,
            "threads": self.threads,
        }


DEFAULT_LIMITS = SearchLimits()
SHORTEST_S = 1e-3
"""Time limit of a search whose time is used up: 0 would mean no limit."""


def shares(limits: SearchLimits, parts: int) -> Iterator[SearchLimits]:
    """Yields the limits of `parts` searches that share one limit of time; each has the other limits to itself.

    The caller takes each item when its search begins. That search gets an equal share of the time that is left.
    """
    deadline = time.monotonic() + limits.seconds
    for left in range(parts, 0, -1):
        seconds = max(deadline - time.monotonic(), SHORTEST_S) / left if limits.seconds else 0.0
        yield dataclasses.replace(limits, seconds=seconds)


class StopCause(StrEnum):
    """The cause that ended a search; the values are the engine's names."""

    EXHAUSTED = "exhausted"
    LOCAL_OPTIMUM = "local optimum"
    BUDGET = "budget"
    TIME = "time"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"


_BECAUSE = {
    StopCause.EXHAUSTED: "nothing was left to search",
    StopCause.LOCAL_OPTIMUM: "no step from its best graph makes it cheaper",
    StopCause.BUDGET: "its budget was used up",
    StopCause.TIME: "its time was over",
    StopCause.MEMORY: "its memory was full",
    StopCause.INTERRUPTED: "it was interrupted",
}


@dataclasses.dataclass(frozen=True)
class StopReason:
    """Why a search stopped, and what it had to leave out; `str` is what follows `it stopped because` in reports.

    Attributes:
      cause: what ended the search.
      evicted: number of rewrites that were dropped to stay within the limit of memory.
      unpriced_rewrites, unpriced_passes: numbers of rewrites and of passes to graphs that have no price.
      after_passes: whether the search went on from where the `passes` controller had ended.
      about: what else there is to say of the search, in words.
      bound_ms: no graph that the search could choose costs less; None if nobody knows.
    """

    cause: StopCause
    evicted: int = 0
    unpriced_rewrites: int = 0
    unpriced_passes: int = 0
    after_passes: bool = False
    about: str = ""
    bound_ms: float | None = None

    def following_passes(self) -> StopReason:
        """Returns the same reason for a search that began where the `passes` controller had ended."""
        return dataclasses.replace(self, after_passes=True)

    def __str__(self) -> str:
        parts = [_BECAUSE[self.cause]]
        if self.evicted:
            parts.append(f"{self.evicted:,} rewrites, the dearest, were given up for want of memory")
        for count, what in ((self.unpriced_rewrites, "rewrites"), (self.unpriced_passes, "passes")):
            if count:
                parts.append(f"{count:,} {what} were left alone for want of a price")
        parts += [self.about] if self.about else []
        return "; ".join(parts) + ", after passes that led to where it began" * self.after_passes


class Found(NamedTuple):
    """Result of a search: the actions that lead to the best graph, its cost, and why the search stopped."""

    actions: Actions
    cost_ms: float
    stop_reason: StopReason


class Search(Controller):
    """A controller that searches in `train` and then replays the action log that leads to the best graph.

    Attributes:
      actions: the log; `None` before `train` or `load`.
      stop_reason: why the search stopped; `None` before `train` or `load`.
    """

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self.actions: Actions | None = None
        self.stop_reason: StopReason | None = None
        self._graph_hash = ""
        self._everywhere = False  # whether the environment that it trains in has everywhere-actions
        self._waypoints: dict[int, Graph] = {}  # those that the log goes to, by their numbers in it
        self._numbers: dict[int, int] = {}  # their numbers in the environment that it plays in
        self._position = 0
        self._num_rules = 0

    @abstractmethod
    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Searches from `state`, which it may change, and returns the best graph's actions."""

    @property
    def total(self) -> int:
        """The number of steps that `train` reports at most: of graphs to expand, unless a search counts otherwise."""
        return self._limits.budget

    @property
    def limit_s(self) -> float:
        """See `Controller.limit_s`."""
        return self._limits.seconds or math.inf

    @property
    def max_steps(self) -> int | None:
        """Length of the log and a final NO-OP; None if there is no log. See `Controller.max_steps`."""
        return None if self.actions is None else len(self.actions) + 1

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Searches from the present graph of `world`, the real environment."""
        state, self._everywhere = world.unwrapped.state, world.unwrapped.everywhere
        self.actions, _, self.stop_reason = self.find(state.copy(), seed, on_progress)
        self._graph_hash = state.hash
        self._waypoints = {
            number: state.waypoints[number] for rule, number in self.actions if rule == state.waypoint_rule
        }

    def begin_episode(self, view: Any, *, seed: int) -> None:
        """Rewinds the log.

        Raises:
          ValueError: there is no log, or it belongs to another graph.
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
        self._numbers = {number: env.waypoints.add(graph) for number, graph in self._waypoints.items()}

    def act(self, observation: Any, *, deterministic: bool) -> np.ndarray:
        assert self.actions is not None  # begin_episode has checked it
        self._position += 1
        if self._position > len(self.actions):
            return np.array([self._num_rules, 0], np.int64)
        rule, location = self.actions[self._position - 1]
        is_waypoint = rule > self._num_rules
        return np.array([rule, self._numbers[location] if is_waypoint else location], np.int64)

    def save(self, path: str | os.PathLike[str]) -> None:
        stop = self.stop_reason and dataclasses.asdict(self.stop_reason)
        waypoints = {number: graph_to_json(graph) for number, graph in self._waypoints.items()}
        fields = {"graph_hash": self._graph_hash, "actions": self.actions, "stop_reason": stop, "waypoints": waypoints}
        write_text(path, json.dumps(fields))

    def load(self, path: str | os.PathLike[str]) -> None:
        fields: Mapping[str, Any] = json.loads(Path(path).read_text())
        actions = fields["actions"]
        self.actions = None if actions is None else [(int(rule), int(location)) for rule, location in actions]
        self._graph_hash, self.stop_reason = fields["graph_hash"], _stored_reason(fields["stop_reason"])
        waypoints = fields.get("waypoints", {})  # older versions have none
        self._waypoints = {int(number): graph_from_json(graph) for number, graph in waypoints.items()}


def _stored_reason(stored: Mapping[str, Any] | str | None) -> StopReason | None:
    """Returns the reason that `Search.save` wrote. Of the sentences of older versions it reads only the cause."""
    if not stored:
        return None
    if isinstance(stored, str):
        return StopReason(StopCause(stored.partition(";")[0].partition(",")[0]))
    return StopReason(**{**stored, "cause": StopCause(stored["cause"])})
