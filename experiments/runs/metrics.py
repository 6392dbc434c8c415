"""`metrics.jsonl`: one line a step of a stage, appended as it happens and cut back when a stage is resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taso_ext.files import write_text


class MetricsLog:
    """Append-only log of (stage, step, figures). It holds nothing that depends on the clock, so that two runs with one
    seed leave identical files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, stage: str, step: int, figures: Mapping[str, Any]) -> None:
        """Adds one line; NumPy and TensorFlow scalars become plain numbers."""
        record = {"stage": stage, "step": int(step), **{key: _plain(value) for key, value in figures.items()}}
        with self._path.open("a") as file:  # one write of a short line: a killed run leaves at most one broken line
            file.write(json.dumps(record) + "\n")

    def rewind(self, stage: str, step: int) -> None:
        """Drops the stage's lines from `step` on: a resumed stage repeats everything after its last checkpoint."""
        kept = [record for record in self.read() if record["stage"] != stage or record["step"] < step]
        write_text(self._path, "".join(json.dumps(record) + "\n" for record in kept))

    def read(self, stage: str | None = None) -> list[dict[str, Any]]:
        """The lines of one stage, or all, in order; a line that a kill cut off is left out."""
        if not self._path.is_file():
            return []
        records = []
        for line in self._path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return [record for record in records if stage is None or record["stage"] == stage]


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int) or value is None:
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        # 9 significant digits tell every float32 apart.
        return float(f"{float(array):.9g}") if array.ndim == 0 else [_plain(item) for item in array]
    return array.tolist()
