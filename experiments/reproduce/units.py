"""Units of work that are done once: each leaves a small JSON file, and a later run reads it instead."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.storage import write_text

DIRECTORY = Path("runs/reproduce")

Record = dict[str, Any]


def once(table: str, name: str, settings: Record, work: Callable[[], Record]) -> Record:
    """What `work()` returns, from its file where a run with the same settings has finished it.

    Args:
      name: of the unit, for the eye; `settings` is all that its result depends on, but for the program itself.
    """
    path = unit_path(table, name, settings)
    if path.is_file():
        finished: Record = json.loads(path.read_text(encoding="utf-8"))
        return finished
    record = work()
    write_text(path, json.dumps(record, indent=1))
    return record


def unit_path(table: str, name: str, settings: Record) -> Path:
    """The file of a unit; what else it leaves goes beside it, under the same name."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    return DIRECTORY / table / f"{name}-{digest}.json"
