"""Renames finished units of studies after settings were added or removed, so that tables still find them.

    python -m experiments.studies.rename_units experiments/results/accuracy/units --without world_model.mdn_rnn.inertia

A unit is named by all settings that its result depends on, and its file holds them. Where a setting was added, its
default must be what the program did before; where one was removed, `--without` names it. Fingerprints stay what they
are: a unit of other rules, features or figures is out of date, and is not found any more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.config.run import RunConfig
from experiments.config.tree import replaced
from experiments.executors.units import Record
from experiments.runs.directory import digest
from experiments.studies.setting import OF_THE_MODEL, OF_THE_POLICY, sections_of
from taso_ext.files import write_text


def main(arguments: Sequence[str] | None = None) -> None:
    """Renames the units of a folder, and prints what became of them.

    Raises:
      UserError: a unit has a setting that does not exist any more and that `--without` does not name.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", metavar="KEY", action="append", default=[], help="a removed setting (repeatable)")
    options = parser.parse_args(arguments)
    units = sorted(options.folder.glob("*.json"))
    renamed = sum(rename_unit(path, options.without) for path in units)
    print(f"{len(units)} units, {renamed} of them renamed.")


def rename_unit(path: Path, without: Sequence[str] = ()) -> bool:
    """Renames one unit by its settings as this program has them; returns whether its name has changed."""
    record = json.loads(path.read_text(encoding="utf-8"))
    settings = current_settings(record["settings"], without, str(path))
    name = path.stem.rpartition("-")[0]
    target = path.with_name(f"{name}-{digest(settings)}.json")
    if target == path:
        return False
    write_text(target, json.dumps(record | {"settings": settings}))
    path.unlink()
    return True


def current_settings(stored: Record, without: Sequence[str], source: str) -> Record:
    """Returns the stored settings with what was removed left out and what was added at its default."""
    names = tuple(name for name in (*OF_THE_MODEL, *OF_THE_POLICY) if name in stored)
    kept = {name: _pruned(stored[name], without, f"{name}.") for name in names}
    return stored | sections_of(replaced(RunConfig(), kept, source), names)


def _pruned(section: Mapping[str, Any], without: Sequence[str], prefix: str) -> dict[str, Any]:
    return {
        key: _pruned(value, without, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in section.items()
        if f"{prefix}{key}" not in without
    }


if __name__ == "__main__":
    main()
