"""Units of work that are done once: each leaves a small JSON file, and a later run reads it instead.

Finished units are in `runs/reproduce/TABLE/units`. Results that do not depend on the machine, apart from the time and
memory that they took, can also come with the source:

    mkdir -p experiments/results/TABLE/units && cp runs/reproduce/TABLE/units/*.json experiments/results/TABLE/units/

A run in a fresh clone then reads them. If a table measures times, results of another machine cannot stand in for its
own: units of such tables come with the source only for people to read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from experiments.executors import provenance
from experiments.runs.directory import digest
from experiments.runs.signals import whole
from taso_ext.files import write_text

DIRECTORY = Path("runs/reproduce")
COMMITTED = Path(__file__).resolve().parents[1] / "results"
"""The results that came with the source, wherever a command is given."""
UNITS = "units"
"""The folder of the units within that of their table."""
DIGITS = 6

Record = dict[str, Any]

Files = list[tuple[Path, str]]
"""Paths and contents of files."""

_reading_only: ContextVar[bool] = ContextVar("reading_only", default=False)
_collected: ContextVar[Files | None] = ContextVar("collected", default=None)


def as_seen_from_here(path: Path) -> Path:
    """Returns a path within the current folder as a relative one, so that clones name their files alike."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class UnfinishedError(Exception):
    """A unit is not finished, but only finished units may be read."""


@contextlib.contextmanager
def reading_only() -> Iterator[None]:
    """Makes `once` raise UnfinishedError inside the block instead of doing a unit."""
    token = _reading_only.set(True)
    try:
        yield
    finally:
        _reading_only.reset(token)


@contextlib.contextmanager
def collecting() -> Iterator[Files]:
    """Yields a list to which `keep` adds every file that it writes inside the block, for another machine to write."""
    files: Files = []
    token = _collected.set(files)
    try:
        yield files
    finally:
        _collected.reset(token)


def keep(path: Path, text: str) -> None:
    """Writes the file of a finished unit, whole or not at all."""
    write_text(path, text)
    files = _collected.get()
    if files is not None:
        files.append((path, text))


def once(
    table: str,
    name: str,
    settings: Record,
    work: Callable[[], Record],
    *,
    anywhere: bool = False,
    agree: Callable[[Record, Record], bool] | None = None,
) -> Record:
    """Returns the record of `work()`, from its file if a run with the same settings has finished the unit.

    A new record also has its provenance, under `provenance.KEY`.

    Args:
      table: name of the table.
      name: name of the unit, for people.
      settings: everything that the result depends on, except the program itself.
      work: does the unit.
      anywhere: whether the result is the same on every machine, so that a file that came with the source is read too.
        Such files are small: their numbers have `DIGITS` significant digits.
      agree: called with the settings of a finished unit of this name, which its record has under "settings", and these
        settings; returns whether its result is also that of these settings, and then the newest of them is taken. None:
        only equal settings are found.
    Raises:
      UnfinishedError: the unit is not finished, inside `reading_only`.
    """
    path = unit_path(table, name, settings)
    folders = [path.parent, COMMITTED / table / UNITS] if anywhere else [path.parent]
    for file in [folder / path.name for folder in folders]:
        if file.is_file():
            return _read(file)
    if agree is not None:
        for record in _of_this_name(folders, name):
            if "settings" in record and agree(record["settings"], settings):
                return record
    if _reading_only.get():
        raise UnfinishedError(f"{table}: {name} is not finished.")
    with whole():
        found = work()
    record = {**(_rounded(found) if anywhere else found), provenance.KEY: provenance.made_here(settings)}
    keep(path, json.dumps(record, indent=None if anywhere else 1))
    return record


def _of_this_name(folders: Sequence[Path], name: str) -> list[Record]:
    """Returns the finished units of a name, the newest ones first: older ones may be of an older program."""
    files = [file for folder in folders for file in sorted(folder.glob(f"{name}-*.json"))]
    records = [_read(file) for file in files if file.stem.rpartition("-")[0] == name]
    return sorted(records, key=lambda record: record.get(provenance.KEY, {}).get("date", ""), reverse=True)


def _read(file: Path) -> Record:
    record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def unit_path(table: str, name: str, settings: Record) -> Path:
    """Returns the path of a unit's file; other files of the unit lie beside it and have the same stem."""
    return DIRECTORY / table / UNITS / f"{name}-{digest(settings)}.json"


def _rounded(value: Any) -> Any:
    """Returns the value with all floats in it, at any depth, rounded to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
