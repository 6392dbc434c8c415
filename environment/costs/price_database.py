"""Measured prices in an SQLite file that several processes may use at once.

    with PriceDatabase("costs.sqlite") as prices:
        here = prices.setting(Setting("cpu", "Intel(R) Xeon(R) ...", "onnxruntime", "1.31.1", threads=1))
        if (price := here.get(signature)) is None:
            here.put(signature, price := measure(signature))

A price is written when it is known, in a transaction of its own: a killed process loses the one it was measuring.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

VERSION = 1
"""Of the tables below; kept in the file's `user_version`."""

_APPLICATION = 0x524C4643  # "RLFC" in the file's header, so that another program's database is told apart
_PATIENCE_S = 30.0  # for other processes; they hold the file for a millisecond a price
_POLL_S = 0.02
_TABLES = """
create table setting (
  id integer primary key,
  device text not null, processor text not null, runtime text not null, version text not null, threads integer not null,
  yardstick_ms real check (yardstick_ms > 0),
  unique (device, processor, runtime, version, threads)
);
create table price (
  setting integer not null references setting(id),
  signature text not null,
  ms real not null check (ms >= 0),
  spread real not null check (spread >= 0),
  samples integer not null check (samples > 0),
  recorded real not null,
  primary key (setting, signature)
) without rowid;
create table appraisal (
  setting integer not null references setting(id),
  surroundings blob not null,
  ms real not null check (ms >= 0), bytes real not null, launches real not null,
  primary key (setting, surroundings)
) without rowid;
"""


def default_database(*, make_folder: bool = True) -> Path:
    """The user's own database, `rlflow/prices.sqlite` in the cache folder.

    Raises:
      DatabaseError: the folder cannot be made.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlflow"
    try:
        if make_folder:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"Cannot make the folder {folder} for prices: {error.strerror or error}. Name another cache folder with "
            f"the environment variable XDG_CACHE_HOME."
        ) from error
    return folder / "prices.sqlite"


class DatabaseError(ValueError):
    """A file that cannot be used as a database of prices; the message says why and what to do."""


@dataclass(frozen=True)
class Setting:
    """Where prices were measured; those of different settings are never mixed.

    Attributes:
      device: `cpu`, `cuda`, ...
      processor: its name, as the system tells it.
      runtime, version: what ran the operators.
      threads: how many of them each operator had.
    """

    device: str
    processor: str
    runtime: str
    version: str
    threads: int

    def __str__(self) -> str:
        plural = "s" * (self.threads != 1)
        return f"{self.device} ({self.processor}), {self.runtime} {self.version}, {self.threads} thread{plural}"


@dataclass(frozen=True)
class Price:
    """
    Attributes:
      ms: time of one run.
      spread: half the width of its 95 % interval, as a part of it.
      samples: how many there were.
    """

    ms: float
    spread: float
    samples: int

    @property
    def standard_error(self) -> float:
        """As a part of it."""
        return self.spread / 1.96


class PriceDatabase:
    """The file.

    Args:
      create: whether a file that is not there is made; if not, it is an error.
    Raises:
      DatabaseError: from every method: a file that is no database of prices, is damaged, or of a newer version, or
        cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise DatabaseError(f"{self.path} is a folder. Name a file for the prices.")
        if not create and not (self.path.is_file() and self.path.stat().st_size):
            raise DatabaseError(f"There is no database of prices {self.path}. Make one with `rlflow costs record`.")
        if not self.path.parent.is_dir():
            raise DatabaseError(f"{self.path}: the folder {self.path.parent} does not exist. Create it first.")
        self._connect()

    def __enter__(self) -> PriceDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing()

    @property
    def _file(self) -> sqlite3.Connection:
        """The connection, another one in a forked process: SQLite's may not be carried over."""
        if self._process != os.getpid():
            self._connect()
        return self._connection

    def _connect(self) -> None:
        self._process = os.getpid()
        with _translated(self.path):
            # One connection may serve several threads, as long as they take turns: SQLite sees to that.
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
            )
        # At the latest when the process ends, so that no file with the newest prices stays beside the database.
        self._closing = weakref.finalize(self, _close, self._connection, self._process)
        try:
            with _translated(self.path):
                self._open()
        except DatabaseError:
            self.close()
            raise

    def settings(self) -> dict[Setting, int]:
        """All settings, with their numbers of prices."""
        query = """select device, processor, runtime, version, threads, count(signature)
                   from setting left join price on setting = id group by id order by id"""
        with _translated(self.path):
            return {Setting(*row[:5]): row[5] for row in self._file.execute(query)}

    def setting(self, setting: Setting) -> PriceList:
        """The prices of one setting, which may have none yet; a file that has it is not written to."""
        query = "select id from setting where (device, processor, runtime, version, threads) = (?, ?, ?, ?, ?)"
        with _translated(self.path):
            found = self._file.execute(query, astuple(setting)).fetchone()
            if found is None:
                self._file.execute(
                    "insert or ignore into setting (device, processor, runtime, version, threads) "
                    "values (?, ?, ?, ?, ?)",
                    astuple(setting),
                )
                found = self._file.execute(query, astuple(setting)).fetchone()
        return PriceList(self, setting, found[0])

    def require_sound(self) -> None:
        """Reads the whole file.

        Raises:
          DatabaseError: some of it is damaged.
        """
        with _translated(self.path):
            said = self._file.execute("pragma quick_check(1)").fetchone()[0]
            if said != "ok":
                raise sqlite3.DatabaseError(str(said).splitlines()[-1])

    def settle(self) -> None:
        """Makes it one file that needs none beside it, so that it can be read where nothing can be written."""
        with _translated(self.path):
            self._file.execute("pragma journal_mode = delete")

    def copy_from(self, other: PriceDatabase, settings: Iterable[Setting] | None = None) -> int:
        """Adds prices of another file, but those that are here already; returns how many came.

        Prices are ratios to the yardstick, which may have been slower or faster there: they are scaled to it.

        Args:
          settings: those to copy; None: all of the other file.
        """
        added = 0
        for setting in other.settings() if settings is None else settings:
            mine, theirs = self.setting(setting), other.setting(setting)
            unit_ms = theirs.yardstick_ms
            factor = 1.0 if unit_ms is None else mine.keep_yardstick(unit_ms) / unit_ms
            with self.transaction():
                for signature, price in theirs.items():
                    added += mine.put(signature, replace(price, ms=price.ms * factor))
            names, costs = theirs.appraisals()
            mine.put_appraisals(names, costs * [factor, 1, 1])
        return added

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection, for statements that are written together or not at all."""
        with _translated(self.path):
            self._file.execute("begin immediate")
            try:
                yield self._file
            except BaseException:
                self._file.execute("rollback")
                raise
            self._file.execute("commit")

    def _open(self) -> None:
        self._file.execute("begin")  # one view of the file, which another process may be creating
        application, version, tables = (self._file.execute(query).fetchone()[0] for query in _HEADER)
        self._file.execute("commit")
        if application == version == tables == 0:
            self._create()
        elif application != _APPLICATION:
            raise DatabaseError(f"{self.path} is a database of another program. Name another file for the prices.")
        elif version != VERSION:
            raise DatabaseError(
                f"{self.path} has version {version} of the prices' tables, and this RLFlow knows version {VERSION}. "
                f"Use the RLFlow that wrote it, or record the prices anew into another file."
            )
        self._file.execute("pragma foreign_keys = on")

    def _create(self) -> None:
        self._let_readers_in()
        self._file.execute("begin immediate")
        if self._file.execute("pragma application_id").fetchone()[0] == 0:  # no other process was faster
            for statement in _TABLES.split(";\n"):
                self._file.execute(statement)
            self._file.execute(f"pragma application_id = {_APPLICATION}")
            self._file.execute(f"pragma user_version = {VERSION}")
        self._file.execute("commit")

    def _let_readers_in(self) -> None:
        """Write-ahead logging, under which readers do not wait for writers.

        SQLite does not wait where another process is about to switch it on too.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._file.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)


_HEADER = ("pragma application_id", "pragma user_version", "select count(*) from sqlite_master")
_INHERITED: list[sqlite3.Connection] = []
"""Connections that a forked process has from its parent, never closed there: that would undo the parent's locks."""


def _close(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)


class PriceList:
    """The prices of one setting."""

    def __init__(self, database: PriceDatabase, setting: Setting, number: int) -> None:
        self.setting = setting
        self._database, self._number = database, number

    def get(self, signature: str) -> Price | None:
        query = "select ms, spread, samples from price where setting = ? and signature = ?"
        with _translated(self._database.path):
            row = self._database._file.execute(query, (self._number, signature)).fetchone()
        return None if row is None else Price(*row)

    def put(self, signature: str, price: Price) -> bool:
        """Keeps a price unless there is one already, so that processes agree; returns whether it was kept."""
        values = (self._number, signature, price.ms, price.spread, price.samples, time.time())
        with _translated(self._database.path):
            done = self._database._file.execute("insert or ignore into price values (?, ?, ?, ?, ?, ?)", values)
        return done.rowcount == 1

    def __len__(self) -> int:
        """The number of prices."""
        return self._count("price")

    @property
    def yardstick_ms(self) -> float | None:
        """What the kernel took that all others are timed beside; None before any was timed."""
        with _translated(self._database.path):
            query = "select yardstick_ms from setting where id = ?"
            found: float | None = self._database._file.execute(query, (self._number,)).fetchone()[0]
        return found

    def keep_yardstick(self, ms: float) -> float:
        """Keeps it unless there is one already; returns the one that is kept."""
        change = "update setting set yardstick_ms = coalesce(yardstick_ms, ?) where id = ?"
        with _translated(self._database.path):
            self._database._file.execute(change, (ms, self._number))
        kept = self.yardstick_ms
        assert kept is not None
        return kept

    def appraisals(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
        """What operators cost in their surroundings.

        Returns:
          [n] names of surroundings and [n, 3] ms, bytes, launches.
        """
        query = "select surroundings, ms, bytes, launches from appraisal where setting = ?"
        with _translated(self._database.path):
            rows = self._database._file.execute(query, (self._number,)).fetchall()
        names = np.frombuffer(b"".join(row[0] for row in rows), "<u8")
        return names, np.array([row[1:] for row in rows], np.float64).reshape(-1, 3)

    def put_appraisals(self, surroundings: npt.NDArray[np.uint64], costs: npt.NDArray[np.float64]) -> None:
        """Keeps what operators cost in surroundings that are new: [n] names and [n, 3] ms, bytes, launches."""
        rows = [
            (self._number, name.tobytes(), *cost)
            for name, cost in zip(surroundings.astype("<u8"), costs.tolist(), strict=True)
        ]
        with self._database.transaction() as file:
            file.executemany("insert or ignore into appraisal values (?, ?, ?, ?, ?)", rows)

    @property
    def num_appraisals(self) -> int:
        """Operators in their surroundings whose costs are known."""
        return self._count("appraisal")

    def _count(self, table: str) -> int:
        with _translated(self._database.path):
            query = f"select count(*) from {table} where setting = ?"
            count: int = self._database._file.execute(query, (self._number,)).fetchone()[0]
        return count

    @property
    def place(self) -> Path:
        """The database's file."""
        return self._database.path

    def items(self) -> Iterator[tuple[str, Price]]:
        query = "select signature, ms, spread, samples from price where setting = ? order by signature"
        with _translated(self._database.path):
            for signature, *price in self._database._file.execute(query, (self._number,)):
                yield signature, Price(*price)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into ones that say what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        advice = "Check that the file can be written and that the disk is not full, or name another file."
        if "locked" in str(error):
            advice = f"Other processes have held it for {_PATIENCE_S:.0f} s; wait for them, or name another file."
        raise DatabaseError(f"{path}: {error}. {advice}") from error
    except sqlite3.DatabaseError as error:
        advice = "It is damaged or no database of prices: restore it from a copy, or remove it and record anew."
        raise DatabaseError(f"{path}: {error}. {advice}") from error
