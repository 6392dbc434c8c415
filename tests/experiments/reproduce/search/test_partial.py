"""`rlflow reproduce partial`: both batches of each graph, with and without the family, and by the clock if asked."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.reproduce.search.partial import PRINTED, finding


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_quick_look_has_both_batches_and_is_not_searched_again(elsewhere: Path) -> None:
    command = ["reproduce", "partial", "csrnet-tiny", "--scale", "smoke", "-o", "made"]
    assert main(command) == 0
    made = rows(elsewhere / "made")
    assert [(row["graph"], row["batch"]) for row in made] == [("csrnet-tiny", "1"), ("csrnet-tiny", "2")]
    assert all(float(row["with"]) >= -1e-9 and float(row["without"]) >= -1e-9 for row in made)
    units = sorted(Path("runs/reproduce/partial/units").glob("*.json"))
    times = [unit.stat().st_mtime_ns for unit in units]
    assert len(units) == 2 and main([*command, "--force"]) == 0
    assert [unit.stat().st_mtime_ns for unit in units] == times


def test_the_clock_is_asked_only_if_the_user_says_so(elsewhere: Path) -> None:
    command = ["reproduce", "partial", "csrnet-tiny", "--scale", "smoke", "-o", "made", "--clock"]
    assert main(command) == 0
    for row in rows(elsewhere / "made"):
        assert float(row["clock_input_ms"]) > 0
        assert all("[" in row[column] for column in ("ratio_with", "ratio_without", "clock_control"))
        assert row["ratio_with"] == row["ratio_without"]  # one graph that both have found, and one measurement


def test_a_graph_without_a_batch_is_one_clear_error(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "partial", "vit-base-tiny", "--scale", "smoke"]) == 2
    assert "vit-base-tiny has no batch that could be chosen" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_the_finding_names_graphs_that_gain() -> None:
    found = finding([{"graph": "a", "batch": 1, "gain": 0.99}, {"graph": "b", "batch": 16, "gain": 5.04}])
    assert found == "The family makes the best graph cheaper by 1 % or more in 1 of 2 cases: b at batch 16 (5.0 %)."
    assert finding([]) == "The family makes the best graph cheaper by 1 % or more in 0 of 0 cases."


def test_printed_times_are_those_of_the_paper() -> None:
    assert PRINTED == {("resnet18", 1): (1.96, 2.55), ("resnext50", 1): (10.67, 6.65)}
