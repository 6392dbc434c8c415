"""The prices of whole graphs in a database: end-to-end times, as ratios to the graph that they were made of."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from environment.costs.prices.sqlite_file import PriceFile

KEPT_PAIRS = 32
"""Largest number of single ratios that are kept of a graph."""


@dataclass(frozen=True)
class GraphPrice:
    """The end-to-end time of a graph.

    Attributes:
      start_ms: time of one inference of its start graph, when it was timed.
      ratio: its time over that of the start graph; 1 for the start graph itself.
      spread: half the width of the ratio's 95 % interval, as a fraction of it.
      timings: ratios of single pairs of samples, in the order of time; none for the start graph.
    """

    start_ms: float
    ratio: float
    spread: float
    timings: tuple[float, ...] = ()


def kept(ratios: Sequence[float]) -> tuple[float, ...]:
    """Returns at most `KEPT_PAIRS` of a measurement's ratios, evenly over its pairs and therefore over its sessions."""
    if len(ratios) <= KEPT_PAIRS:
        return tuple(ratios)
    places = np.linspace(0, len(ratios) - 1, KEPT_PAIRS).round().astype(int)
    return tuple(ratios[place] for place in places.tolist())


class GraphPrices:
    """The prices of whole graphs of one setting, by the hashes of their start graph and of themselves.

    Args:
      file: the database.
      number: number of the setting in it.
    """

    def __init__(self, file: PriceFile, number: int) -> None:
        self._file, self._number = file, number

    def __len__(self) -> int:
        query = "select count(*) from graph where setting = ?"
        with self._file.statements() as file:
            count: int = file.execute(query, (self._number,)).fetchone()[0]
        return count

    def get(self, start: str, graph: str) -> GraphPrice | None:
        """Returns the price of a graph that rewriting made of a start graph, or None; both are given as hashes."""
        query = f"select {_COLUMNS} from graph where setting = ? and start = ? and hash = ?"
        with self._file.statements() as file:
            row = file.execute(query, (self._number, start, graph)).fetchone()
        return None if row is None else _price(*row)

    def put(self, start: str, graph: str, price: GraphPrice) -> None:
        """Keeps the price of a graph instead of an earlier one."""
        self._write([(start, graph, price)], "replace")

    def items(self) -> Iterator[tuple[str, str, GraphPrice]]:
        """Yields (hash of the start graph, hash of the graph, price) of all graphs, in the order of the hashes."""
        query = f"select start, hash, {_COLUMNS} from graph where setting = ? order by start, hash"
        with self._file.statements() as file:
            for start, graph, *row in file.execute(query, (self._number,)):
                yield start, graph, _price(*row)

    def add_from(self, other: GraphPrices) -> None:
        """Adds the prices of another file that this file does not have yet."""
        self._write(list(other.items()), "ignore")

    def _write(self, prices: Sequence[tuple[str, str, GraphPrice]], conflict: str) -> None:
        now = time.time()
        rows = [
            (self._number, start, graph, each.start_ms, each.ratio, each.spread, _blob(each.timings), now)
            for start, graph, each in prices
        ]
        change = f"insert or {conflict} into graph (setting, start, hash, {_COLUMNS}, recorded) values ({_MARKS})"
        with self._file.transaction() as file:
            file.executemany(change, rows)


_COLUMNS = "start_ms, ratio, spread, timings"
_MARKS = "?, ?, ?, ?, ?, ?, ?, ?"


def _blob(timings: Sequence[float]) -> bytes:
    return np.array(timings, "<f4").tobytes()


def _price(start_ms: float, ratio: float, spread: float, timings: bytes) -> GraphPrice:
    return GraphPrice(start_ms, ratio, spread, tuple(np.frombuffer(timings, "<f4").tolist()))
