"""Units of work that are done once: each leaves a small JSON file, and a later run reads it instead.

Finished units are in `runs/reproduce/TABLE/units`. Results that do not depend on the machine, but for the time and
memory that they took, can also come with the source:

    mkdir -p experiments/results/TABLE/units && cp runs/reproduce/TABLE/units/*.json experiments/results/TABLE/units/

and a run in a fresh clone does not do them again. Where times are measured, nobody else's result will do: units of such
tables come with the source only to be looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from taso_ext.files import write_text

DIRECTORY = Path("runs/reproduce")
COMMITTED = Path("experiments/results")
UNITS = "units"
"""The folder of the units, in that of their table."""
DIGITS = 6

Record = dict[str, Any]

_reading_only: ContextVar[bool] = ContextVar("reading_only", default=False)


class UnfinishedError(Exception):
    """A unit that nobody has finished, where only finished ones are read."""


@contextlib.contextmanager
def reading_only() -> Iterator[None]:
    """Inside the block `once` raises an UnfinishedError instead of doing a unit."""
    token = _reading_only.set(True)
    try:
        yield
    finally:
        _reading_only.reset(token)


def once(
    table: str,
    name: str,
    settings: Record,
    work: Callable[[], Record],
    *,
    anywhere: bool = False,
    agree: Callable[[Record, Record], bool] | None = None,
) -> Record:
    """Returns what `work()` returns, from its file where a run with the same settings has finished it.

    Args:
      name: of the unit, for the eye; `settings` is all that its result depends on, but for the program itself.
      anywhere: whether the result is the same on every machine, so that one that came with the source will do as well.
        Such files are small, and their numbers have `DIGITS` digits.
      agree: whether a unit that an older program finished with some settings, which its record has at "settings", has
        the result of these settings; without it only units of equal settings are found.
    Raises:
      UnfinishedError: nobody has finished it, inside `reading_only`.
    """
    path = unit_path(table, name, settings)
    folders = [path.parent, COMMITTED / table / UNITS] if anywhere else [path.parent]
    for file in [folder / path.name for folder in folders]:
        if file.is_file():
            return _read(file)
    if agree is not None:
        for record in _of_this_name(folders, name):
            if agree(record["settings"], settings):
                return record
    if _reading_only.get():
        raise UnfinishedError(f"{table}: {name} is not finished.")
    record = _rounded(work()) if anywhere else work()
    write_text(path, json.dumps(record, indent=None if anywhere else 1))
    return record


def _of_this_name(folders: Sequence[Path], name: str) -> Iterator[Record]:
    files = [file for folder in folders for file in sorted(folder.glob(f"{name}-*.json"))]
    yield from (_read(file) for file in files if file.stem.rpartition("-")[0] == name)


def _read(file: Path) -> Record:
    record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def unit_path(table: str, name: str, settings: Record) -> Path:
    """The file of a unit; what else it leaves goes beside it, under the same name."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return DIRECTORY / table / UNITS / f"{name}-{digest}.json"


def _rounded(value: Any) -> Any:
    """The same with numbers of `DIGITS` digits, however deep they are."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
