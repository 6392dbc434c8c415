"""Columns of table.md for what the same table shows on another device.

A table of results on the CPU is in `experiments/results/NAME`, and the same table on a GPU in
`experiments/results/NAME/cuda`. The page of the CPU has one more column for the GPU, which shows one figure of each
row there with its interval, or that it was not measured. Such a column is added to the text of table.md, so that a new
table of one device needs no new measurement on the other.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.errors import UserError
from experiments.executors import units

DEVICES = ("cuda", "tensorrt")
"""The devices that get a column; all but the first one only if they were measured."""
MACHINE = "machine.json"
"""The file beside a device's table.csv that says which machine made it."""
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Shown:
    """What a page shows of the same table on another device.

    Attributes:
      key: the columns that name a row.
      figure: the column that is shown.
      interval: the columns of its 95 % interval; empty if there are none.
      meaning: what the figure is.
    """

    key: tuple[str, ...]
    figure: str
    interval: tuple[str, ...]
    meaning: str


_RATIO = Shown(("graph",), "ratio", ("low", "high"), "`ratio` with its 95 % interval")
SHOWN: Mapping[str, Shown] = {
    "never-slower": _RATIO,
    "end-to-end": _RATIO,
    "steptime": Shown(("graph", "step"), "ms", (), "`ms`"),
    "baselines": Shown(("graph", "figure"), "ours", (), "`ours`, as a ratio to `ort-all` on that device"),
}
"""By table; other tables get no columns."""


def with_other_devices(page: str, name: str, device: str = "cpu", results: Path | None = None) -> str:
    """Returns the text of table.md with a column for each other device; columns of an earlier call are replaced.

    Args:
      page: the text of table.md; its first table of figures gets the columns.
      name: the name of the table.
      device: the device of the page; only pages of the CPU get columns.
      results: the folder of the tables; None means those that came with the source.
    Raises:
      UserError: the table of a device cannot be read, or lacks the columns that are shown.
    """
    if name not in SHOWN or device != "cpu":
        return page
    for other in DEVICES:
        page = _without(page, other)
    shown = SHOWN[name]
    for other in DEVICES:
        folder = (results or units.COMMITTED) / name / other
        if (folder / "table.csv").is_file():
            page = _with_column(page, other, shown, _figures(folder / "table.csv", shown), _meaning(folder, shown))
        elif other == DEVICES[0]:
            page = _with_column(page, other, shown, {}, f"{shown.meaning} on a GPU: nobody has measured it yet")
    return page


def _figures(file: Path, shown: Shown) -> dict[tuple[str, ...], str]:
    """Returns what to show of each row, by the row's key."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    wanted = (*shown.key, shown.figure, *shown.interval)
    if missing := [column for column in wanted if not rows or column not in rows[0]]:
        raise UserError(
            f"{file}: expected the columns {', '.join(wanted)}, but {', '.join(missing)} cannot be found. Make the "
            "table again with tests/gpu/run.sh, or remove its folder."
        )
    return {tuple(row[column] for column in shown.key): _cell(row, shown) for row in rows}


def _cell(row: Mapping[str, str], shown: Shown) -> str:
    figure, *interval = (_rounded(row[column]) for column in (shown.figure, *shown.interval))
    return f"{figure} [{', '.join(interval)}]" if interval and interval[0] != figure else figure


def _rounded(text: str) -> str:
    try:
        return f"{float(text):.3f}"
    except ValueError:  # a dash, where there is no figure
        return text


def _meaning(folder: Path, shown: Shown) -> str:
    try:
        machine = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
        where = f"{machine['processor']}, driver {machine['driver']}, {machine['runtime']}, {machine['date']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{folder / MACHINE}: expected the machine that made the table beside it, but it cannot be read "
            f"({error!r}). Collect the results again with tests/gpu/run.sh collect, or remove the folder."
        ) from error
    return f"{shown.meaning} on {where}; [all figures]({folder.name}/table.md)"


def _with_column(page: str, device: str, shown: Shown, figures: Mapping[tuple[str, ...], str], meaning: str) -> str:
    lines = page.splitlines()
    first, end = _table_of(lines)
    columns = _cells(lines[first])
    places = [columns.index(column) for column in shown.key]
    lines[first] += f" {device} |"
    lines[first + 1] += "---:|"
    for line in range(first + 2, end):
        cells = _cells(lines[line])
        lines[line] += f" {figures.get(tuple(cells[place] for place in places), NOT_MEASURED)} |"
    last = max(index for index in range(end, len(lines)) if lines[index].startswith(f"- `{columns[-1]}`: "))
    lines.insert(last + 1, f"- `{device}`: {meaning}")
    return "\n".join(lines) + "\n"


def _without(page: str, device: str) -> str:
    """Returns a page without the column of a device, if it has one; it must be the last column."""
    lines = page.splitlines()
    first, end = _table_of(lines)
    columns = _cells(lines[first])
    if device not in columns:
        return page
    place = columns.index(device)
    for line in range(first, end):
        kept = _cells(lines[line])
        del kept[place]
        lines[line] = f"|{'|'.join(kept)}|" if line == first + 1 else f"| {' | '.join(kept)} |"
    return "\n".join(line for line in lines if not line.startswith(f"- `{device}`: ")) + "\n"


def _table_of(lines: Sequence[str]) -> tuple[int, int]:
    """Returns where the first table begins, and the line after it."""
    first = next(index for index, line in enumerate(lines) if line.startswith("| "))
    end = next((index for index in range(first, len(lines)) if not lines[index].startswith("|")), len(lines))
    return first, end


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
