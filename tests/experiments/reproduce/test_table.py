"""Tests of `rlflow reproduce`: a table can be made again without repeating its units of work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments import reproduce
from experiments.cli import main
from experiments.reproduce.search import rule_sets
from experiments.reproduce.table import ABOUT, WHOLE, Table, interval_of_seeds
from taso_ext import RuleSet
from tests.commands import read_table


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_table_has_its_module() -> None:
    for name in reproduce.TABLES:
        assert callable(reproduce.load(name).reproduce)


def test_the_shipped_rules_are_compared_with_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = RuleSet.default()
    baseline = tmp_path / "few.rules"
    baseline.write_text("\n".join(shipped.text(index) for index in range(5)), encoding="utf-8")
    command = ["reproduce", "rule-sets", "--scale", "smoke", "--baseline", str(baseline), "bert-base-tiny"]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert table.startswith("# What the shipped rules find") and str(len(shipped)) in table
    (row,) = read_table("rule-sets")
    assert int(row["rules"]) * int(row["matches"]) == int(row["substitutions"])
    assert float(row["best"]) == max(float(row["improvement"]), float(row["continued"]))
    assert float(row["continued"]) >= float(row["baseline"])
    monkeypatch.setattr(rule_sets, "_search", lambda *_: pytest.fail("searched again"))
    assert main(command) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rule-sets", "bert-tiny"], "bert-base-tiny"),
        (["end-to-end", "bert-tiny"], "bert-base-tiny"),
        (["end-to-end", "--processes", "2", "bert-base-tiny"], "measures times"),
        (["discrepancy", "--processes", "2", "bert-base-tiny"], "measures times"),
        (["end-to-end", "--threads", "0", "bert-base-tiny"], "--threads must be at least 1"),
        (["rule-sets", "--processes", "0", "bert-base-tiny"], "--processes must be at least 1"),
        (["rule-sets", "--baseline", "nosuch.rules", "bert-base-tiny"], "nosuch.rules"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message


def test_tables_of_the_user_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    assert main(["reproduce", "rule-sets", "-o", str(tmp_path), "bert-base-tiny"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_climb_is_measured_anew_against_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    """The climb need not find anything, because a busy machine hides what a rewrite gains."""
    assert main(["reproduce", "end-to-end", "--scale", "smoke", "squeezenet1.1-tiny"]) == 0
    (row,) = read_table("end-to-end")
    assert float(row["low"]) <= float(row["ratio"]) <= float(row["high"])
    assert int(row["tried"]) >= 3
    assert capsys.readouterr().out.startswith("# What rewriting gains on cpu")


def test_what_a_person_has_written_stays(tmp_path: Path) -> None:
    made = Table(
        "A title", {"graph": "as it is"}, {}, [{"graph": "one"}], "rlflow reproduce a-table", "Notes.", "It says."
    )
    made.write(tmp_path)
    assert "It says.\n\n## Settings" in (tmp_path / "README.md").read_text(encoding="utf-8")
    (tmp_path / ABOUT).write_text("\nBy hand.\n\n", encoding="utf-8")
    made.write(tmp_path)
    assert "It says.\n\nBy hand.\n\n## Settings" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / ABOUT).read_text(encoding="utf-8") == "\nBy hand.\n\n"


def test_two_processes_make_the_table_of_one(tmp_path: Path) -> None:
    command = ["reproduce", "rule-sets", "--scale", "smoke", "squeezenet1.1-tiny", "bert-base-tiny"]
    assert main([*command, "--processes", "2"]) == 0
    found = read_table("rule-sets")
    assert [row["graph"] for row in found] == command[-2:]
    shutil.rmtree("runs")
    assert main(command) == 0
    assert read_table("rule-sets") == found


def test_no_interval_of_savings_reaches_beyond_everything() -> None:
    mean, low, high = map(float, interval_of_seeds([99.0, 90.0], largest=WHOLE))
    assert low < mean == 94.5 and high == WHOLE
    assert float(interval_of_seeds([99.0, 90.0])[2]) > WHOLE
