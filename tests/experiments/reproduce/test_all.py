"""`rlflow reproduce all`: every table is made, whatever becomes of the others; names and defaults of tables."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from environment import zoo
from experiments import reproduce
from experiments.cli import main
from experiments.commands import reproduce as reproduce_command
from experiments.commands.parser import build_parser
from experiments.reproduce.options import chosen_graphs, chosen_seeds
from tests.commands import failure


def keep_tables(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leaves some tables alone, in this order."""
    monkeypatch.setattr("experiments.reproduce.TABLES", {name: reproduce.TABLES[name] for name in names})


def test_one_table_that_fails_does_not_keep_the_others_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_tables(monkeypatch, "baselines", "table1")
    Path("made").mkdir()
    Path("made/baselines").write_text("no folder")
    assert main(["reproduce", "all", "--scale", "smoke", "-o", "made"]) == 2
    printed = capsys.readouterr()
    assert "1 of 2 tables are made: all but baselines." in printed.out and "rlflow:" in printed.err
    assert Path("made/table1/table.csv").is_file()
    Path("made/baselines").unlink()
    keep_tables(monkeypatch, "table1")
    assert main(["reproduce", "all", "--scale", "smoke", "-o", "made"]) == 0, "the same command goes on"
    Path("made/table1/README.md").write_text("Of somebody else.")
    assert main(["reproduce", "all", "--scale", "smoke", "-o", "made"]) == 2, "what is there is not overwritten"
    capsys.readouterr()
    assert main(["reproduce", "all", "--scale", "smoke", "-o", "made", "--force"]) == 0
    printed = capsys.readouterr()
    assert "1 of 1 tables are made." in printed.out and "table1 took " in printed.out


@pytest.mark.parametrize("name", reproduce.TABLES)
def test_every_table_says_what_it_is_how_it_is_made_and_how_long_it_takes(name: str) -> None:
    text = reproduce.load(name).description
    assert f"rlflow reproduce {name}" in text and len(text.splitlines()) > 3
    assert re.search(r"\b(takes?|took)\b[^.]*\b(second|minute|hour|day)s?\b|Nothing is run", text)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "headline",
            "fig-runtime",
            "fig-search",
            "fig-modelfree",
            "fig-wmloss",
            "fig-dreamreward",
            "fig-pairwise",
            "steptime",
        ),
        *("accuracy", "discrepancy", "discrepancy-rules", "baselines", "table1", "table2", "table3", "controllers"),
    ],
)
def test_help_says_how_long_a_table_takes(name: str) -> None:
    assert re.search(r"\btakes?\b[^.]*\b(minute|hour|day)s?\b", reproduce.load(name).description)


def test_a_quick_look_takes_tiny_graphs_and_two_seeds() -> None:
    def options(scale: str, *graphs: str, seeds: str | None = None) -> argparse.Namespace:
        return argparse.Namespace(scale=scale, graphs=list(graphs), seeds=seeds)

    assert chosen_graphs(options("smoke")) == [zoo.tiny(name) for name in zoo.published_names()]
    assert chosen_graphs(options("smoke"), ["bert-base", "minilm-l6"]) == ["bert-base-tiny"]
    assert chosen_graphs(options("smoke", "resnet18")) == ["resnet18"]
    assert chosen_graphs(options("full"), ["bert-base"]) == ["bert-base"]
    assert chosen_seeds(options("smoke"), "0,1,2,3") == [0, 1]
    assert chosen_seeds(options("smoke", seeds="3,5,4"), "0") == [3, 4, 5]
    assert chosen_seeds(options("full"), "2,1,1") == [1, 2]


def test_a_table_that_does_not_exist_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "reproduce", "table33")
    assert (
        message == "rlflow reproduce: no TABLE is called 'table33'. Did you mean 'table3'? See rlflow reproduce --help."
    )
    assert failure(capsys, "reproduce", "zzzz").endswith("no TABLE is called 'zzzz'. See rlflow reproduce --help.")
    assert "no COMMAND is called 'optimse'. Did you mean 'optimise'?" in failure(capsys, "optimse")


def test_an_unknown_option_is_answered_with_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "reproduce", "table1", "--device", "cuda")
    assert message == "rlflow reproduce table1: no option is '--device' here. See rlflow reproduce table1 --help."


def test_all_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    message = failure(capsys, "reproduce", "all", "--graphs", "bert-base")
    assert "no option is '--graphs bert-base' here. all takes --scale, --seeds, --device" in message
    Path("file").write_text("mine")
    assert failure(capsys, "reproduce", "all", "--scale", "smoke", "-o", "file").startswith("rlflow: file is a file")


def test_all_passes_options_on_to_the_tables_that_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_tables(monkeypatch, "table1", "fig-search")
    everything = ["reproduce", "all", "--scale", "smoke", "--seeds", "3", "-o", "made"]
    assert main(everything) == 0 and main(everything) == 0, "the same command goes on"
    assert "--seeds" not in Path("made/table1/README.md").read_text()
    page = Path("made/fig-search/README.md").read_text()
    assert "`rlflow reproduce fig-search --scale smoke --seeds 3 -o made/fig-search" in page


def test_all_keeps_the_tables_of_a_device_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keep_tables(monkeypatch, "table1", "baselines")
    monkeypatch.setattr("experiments.reproduce.options.require_working", lambda device: None)
    made: list[tuple[str, str | None, str]] = []

    def run(table: argparse.Namespace) -> int:
        made.append((table.table, getattr(table, "device", None), str(table.output)))
        return 0

    options = build_parser().parse_args(["reproduce", "all", "--device", "cuda", "--executor", "local", "-o", "made"])
    monkeypatch.setattr(reproduce_command, "run", run)
    assert reproduce_command._everything(options) == 0
    assert made == [("table1", None, "made/table1"), ("baselines", "cuda", "made/baselines/cuda")]


def test_all_refuses_at_once_what_every_table_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    for options, says in {
        ("--address", "127.0.0.1:1"): "--address 127.0.0.1:1 is for --executor ray",
        ("--seeds", "3..1"): "--seeds",
        ("--device", ""): "--device expects a value",
        ("--device", "quantum"): "quantum",
        ("--seed", "1"): "no option is '--seed 1' here",
        ("--processes", "2"): "one process at a time",
    }.items():
        message = failure(capsys, "reproduce", "all", "--scale", "smoke", *options)
        assert says in message and len(message.splitlines()) == 1


def test_what_is_empty_is_named_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--graphs expects a value" in failure(capsys, "reproduce", "table1", "--graphs", "")
    assert "-o/--output: expected the name of a folder" in failure(capsys, "reproduce", "table1", "-o", "")
