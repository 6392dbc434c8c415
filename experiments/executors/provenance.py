"""Where, when and with which settings the units of a table were made; `once` keeps it in each record, under `made`."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from experiments.runs.directory import digest
from taso_ext import RuleSet

KEY = "made"

_used: ContextVar[list[dict[str, Any]] | None] = ContextVar("used", default=None)


def made_here(settings: dict[str, Any]) -> dict[str, str]:
    """Returns the provenance of a unit that ends now: the hash of its settings, the date and the processor."""
    from environment.costs.prices.settings import processor  # imports ONNX Runtime

    return {"settings": digest(settings), "date": datetime.date.today().isoformat(), "processor": processor("cpu")}


@contextlib.contextmanager
def using() -> Iterator[list[dict[str, Any]]]:
    """Yields a list to which `note` adds the records that are used inside the block."""
    records: list[dict[str, Any]] = []
    token = _used.set(records)
    try:
        yield records
    finally:
        _used.reset(token)


def note(records: Sequence[dict[str, Any]]) -> None:
    """Notes that a table uses these records."""
    used = _used.get()
    if used is not None:
        used.extend(records)


def computed(command: str) -> str:
    """Returns the same sentence for a table that a command has computed at once, without units that are kept."""
    made = made_here({"command": command, "rules": RuleSet.default().fingerprint})
    return f"Settings {made['settings']}; computed at once on {made['date']} on {made['processor']}."


def said_of(records: Sequence[dict[str, Any]]) -> str:
    """Returns in a sentence or two where, when and with which settings records were made; empty if there are none."""
    made = [record[KEY] for record in records if KEY in record]
    if not made:
        units = "unit was" if len(records) == 1 else f"{len(records)} units were"
        return f"With which hash of settings, when and where the {units} made is not known." if records else ""
    settings = digest({"settings": sorted({each["settings"] for each in made})})
    dates, processors = ({each[key] for each in made} for key in ("date", "processor"))
    when = min(dates) if len(dates) == 1 else f"{min(dates)} to {max(dates)}"
    older = len(records) - len(made)
    of_older = f"{older} older {'unit was' if older == 1 else 'units were'}"
    rest = f" When and where {of_older} made is not known." if older else ""
    units = f"{len(made)} {'unit' if len(made) == 1 else 'units'}"
    return f"Settings {settings}; {units} of {when} on {'; '.join(sorted(processors))}.{rest}"
