"""The SQLite file of a database of prices, its tables, and how it is shared by several processes.

Everything is written in transactions: a killed process leaves nothing half done.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

VERSION = 5
"""Version of the tables below; the file keeps it as `user_version`."""

_PRICE = """(
  id integer primary key,
  setting integer not null references setting(id),
  signature text not null,
  ms real check (ms >= 0),
  spread real check (spread >= 0),
  timings integer not null check (timings > 0 or ms is null and timings = 0),
  recorded real not null,
  unique (setting, signature)
);"""
_TIMINGS = """
create table timing (
  price integer not null references price(id),
  number integer not null check (number > 0),
  ms real not null check (ms >= 0),
  primary key (price, number)
) without rowid;
create table graph (
  id integer primary key,
  setting integer not null references setting(id),
  start text not null,
  hash text not null,
  start_ms real not null check (start_ms >= 0),
  ratio real not null check (ratio >= 0),
  spread real not null check (spread >= 0),
  timings blob not null,
  recorded real not null,
  unique (setting, start, hash)
);
"""
_TABLES = f"""
create table setting (
  id integer primary key,
  device text not null, processor text not null, runtime text not null, version text not null, threads integer not null,
  level text not null,
  yardstick_ms real check (yardstick_ms > 0),
  unique (device, processor, runtime, version, threads, level)
);
create table price {_PRICE}
create table appraisal (
  id integer primary key,
  setting integer not null references setting(id),
  version integer not null,
  surroundings blob not null,
  bytes real not null,
  unique (setting, version, surroundings)
);
create table part (
  appraisal integer not null references appraisal(id) on delete cascade,
  price integer not null references price(id),
  count integer not null check (count > 0),
  primary key (appraisal, price)
) without rowid;
{_TIMINGS}"""
"""An `appraisal` is the cost of an operator with a neighbourhood signature (`surroundings`): its `part`s say how many
of which kernels it runs. A `price` without `ms` is of a kernel that an operator runs and that was never timed.
`yardstick_ms` is the time of the reference kernel. A `timing` is one of the latest timings of a kernel, of which its
price is the mean; `number` counts all of them. A `graph` is a whole graph that was timed end to end, in turn with the
graph `start` from which rewriting made it; its `timings` are ratios of single pairs. The names are those of existing
files."""

_FROM_4 = f"""{_TIMINGS}
insert into timing select id, 1, ms from price where timings = 1;
"""
"""Version 4 kept of several timings only the mean."""
_FROM_3 = f"""
create table price_4 {_PRICE}
insert into price_4 select id, setting, signature, ms, spread, timings, recorded from price;
drop table price;
alter table price_4 rename to price;
{_FROM_4}"""
"""In version 3 every kernel had a price. SQLite changes the conditions of a table only by making it anew."""
_FROM_2 = f"""
alter table price rename column samples to timings;
update price set timings = 1;
{_FROM_3}"""
"""Version 2 counted samples instead of timings. Version 1 is not read: its kernels were timed in another way."""

_SCRIPTS: Mapping[int, str] = {0: _TABLES, 2: _FROM_2, 3: _FROM_3, 4: _FROM_4}

READ = " and ".join(f"version {version}" for version in [*_SCRIPTS, VERSION] if version)
"""The versions that can be read, in words."""


def can_become_current(version: int) -> bool:
    """Returns whether `make_current` can convert a version; 0 is the version of an empty file."""
    return version in _SCRIPTS


def make_current(file: sqlite3.Connection, version: int) -> None:
    """Converts the tables of an older version to the present ones, in the open transaction."""
    for statement in _SCRIPTS[version].split(";\n"):
        file.execute(statement)
    file.execute(f"pragma user_version = {VERSION}")


_APPLICATION = 0x524C4643  # "RLFC" in the file's header, so that another program's database is told apart
_HEADER = ("pragma application_id", "pragma user_version", "select count(*) from sqlite_master")
_PATIENCE_S = 30.0  # for other processes; they hold the file for a millisecond a price
_POLL_S = 0.02
_SIDECARS = ("-wal", "-shm", "-journal")
_INHERITED: list[sqlite3.Connection] = []
"""Connections that a forked process has inherited. It never closes them: that would undo the parent's locks."""


class DatabaseError(ValueError):
    """A file cannot be used as a database of prices; the message says why and what to do."""


class PriceFile:
    """The file with the tables of the present version; opening it converts the tables of an older version.

    Args:
      create: whether a missing file is created; if not, it is an error.
    Raises:
      DatabaseError: from every method, if the file is no database of prices, is damaged, has a version that cannot be
        read, or cannot be written.
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

    def close(self) -> None:
        self._closing()

    @contextmanager
    def statements(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for statements that are written one by one."""
        if self._process != os.getpid():  # SQLite's connections may not be carried over into a forked process
            self._connect()
        with self._translated():
            yield self._connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for statements that are written together or not at all."""
        with self.statements() as file:
            file.execute("begin immediate")
            try:
                yield file
            except BaseException:
                if file.in_transaction:  # a full disk has ended it already
                    file.execute("rollback")
                raise
            file.execute("commit")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for this process's turn to measure; of the processes that share the file, one measures at a time."""
        lock = FileLock(f"{self.path}.lock")
        try:
            lock.acquire()
        except OSError as error:
            raise DatabaseError(
                f"{self.path}.lock cannot be locked: {error.strerror or error}. By this file the processes that "
                f"measure into one database take turns: name a database in another folder."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def require_sound(self) -> None:
        """Checks the whole file.

        Raises:
          DatabaseError: a part of the file is damaged.
        """
        with self.statements() as file:
            said = file.execute("pragma quick_check(1)").fetchone()[0]
            if said != "ok":
                raise sqlite3.DatabaseError(str(said).splitlines()[-1])

    def settle(self) -> None:
        """Merges the files beside the database into it, so that it can be read where nothing can be written."""
        with self.statements() as file:
            file.execute("pragma journal_mode = delete")

    def _connect(self) -> None:
        self._process = os.getpid()
        with self._translated():
            # One connection may serve several threads, as long as they take turns: SQLite sees to that.
            self._connection = sqlite3.connect(
                self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
            )
        # Closes at the latest when the process ends, so that no file with new prices stays beside the database.
        self._closing = weakref.finalize(self, _close, self._connection, self._process)
        try:
            self._open()
        except DatabaseError:
            self.close()
            raise

    def _open(self) -> None:
        with self.statements() as file:
            file.execute("begin")  # one view of the file, which another process may be creating
            application, version, tables = (file.execute(query).fetchone()[0] for query in _HEADER)
            file.execute("commit")
        is_new = application == version == tables == 0
        if not is_new and application != _APPLICATION:
            raise DatabaseError(f"{self.path} is a database of another program. Name another file for the prices.")
        if version != VERSION and not can_become_current(version):
            raise DatabaseError(
                f"{self.path} has version {version} of the prices' tables, and this RLFlow reads {READ}. Use the one "
                f"that wrote it, or record the prices anew: into another file, or here once this one is moved away."
            )
        if is_new:
            self._let_readers_in()
        if version != VERSION:
            self._make_current(version)
        with self.statements() as file:
            file.execute("pragma foreign_keys = on")

    def _make_current(self, found: int) -> None:
        try:
            with self.transaction() as file:
                version = file.execute("pragma user_version").fetchone()[0]
                if version != VERSION:  # no other process was faster
                    make_current(file, version)
                    file.execute(f"pragma application_id = {_APPLICATION}")
        except DatabaseError as error:
            if not found:
                raise
            raise DatabaseError(
                f"{error} Its tables are of version {found}: they have to be brought to version {VERSION}, once."
            ) from error

    def _let_readers_in(self) -> None:
        """Switches on write-ahead logging, under which readers do not wait for writers.

        SQLite itself does not wait if another process is about to switch it on too.
        """
        deadline = time.monotonic() + _PATIENCE_S
        with self.statements() as file:
            while True:
                try:
                    file.execute("pragma journal_mode = wal")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_S)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns SQLite's errors into errors that say what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            advice = "Check that the file can be written and that the disk is not full, or name another file."
            if "locked" in str(error):
                advice = f"Other processes have held it for {_PATIENCE_S:.0f} s; wait for them, or name another file."
            raise DatabaseError(f"{self.path}: {error}. {advice}") from error
        except sqlite3.DatabaseError as error:
            advice = "It is damaged or no database of prices: restore it from a copy, or remove it and record anew."
            raise DatabaseError(f"{self.path}: {error}. {advice}") from error


def sidecars(path: Path) -> list[Path]:
    """Returns the files that SQLite keeps beside a database in use; a killed process leaves them there."""
    return [path.with_name(path.name + suffix) for suffix in _SIDECARS]


def _close(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)
