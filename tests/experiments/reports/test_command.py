"""`rlflow report` refuses what it cannot show in one sentence; without its extra, a run ends as it does with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.reports import command
from experiments.reports.page import extra
from tests.commands import failure

OPTIONS = ("--controller", "greedy", "--costs", "roofline:rtx2070", "--set", "measure.pairs=2")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "PARTS", ("a_module_that_nobody_has",))


def test_what_is_no_run_and_no_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    for target in ("nothing", "folder"):
        assert f"{target} is no run directory: config.json is missing" in failure(capsys, "report", target)


def test_a_run_that_is_kept_without_its_checkpoints_has_its_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimise", "squeezenet1.1-tiny", "-o", "out.onnx", "--run-dir", "run", *OPTIONS]) == 0
    shutil.rmtree("run/checkpoints")
    Path("run/DONE").unlink()
    for about in ("report", "validate"):
        message = failure(capsys, about, "run")
        assert "run keeps the result of a run without its checkpoints" in message and "Read run/report.md" in message


def test_options_of_runs_are_refused_for_tables(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "report", "results", "--model", "bert-base")
    assert "--model and --reward belong to a run, but results is a folder of tables" in message


def test_an_existing_page_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("results.html").write_text("mine")
    assert "results.html exists. Use --force" in failure(capsys, "report", "results")
    assert "results.html exists. Use --force" in failure(capsys, "report", "nothing", "-o", "results.html")


def test_only_an_html_page_is_written_so_that_no_record_of_a_run_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    Path("result.json").write_text("mine")
    message = failure(capsys, "report", "results", "-o", "result.json", "--force")
    assert "-o expects the name of an HTML page" in message and "'result.json'" in message
    assert Path("result.json").read_text() == "mine"


@pytest.mark.usefixtures("without_extra")
def test_without_the_extra_a_run_ends_with_a_sentence_and_its_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimise", "squeezenet1.1-tiny", "-o", "out.onnx", "--run-dir", "run", *OPTIONS]) == 0
    assert capsys.readouterr().err.count(extra.MISSING) == 1
    assert Path("run/report.md").is_file() and not Path("run/report.html").exists()
    assert Path("run/DONE").is_file() and Path("out.onnx").is_file()
    assert "extra `report` is not installed" in failure(capsys, "report", "run")
    assert "extra `report` is not installed" in failure(capsys, "report", "results")
    Path("run/DONE").unlink()
    assert "not finished, so that there is nothing to report" in failure(capsys, "report", "run")


def test_the_word_results_stands_for_the_kept_tables_unless_a_folder_has_this_name() -> None:
    assert (command.KEPT / "never-slower/table.csv").is_file()
    assert command._names_tables("results")
    Path("results").mkdir()
    assert not command._names_tables("results"), "an empty folder of this name is meant, and has no tables"
