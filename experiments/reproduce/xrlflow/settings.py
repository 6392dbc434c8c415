"""Hyperparameters (X-RLflow, Table 4), from the preset `xrlflow` and from our defaults.

rlflow reproduce xrlflow-table4

Nothing is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from experiments.config.run import RunConfig, load_config
from experiments.config.tree import as_mapping
from experiments.executors.units import Record
from experiments.reproduce.table import Table
from experiments.reproduce.xrlflow.printed import SETTINGS
from experiments.runs.progress import ProgressDisplay

COLUMNS = {
    "setting": "by its name here",
    "printed": "the paper's",
    "preset": "of the preset `xrlflow`",
    "ours": "where another preset is chosen; environments are those of `best`",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds no option: this table has none of its own."""


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Reads the presets."""
    rows = rows_of(load_config("xrlflow", {}), load_config("best", {"controller": "xrlflow"}))
    return Table(
        "Hyperparameters of X-RLflow",
        COLUMNS,
        {},
        rows,
        options.command_line,
        "Printed: Table 4 of X-RLflow and its section 3, or its published code.",
        finding(rows),
    )


def rows_of(preset: RunConfig, ours: RunConfig) -> list[Record]:
    """Returns a row for each setting that the paper prints or its code has."""
    found = []
    for name, printed in SETTINGS.items():
        values = {"printed": printed, "preset": _value(preset, name), "ours": _value(ours, name)}
        found.append({"setting": name, **{key: _text(value) for key, value in values.items()}})
    return found


def finding(rows: Sequence[Record]) -> str:
    """Returns where the preset differs from the paper, in a sentence."""
    others = [f"`{row['setting']}` ({row['preset']})" for row in rows if row["preset"] != row["printed"]]
    return f"The preset has the paper's values{' but for ' * bool(others)}{', '.join(others)}."


def _value(config: RunConfig, name: str) -> Any:
    value: Any = as_mapping(config)
    for part in name.split("."):
        value = value[part]
    return value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(f"{each:g}" for each in value)
    return f"{value:g}" if isinstance(value, int | float) else "none" if value is None else str(value)
