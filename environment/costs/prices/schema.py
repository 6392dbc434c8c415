"""The tables of a database of prices, and how those of an older version become these."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

VERSION = 3
"""Of the tables below; kept in the file's `user_version`."""

_TABLES = """
create table setting (
  id integer primary key,
  device text not null, processor text not null, runtime text not null, version text not null, threads integer not null,
  level text not null,
  yardstick_ms real check (yardstick_ms > 0),
  unique (device, processor, runtime, version, threads, level)
);
create table price (
  id integer primary key,
  setting integer not null references setting(id),
  signature text not null,
  ms real not null check (ms >= 0),
  spread real not null check (spread >= 0),
  timings integer not null check (timings > 0),
  recorded real not null,
  unique (setting, signature)
);
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
"""
"""An appraisal says which kernels an operator takes, and how many of each; what these cost is said once."""

_FROM_2 = """
alter table price rename column samples to timings;
update price set timings = 1;
"""
"""Samples of all timings had been counted instead. Version 1 is not read: its kernels were timed in another way."""

_SCRIPTS: Mapping[int, str] = {0: _TABLES, 2: _FROM_2}


READ = " and ".join(f"version {version}" for version in [*_SCRIPTS, VERSION] if version)
"""In words."""


def can_become_current(version: int) -> bool:
    """Whether `make_current` knows what to do with a version; 0 is that of an empty file."""
    return version in _SCRIPTS


def make_current(file: sqlite3.Connection, version: int) -> None:
    """Makes the present tables out of those of an older version, in the transaction that is under way."""
    for statement in _SCRIPTS[version].split(";\n"):
        file.execute(statement)
    file.execute(f"pragma user_version = {VERSION}")
