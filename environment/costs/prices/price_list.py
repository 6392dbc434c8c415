"""The prices of one setting, in a database: of kernels, and of operators as the kernels that they take."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import DatabaseError, PriceFile
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from taso_ext import UnpricedError

OPERATOR_COSTS = 2
"""Version of what decides an appraisal: names of surroundings (taso_ext/src/ir/surroundings.cpp), how much of a graph
is lowered with an operator, and which kernels then stand for it (operator_costs.py, surroundings.py and ort_kernels.py
in environment/costs/measured). A database forgets those of older versions; its prices stay."""


class UnrecordedError(DatabaseError, UnpricedError):
    """A price was not recorded, and nothing is measured; the message says how to record it."""


@dataclass(frozen=True)
class Price:
    """
    Attributes:
      ms: time of one run.
      spread: half the width of its 95 % interval, as a part of it.
      timings: how many it is the mean of.
    """

    ms: float
    spread: float
    timings: int = 1

    @property
    def error_ms(self) -> float:
        """Half the width of its 95 % interval."""
        return self.ms * self.spread


def mean_price(first: Price, other: Price) -> Price:
    """The geometric mean of two prices of one kernel, each with the weight of its timings.

    All timings have one weight, however many samples each took and however sure it says it is: those that others
    disturb take the most samples, and those that nobody seems to disturb are no nearer to what graphs meet. What two
    timings differ by counts as an error of the later one: a timing does not know how unlike others it is. So the spread
    of the mean of many goes down with the root of their number, however little each of them owned up to.
    """
    timings = first.timings + other.timings
    share = first.timings / timings
    if not first.ms or not other.ms:  # below what the clock can tell: nothing to take logarithms of
        return Price(share * first.ms + (1 - share) * other.ms, max(first.spread, other.spread), timings)
    apart = math.log(other.ms / first.ms)
    error = max(other.spread, NORMAL_HALF_WIDTH * abs(apart) * math.sqrt(share))
    spread = math.hypot(share * first.spread, (1 - share) * error)
    return Price(first.ms * math.exp((1 - share) * apart), spread, timings)


@dataclass(frozen=True)
class OperatorCost:
    """What an operator takes where it stands.

    Attributes:
      kernels: how often it runs each, by the signatures of their prices; none where another's kernel does its work.
      memory_bytes: that they read and write.
    """

    kernels: Mapping[str, int]
    memory_bytes: float


class PriceList:
    """The prices of one setting.

    A process keeps to what it has read of them, whatever others write meanwhile: it always prices a graph alike.
    """

    def __init__(self, file: PriceFile, setting: Setting, number: int) -> None:
        """Use `PriceDatabase.setting`."""
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
        """The number of prices."""
        with self._file.statements() as file:
            count: int = file.execute("select count(*) from price where setting = ?", (self._number,)).fetchone()[0]
        return count

    def items(self) -> Iterator[tuple[str, Price]]:
        """All prices as they are now, by signature."""
        query = "select signature, ms, spread, timings from price where setting = ? order by signature"
        with self._file.statements() as file:
            for signature, *price in file.execute(query, (self._number,)):
                yield signature, Price(*price)

    def get(self, signature: str) -> Price | None:
        """The price of a signature, if there is one."""
        if signature not in self._seen:
            with self._file.statements() as file:
                found = self._read(file, signature)
            if found is None:
                return None
            self._seen[signature] = found
        return self._seen[signature]

    def __getitem__(self, signature: str) -> Price:
        """The price of a signature that has one.

        Raises:
          KeyError: it has none.
        """
        found = self.get(signature)
        if found is None:
            raise KeyError(signature)
        return found

    def put(self, signature: str, price: Price) -> Price:
        """Keeps a price, or its mean with the one that there is; returns what is kept."""
        with self._file.transaction() as file:
            known = self._read(file, signature)
            kept = price if known is None else mean_price(known, price)
            values = (self._number, signature, kept.ms, kept.spread, kept.timings, time.time())
            file.execute(f"{_INSERT} on conflict {_REPLACE}", values)
        self._seen[signature] = kept
        return kept

    def _read(self, file: sqlite3.Connection, signature: str) -> Price | None:
        query = "select ms, spread, timings from price where setting = ? and signature = ?"
        row = file.execute(query, (self._number, signature)).fetchone()
        return None if row is None else Price(*row)

    def add_from(self, other: PriceList) -> int:
        """Adds the prices of another list, but those that are here already; returns how many came.

        Prices are ratios to the reference kernel, which may have been slower or faster there: they are scaled to it.
        """
        unit_ms = other.reference_ms
        factor = 1.0 if unit_ms is None else self.keep_reference_ms(unit_ms) / unit_ms
        now, before = time.time(), len(self)
        appraisals = (
            other.operator_costs
        )  # before the prices: what another process adds meanwhile comes with its prices
        rows = [
            (self._number, signature, price.ms * factor, price.spread, price.timings, now)
            for signature, price in other.items()
        ]
        with self._file.transaction() as file:
            file.executemany(f"{_INSERT} on conflict do nothing", rows)
        self.put_operator_costs(appraisals)
        return len(self) - before

    @property
    def reference_ms(self) -> float | None:
        """What the kernel took that all others are timed beside; None before any was timed."""
        query = "select yardstick_ms from setting where id = ?"
        with self._file.statements() as file:
            found: float | None = file.execute(query, (self._number,)).fetchone()[0]
        return found

    def keep_reference_ms(self, ms: float) -> float:
        """Keeps it unless there is one already; returns the one that is kept."""
        change = "update setting set yardstick_ms = coalesce(yardstick_ms, ?) where id = ?"
        with self._file.statements() as file:
            file.execute(change, (ms, self._number))
        kept = self.reference_ms
        assert kept is not None
        return kept

    @cached_property
    def operator_costs(self) -> dict[int, OperatorCost]:
        """What operators take, by the names of their surroundings, as it was when it was first asked for.

        Who finds out more adds it here, and with `put_operator_costs` for others.
        """
        with self._file.statements() as file:
            return self._read_operator_costs(file)

    @property
    def num_operator_costs(self) -> int:
        """Operators in their surroundings whose kernels are known."""
        query = "select count(*) from appraisal where setting = ? and version = ?"
        with self._file.statements() as file:
            count: int = file.execute(query, (self._number, OPERATOR_COSTS)).fetchone()[0]
        return count

    def put_operator_costs(self, found: Mapping[int, OperatorCost]) -> dict[int, OperatorCost]:
        """Keeps those that are new, whose kernels must have prices; returns those that are kept, by the same names.

        The first stays, so that processes agree.
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
        parts = [(added.lastrowid, self._number, kernel, count) for kernel, count in found.kernels.items()]
        price = "(select id from price where setting = ? and signature = ?)"
        file.executemany(f"insert into part (appraisal, price, count) values (?, {price}, ?)", parts)
        return found

    def _read_operator_costs(
        self, file: sqlite3.Connection, which: str = "", *values: bytes
    ) -> dict[int, OperatorCost]:
        query = f"""select surroundings, bytes, signature, count
                    from appraisal left join part on appraisal = appraisal.id left join price on price.id = part.price
                    where appraisal.setting = ? and version = ? {which}"""
        kernels: dict[int, dict[str, int]] = {}
        nbytes: dict[int, float] = {}
        texts: dict[str, str] = {}  # the same few signatures, long ones, come again and again
        for blob, size, signature, count in file.execute(query, (self._number, OPERATOR_COSTS, *values)):
            name = int.from_bytes(blob, "little")
            nbytes[name], taken = size, kernels.setdefault(name, {})
            if signature is not None:
                taken[texts.setdefault(signature, signature)] = count
        return {name: OperatorCost(kernels[name], size) for name, size in nbytes.items()}


_INSERT = "insert into price (setting, signature, ms, spread, timings, recorded) values (?, ?, ?, ?, ?, ?)"
_REPLACE = """(setting, signature) do update set
  ms = excluded.ms, spread = excluded.spread, timings = excluded.timings, recorded = excluded.recorded"""


def _blob(name: int) -> bytes:
    """A name of 64 bits; SQLite's integers have a sign."""
    return name.to_bytes(8, "little")
