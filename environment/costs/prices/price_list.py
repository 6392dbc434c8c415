"""The prices of one setting in a database: prices of kernels, and costs of operators as the kernels that they run."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from environment.costs.prices.graph_prices import GraphPrices
from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import DatabaseError, PriceFile
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from taso_ext import UnpricedError

OPERATOR_COSTS = 2
"""Version of what decides an operator's cost: the neighbourhood signature (taso_ext/src/ir/neighbourhoods.cpp), how
much of a graph is lowered with an operator (operator_costs.py), and which kernels then stand for it (ort_kernels.py).
A database forgets the operator costs of older versions and keeps its prices."""


KEPT_TIMINGS = 32
"""Largest number of single timings that are kept of a kernel: the latest ones. Their mean is that of all timings."""


class UnrecordedError(DatabaseError, UnpricedError):
    """A price is not recorded and nothing is measured; the message says how to record it."""


@dataclass(frozen=True)
class Price:
    """The price of one run of a kernel.

    Attributes:
      ms: time of one run.
      spread: half the width of its 95 % interval, as a fraction of it.
      timings: number of timings of which it is the mean; 0 if it is predicted.
    """

    ms: float
    spread: float
    timings: int = 1

    @property
    def error_ms(self) -> float:
        """Half the width of the 95 % interval of `ms`."""
        return self.ms * self.spread


def mean_price(first: Price, other: Price) -> Price:
    """Returns the geometric mean of two prices of one kernel, weighted by their numbers of timings.

    All timings have the same weight, whatever their numbers of samples and their intervals: disturbed timings take the
    most samples, and undisturbed ones are no nearer to the conditions of a graph. The difference of two timings counts
    as an error of the later one, since no timing shows how much it differs from others. The spread of a mean therefore
    falls with the root of the number of timings, however small the intervals of the single timings are.
    """
    timings = first.timings + other.timings
    share = first.timings / timings
    if not first.ms or not other.ms:  # below the clock's resolution, where there is no logarithm
        return Price(share * first.ms + (1 - share) * other.ms, max(first.spread, other.spread), timings)
    apart = math.log(other.ms / first.ms)
    error = max(other.spread, NORMAL_HALF_WIDTH * abs(apart) * math.sqrt(share))
    spread = math.hypot(share * first.spread, (1 - share) * error)
    return Price(first.ms * math.exp((1 - share) * apart), spread, timings)


@dataclass(frozen=True)
class OperatorCost:
    """The cost of an operator in a neighbourhood.

    Attributes:
      kernels: number of runs of each kernel, by the signatures of the prices; empty if the kernel of another
        operator does its work.
      memory_bytes: bytes that the kernels read and write.
    """

    kernels: Mapping[str, int]
    memory_bytes: float


class PriceList:
    """The prices of one setting.

    A process keeps the prices that it has read, whatever others write meanwhile, so that a graph keeps its price.
    """

    def __init__(self, file: PriceFile, setting: Setting, number: int) -> None:
        """Use `PriceDatabase.setting` instead of this constructor."""
        self.setting = setting
        self._file, self._number = file, number
        self._seen: dict[str, Price] = {}

    @property
    def place(self) -> Path:
        """The database's file."""
        return self._file.path

    def turn(self) -> AbstractContextManager[None]:
        """See `PriceFile.turn`."""
        return self._file.turn()

    def __len__(self) -> int:
        """Returns the number of timed kernels."""
        query = "select count(ms) from price where setting = ?"
        with self._file.statements() as file:
            count: int = file.execute(query, (self._number,)).fetchone()[0]
        return count

    def items(self) -> Iterator[tuple[str, Price]]:
        """Yields (signature, price) of all prices as they are now, in the order of the signatures."""
        query = """select signature, ms, spread, timings from price where setting = ? and ms is not null
                   order by signature"""
        with self._file.statements() as file:
            for signature, *price in file.execute(query, (self._number,)):
                yield signature, Price(*price)

    def get(self, signature: str) -> Price | None:
        """Returns the price of a signature, or None."""
        if signature not in self._seen:
            with self._file.statements() as file:
                found = self._read(file, signature)
            if found is None:
                return None
            self._seen[signature] = found
        return self._seen[signature]

    def put(self, signature: str, price: Price) -> Price:
        """Keeps a price, or its mean with the price that exists already; returns the kept price.

        A price of one timing is kept as a single timing too (`timings`).
        """
        with self._file.transaction() as file:
            known = self._read(file, signature)
            kept = price if known is None else mean_price(known, price)
            values = (self._number, signature, kept.ms, kept.spread, kept.timings, time.time())
            file.execute(f"{_INSERT} on conflict {_REPLACE}", values)
            if price.timings == 1:
                self._keep_timings(file, [(signature, kept.timings, price.ms)])
        self._seen[signature] = kept
        return kept

    def timings(self, signature: str) -> tuple[float, ...]:
        """Returns the kept single timings of a kernel in ms, as they are now, the earliest first.

        Timings of versions that kept only the mean of several are not there.
        """
        query = f"select timing.ms from {_TIMINGS} where setting = ? and signature = ? order by number"
        with self._file.statements() as file:
            rows = file.execute(query, (self._number, signature)).fetchall()
        return tuple(ms for (ms,) in rows)

    def all_timings(self) -> list[tuple[str, int, float]]:
        """Returns (signature, number, ms) of all kept single timings, in order; see `timings`."""
        query = f"select signature, number, timing.ms from {_TIMINGS} where setting = ? order by signature, number"
        with self._file.statements() as file:
            return file.execute(query, (self._number,)).fetchall()

    def _keep_timings(self, file: sqlite3.Connection, timings: Sequence[tuple[str, int, float]]) -> None:
        """Keeps single timings, each given as (signature, number, ms), and drops those that are too many."""
        for signature, number, ms in timings:
            (price,) = file.execute(_PRICE_ID, (self._number, signature)).fetchone()
            file.execute("insert or replace into timing values (?, ?, ?)", (price, number, ms))
            file.execute("delete from timing where price = ? and number <= ?", (price, number - KEPT_TIMINGS))

    @cached_property
    def graphs(self) -> GraphPrices:
        """The prices of whole graphs, which were timed end to end."""
        return GraphPrices(self._file, self._number)

    def _read(self, file: sqlite3.Connection, signature: str) -> Price | None:
        query = "select ms, spread, timings from price where setting = ? and signature = ? and ms is not null"
        row = file.execute(query, (self._number, signature)).fetchone()
        return None if row is None else Price(*row)

    def add_from(self, other: PriceList, *, kernels_alone: bool = False) -> int:
        """Adds the prices of another list that this list does not have yet, and returns their number.

        Prices are ratios to the reference kernel. They are scaled if it has another time in the other list.

        Args:
          kernels_alone: whether operator costs and the prices of whole graphs are left out.
        """
        unit_ms = other.reference_ms
        factor = 1.0 if unit_ms is None else self.keep_reference_ms(unit_ms) / unit_ms
        now, before = time.time(), len(self)
        # Read before the prices, so that costs which another process adds meanwhile have their prices too.
        operators = {} if kernels_alone else other.operator_costs
        rows = [
            (self._number, signature, price.ms * factor, price.spread, price.timings, now)
            for signature, price in other.items()
        ]
        timings = [(signature, number, ms * factor) for signature, number, ms in other.all_timings()]
        with self._file.transaction() as file:
            known = {signature for (signature,) in file.execute(_PRICED, (self._number,))}
            file.executemany(f"{_INSERT} on conflict {_REPLACE} where price.ms is null", rows)
            self._keep_timings(file, [each for each in timings if each[0] not in known])
        self.put_operator_costs(operators)
        if not kernels_alone:
            self.graphs.add_from(other.graphs)
        return len(self) - before

    @property
    def reference_ms(self) -> float | None:
        """Time of the reference kernel in ms; None before any kernel was timed."""
        query = "select yardstick_ms from setting where id = ?"
        with self._file.statements() as file:
            found: float | None = file.execute(query, (self._number,)).fetchone()[0]
        return found

    def keep_reference_ms(self, ms: float) -> float:
        """Keeps the time of the reference kernel unless there is one already; returns the kept time."""
        change = "update setting set yardstick_ms = coalesce(yardstick_ms, ?) where id = ?"
        with self._file.statements() as file:
            file.execute(change, (ms, self._number))
        kept = self.reference_ms
        assert kept is not None
        return kept

    @cached_property
    def operator_costs(self) -> dict[int, OperatorCost]:
        """Operator costs by neighbourhood signature, as the database had them at the first access.

        Code that finds new costs adds them to this dictionary, and with `put_operator_costs` for other processes.
        """
        with self._file.statements() as file:
            return self._read_operator_costs(file)

    @property
    def num_operator_costs(self) -> int:
        """Number of neighbourhood signatures whose operators' kernels are known."""
        query = "select count(*) from appraisal where setting = ? and version = ?"
        with self._file.statements() as file:
            count: int = file.execute(query, (self._number, OPERATOR_COSTS)).fetchone()[0]
        return count

    def put_operator_costs(self, found: Mapping[int, OperatorCost]) -> dict[int, OperatorCost]:
        """Keeps new operator costs, whose kernels need no prices; returns the kept ones by the same signatures.

        An existing cost stays, so that processes agree.
        """
        with self._file.transaction() as file:
            file.execute("delete from appraisal where setting = ? and version < ?", (self._number, OPERATOR_COSTS))
            return {name: self._keep_operator_cost(file, name, each) for name, each in found.items()}

    def _keep_operator_cost(self, file: sqlite3.Connection, name: int, found: OperatorCost) -> OperatorCost:
        row = (self._number, OPERATOR_COSTS, _blob(name), found.memory_bytes)
        added = file.execute(
            "insert into appraisal (setting, version, surroundings, bytes) values (?, ?, ?, ?) on conflict do nothing",
            row,
        )
        if not added.rowcount:
            return self._read_operator_costs(file, "and surroundings = ?", _blob(name))[name]
        unpriced = [(self._number, kernel, None, None, 0, time.time()) for kernel in found.kernels]
        file.executemany(f"{_INSERT} on conflict do nothing", unpriced)
        parts = [(added.lastrowid, self._number, kernel, count) for kernel, count in found.kernels.items()]
        file.executemany(f"insert into part (appraisal, price, count) values (?, ({_PRICE_ID}), ?)", parts)
        return found

    def _read_operator_costs(
        self, file: sqlite3.Connection, which: str = "", *values: bytes
    ) -> dict[int, OperatorCost]:
        """Returns operator costs by signature; equal ones are one object, since hundreds of thousands are few kinds."""
        query = f"""select surroundings, bytes, group_concat(part.price || ' ' || count)
                    from appraisal left join part on appraisal = appraisal.id
                    where appraisal.setting = ? and version = ? {which} group by appraisal.id"""
        signatures = dict(file.execute("select id, signature from price where setting = ?", (self._number,)))
        kinds: dict[tuple[float, str | None], OperatorCost] = {}
        found = {}
        for blob, size, runs in file.execute(query, (self._number, OPERATOR_COSTS, *values)):
            kind = kinds.get((size, runs))
            if kind is None:
                kind = kinds[size, runs] = OperatorCost(_kernels(runs, signatures), size)
            found[int.from_bytes(blob, "little")] = kind
        return found


def _kernels(runs: str | None, signatures: Mapping[int, str]) -> dict[str, int]:
    """Returns how often each kernel runs, given numbers of prices and counts as in `7 1,9 2`."""
    found = {}
    for run in runs.split(",") if runs else ():
        number, count = map(int, run.split())
        if number not in signatures:
            raise sqlite3.DatabaseError(_NO_KERNEL)
        found[signatures[number]] = count
    return found


_TIMINGS = "timing join price on price.id = timing.price"
_PRICE_ID = "select id from price where setting = ? and signature = ?"
_PRICED = "select signature from price where setting = ? and ms is not null"
_NO_KERNEL = "an operator runs a kernel that is not there"
_INSERT = "insert into price (setting, signature, ms, spread, timings, recorded) values (?, ?, ?, ?, ?, ?)"
_REPLACE = """(setting, signature) do update set
  ms = excluded.ms, spread = excluded.spread, timings = excluded.timings, recorded = excluded.recorded"""


def _blob(name: int) -> bytes:
    """Returns a signature of 64 bits as bytes, because SQLite's integers have a sign."""
    return name.to_bytes(8, "little")
