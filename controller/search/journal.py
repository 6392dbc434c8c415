"""The journal of a climb: what it has timed, so that a climb that was killed goes on where it was.

The file has one JSON object on each line. Lines are only ever added, each by one write that reaches the disk before the
climb goes on. A line that a killed process has begun and not ended is cut off. `kind` says what a line is:

begun     format, graph, rules, runtime: what the journal belongs to; the first line
proposed  source, actions: the graph that a search has proposed
timed     graph, actions, base, base_ratio, verdict, ratio, low, high, pairs, sessions, bill: a name of its
          kernels, or null
refused   graph, reason: the runtime cannot run the graph
best      graph, actions, ratio, timed: the climb has moved to this graph

Graphs are named by their hashes. `ratio` of a timed graph is its time over that of `base`, the best graph until then,
whose time is `base_ratio` of the start graph's. Every line has `elapsed_s`, the seconds of the climb so far, those of
earlier commands included.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
FILE = "climb.jsonl"
"""The name of a journal among the checkpoints of a run."""
Actions = tuple[tuple[int, int], ...]
_FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "begun": {"format": int, "graph": str, "rules": str, "runtime": str},
    "proposed": {"source": str, "actions": list},
    "timed": {
        "graph": str,
        "actions": list,
        "base": str,
        "base_ratio": float,
        "verdict": str,
        "pairs": int,
        "ratio": float,
        "low": float,
        "high": float,
        "sessions": int,
        "bill": (str, type(None)),
    },
    "refused": {"graph": str, "reason": str},
    "best": {"graph": str, "actions": list, "ratio": float, "timed": int},
}
"""The fields of each kind of line, beside `kind` and `elapsed_s`."""


class JournalError(ValueError):
    """A journal that cannot be read; the message says where and why."""


class Journal:
    """The lines of a journal, in memory and, if it has a path, in its file.

    Attributes:
      elapsed_s: the time of the last line.
      best: the last line of the kind `best`; None if there is none.
      timed: the lines of timed graphs by graph.
      bills: the known bills of graphs that were timed and not faster.
    """

    def __init__(self, path: Path | None, identity: Mapping[str, str]) -> None:
        """Opens a journal, or begins it.

        Args:
          path: the file; None keeps the journal in memory.
          identity: the graph, the rules and the runtime that it belongs to.
        Raises:
          JournalError: the file is damaged, or it belongs to something else.
        """
        self._path = path
        self.elapsed_s = 0.0
        self.best: dict[str, Any] | None = None
        self.timed: dict[str, dict[str, Any]] = {}
        self.bills: set[str] = set()
        self._refused: set[str] = set()
        self._proposed: dict[str, Actions] = {}
        lines = [] if path is None or not path.is_file() else read(path)
        if not lines:
            self.add("begun", 0.0, format=FORMAT, **identity)
            return
        begun = {key: lines[0].get(key) for key in ("kind", "format", *identity)}
        if begun != {"kind": "begun", "format": FORMAT, **identity}:
            raise JournalError(f"it belongs to another climb, {begun}")
        for line in lines:
            self._take(line)

    @property
    def is_new(self) -> bool:
        """Whether nothing was done yet."""
        return not (self.timed or self._refused or self._proposed)

    def knows(self, graph: str) -> bool:
        """Returns whether a graph was timed or refused."""
        return graph in self.timed or graph in self._refused

    def proposed(self, source: str) -> Actions | None:
        """Returns what a search has proposed; None if it has not ended."""
        return self._proposed.get(source)

    def add(self, kind: str, elapsed_s: float, **fields: Any) -> None:
        """Adds a line, which is on the disk when this returns."""
        line = {"kind": kind, **fields, "elapsed_s": round(elapsed_s, 3)}
        text = json.dumps(line, allow_nan=False) + "\n"
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                file.write(text.encode())
                os.fsync(file.fileno())
        self._take(json.loads(text))

    def _take(self, line: dict[str, Any]) -> None:
        self.elapsed_s = float(line["elapsed_s"])
        match line["kind"]:
            case "proposed":
                self._proposed[line["source"]] = as_actions(line["actions"])
            case "timed":
                self.timed[line["graph"]] = line
            case "refused":
                self._refused.add(line["graph"])
            case "best":
                self.best = line
        if line.get("bill") and line["verdict"] == "not faster":
            self.bills.add(line["bill"])


def as_actions(stored: Any) -> Actions:
    """Returns the actions of a line."""
    return tuple((int(rule), int(location)) for rule, location in stored)


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a journal; a last line without an end is cut off the file.

    Raises:
      JournalError: a line is damaged.
    """
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return [_line(number, text) for number, text in enumerate(content[:whole].splitlines(), 1)]


def moves(path: Path) -> list[tuple[float, int, float]]:
    """Returns the moves of a climb: seconds, graphs timed until then, ratio to the start; none without a journal.

    Raises:
      JournalError: a line is damaged.
    """
    lines = read(path) if path.is_file() else []
    return [(line["elapsed_s"], line["timed"], line["ratio"]) for line in lines if line["kind"] == "best"]


def _line(number: int, text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
        fields = {**_FIELDS[line["kind"]], "elapsed_s": float}
        wrong = [name for name, kind in fields.items() if not isinstance(line[name], kind)]
        if wrong:
            raise ValueError(f"its field '{wrong[0]}' has another type")
        if "actions" in fields:
            as_actions(line["actions"])
    except KeyError as error:
        raise JournalError(f"line {number} is no line of a journal: {error} is missing or unknown") from error
    except (ValueError, TypeError) as error:
        raise JournalError(f"line {number} is no line of a journal: {error}") from error
    return dict(line)
