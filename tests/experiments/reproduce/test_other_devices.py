"""Tests of the columns for other devices: they show what was measured there, and say so where nothing was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments import reproduce
from experiments.cli import main
from experiments.executors import provenance, units
from experiments.reproduce import options
from experiments.reproduce.other_devices import MACHINE, SHOWN, with_other_devices
from experiments.reproduce.table import UNDEFINED, Experiment, Table
from tests.commands import read_table

TABLE = "never-slower"
COLUMNS = {"graph": "as it is", "ratio": "of times", "low": "lower end", "high": "upper end"}
ROWS = [
    {"graph": "one", "ratio": 0.5, "low": 0.4, "high": 0.6},
    {"graph": "two", "ratio": UNDEFINED, "low": UNDEFINED, "high": UNDEFINED},
    {"graph": "three", "ratio": 2.0, "low": 1.0, "high": 3.0},
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(units, "COMMITTED", tmp_path / "experiments/results")


def table(rows: list[dict[str, object]] = ROWS) -> Table:
    return Table("A title", COLUMNS, {"ratio": ".2f"}, rows, "rlflow reproduce a-table", "Settings | and notes.")  # type: ignore[arg-type]


def measured(device: str, rows: list[dict[str, object]], results: Path = Path("experiments/results")) -> Path:
    """Writes the table of a device into the folder of results."""
    folder = results / TABLE / device
    table(rows).write(folder)
    facts = {"processor": "a GPU", "driver": "1.2", "runtime": "a runtime", "date": "a day"}
    (folder / MACHINE).write_text(json.dumps(facts), encoding="utf-8")
    return folder


def cells(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines() if line.startswith("| ")]


def test_what_was_not_measured_is_said() -> None:
    page = with_other_devices(table().markdown(), TABLE)
    assert [row[-1] for row in cells(page)] == ["cuda", *["not measured"] * len(ROWS)]
    assert "- `cuda`: `ratio` with its 95 % interval on a GPU: nobody has measured it yet" in page


def test_each_row_shows_that_of_the_other_device() -> None:
    before = table().markdown()
    measured("cuda", [{**ROWS[2], "ratio": 0.123456, "low": 0.1, "high": 0.2}, ROWS[1]])
    page = with_other_devices(before, TABLE)
    assert [row[-1] for row in cells(page)] == ["cuda", "not measured", UNDEFINED, "0.123 [0.100, 0.200]"]
    assert "on a GPU, driver 1.2, a runtime, a day; [all figures](cuda/table.md)" in page
    assert [row[:-1] for row in cells(page)] == cells(before), "the columns of this device stay"


def test_columns_are_renewed_and_not_repeated() -> None:
    before = table().markdown()
    first = with_other_devices(before, TABLE)
    assert with_other_devices(first, TABLE) == first
    measured("cuda", ROWS)
    measured("tensorrt", ROWS)
    both = with_other_devices(first, TABLE)
    assert cells(both)[0] == [*COLUMNS, "cuda", "tensorrt"] and "not measured" not in both
    assert both == with_other_devices(before, TABLE) == with_other_devices(both, TABLE)


def test_pages_of_other_devices_and_other_tables_stay() -> None:
    page = table().markdown()
    assert with_other_devices(page, TABLE, "cuda") == page == with_other_devices(page, "rule-sets")


def test_every_shown_table_exists() -> None:
    assert set(SHOWN) <= set(reproduce.TABLES)


def made() -> Table:
    """Returns the table as its command writes it."""
    return dataclasses.replace(table(), provenance=provenance.computed(table().command))


def reproduced(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(reproduce, "load", lambda name: Experiment("", options.add_device, lambda *_: table()))
    return main(["reproduce", TABLE, *arguments])


def test_the_command_writes_and_prints_the_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced(monkeypatch) == 0
    page = Path("runs/reproduce", TABLE, "table.md").read_text(encoding="utf-8")
    assert page == capsys.readouterr().out == with_other_devices(made().markdown(), TABLE)
    assert list(read_table(TABLE)[0]) == list(COLUMNS), "table.csv has what was measured here"


def test_another_device_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "require_working", lambda device: None)
    assert reproduced(monkeypatch, "--device", "cuda") == 0
    assert Path("runs/reproduce", TABLE, "cuda/table.md").read_text(encoding="utf-8") == made().markdown()
    assert not Path("runs/reproduce", TABLE, "table.md").exists()


@pytest.mark.parametrize("damage", ["no columns", "no rows", "no machine", "another machine"])
def test_results_that_cannot_be_read_are_named(
    damage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = measured("cuda", [] if damage == "no rows" else ROWS)
    if damage == "no columns":
        (folder / "table.csv").write_text("graph,time\none,2\n", encoding="utf-8")
    elif damage == "no machine":
        (folder / MACHINE).unlink()
    elif damage == "another machine":
        (folder / MACHINE).write_text("[]", encoding="utf-8")
    assert reproduced(monkeypatch) == 2
    message = capsys.readouterr().err
    named = MACHINE if "machine" in damage else "table.csv"
    assert str(units.COMMITTED / TABLE / "cuda" / named) in message and "tests/gpu/run.sh" in message
