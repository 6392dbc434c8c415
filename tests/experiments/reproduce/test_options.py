"""What a table cannot be made with is refused in one paragraph before any unit of work; ranges of seeds, and graphs."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from experiments import reproduce
from experiments.cli import build_parser, main
from experiments.reproduce.options import chosen_seeds, settle
from experiments.reproduce.table import Experiment, Table
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import numbers_of, seeds_of
from tests.commands import failure

TABLES = ("table1", "table2", "table3", "accuracy", "controllers", "mechanisms", "transfer", "peers", "rule-sets")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """Returns the options of the tables that would have been made."""
    found: list[argparse.Namespace] = []
    load = reproduce.load

    def make(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
        found.append(options)
        return Table("t", {"a": "a"}, {}, [], "")

    def stubbed(name: str) -> Experiment:
        return dataclasses.replace(load(name), reproduce=make)

    monkeypatch.setattr(reproduce, "load", stubbed)
    return found


def test_a_single_number_of_seeds_is_said_to_be_one_seed(
    made: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "controllers", "--seeds", "5"]) == 0
    assert "--seeds 5 is one seed, that of this number. 5 seeds are 0..4." in capsys.readouterr().err
    assert main(["reproduce", "controllers", "--seeds", "0,5"]) == 0
    assert "one seed" not in capsys.readouterr().err and len(made) == 2


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["reproduce", *arguments])


@pytest.mark.parametrize("name", reproduce.TABLES)
def test_a_bad_device_is_refused_before_any_unit(
    name: str, made: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    if hasattr(parsed(name), "device"):
        message = failure(capsys, "reproduce", name, "--device", "tpu")
        assert message.startswith("rlflow: device 'tpu' is not available") and "--device" in message
    assert made == []


@pytest.mark.parametrize("name", reproduce.TABLES)
def test_the_defaults_of_a_table_are_accepted(name: str) -> None:
    settle(parsed(name))


@pytest.mark.parametrize(
    ("table", "option"),
    [("table3", "--seeds"), ("table3", "--temperatures"), ("accuracy", "--seeds"), ("peers", "--limits")],
)
def test_an_empty_value_is_not_taken_for_none(
    table: str, option: str, made: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    for empty in ("", " "):
        message = failure(capsys, "reproduce", table, option, empty)
        assert message == f"rlflow: {option} expects a value, got an empty one. Leave the option out for its default."
    assert made == []


@pytest.mark.parametrize(
    ("text", "numbers"), [("3", [3]), ("0,2", [0, 2]), ("0..4", [0, 1, 2, 3, 4]), ("0..2, 7", [0, 1, 2, 7])]
)
def test_seeds_are_lists_and_ranges(text: str, numbers: list[int]) -> None:
    assert numbers_of("--seeds", text, least=0) == numbers
    assert list(seeds_of("bert-base", text)) == numbers
    assert chosen_seeds(argparse.Namespace(seeds=text, scale="smoke"), "0") == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "0,", "4..0", "0..", "..4", "0..1:0.5", "-1", "-1..1", "1_0", "0..99999999", "x"]
)
def test_what_is_no_list_of_seeds_is_refused(
    text: str, made: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"--seeds expects numbers of at least 0 .* for example 0\.\.2, got "):
        numbers_of("--seeds", text, least=0)


def test_help_says_that_a_number_is_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("table3", "accuracy", "mechanisms"):
        with pytest.raises(SystemExit):
            main(["reproduce", name, "--help"])
        assert "a single number is one seed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", TABLES)
def test_graphs_are_named_by_position_or_by_an_option(name: str, made: list[argparse.Namespace]) -> None:
    sized = "bert-base:layers=2,heads=2"
    assert main(["reproduce", name, "resnet18", "--graphs", f"{sized}, resnet18,resnet50:training=adam"]) == 0
    assert made[-1].graphs == ["resnet18", sized, "resnet50:training=adam"]
    assert main(["reproduce", name, "resnet18"]) == 0 and made[-1].graphs == ["resnet18"]
    assert main(["reproduce", name]) == 0 and made[-1].graphs == []


def test_prices_that_are_missing_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("reproduce", "table3", "--scale", "smoke", "--worlds", "best, noisy prices", "--prices")
    assert "got 'nofile.sqlite', but that is no file." in failure(capsys, *command, "nofile.sqlite")
    Path("prices.db").write_bytes(b"")
    assert "got 'prices.db', but its name does not end in .sqlite." in failure(capsys, *command, "prices.db")
