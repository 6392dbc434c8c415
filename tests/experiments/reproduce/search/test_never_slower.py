"""Tests of `rlflow reproduce never-slower`, whose ratios are measured after everything was decided."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from environment import zoo
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, VariantTiming
from environment.statistics.intervals import Estimate
from experiments.cli import main
from experiments.reproduce.search import never_slower
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model
from tests.commands import read_table

GRAPH = "squeezenet1.1-tiny"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def optimise_to(monkeypatch: pytest.MonkeyPatch, measured: object) -> None:
    """Makes every run write its input model as its result and report `measured`."""

    def optimised(request: Request, progress: ProgressDisplay) -> tuple[Any, Path]:
        write_model(CheckedModel.from_proto(zoo.build(request.model)), request.output)
        rules = {"a rule": 2} if measured else {}
        found = SimpleNamespace(improvements={"search": 3.0}, measured=measured, rules_applied=rules)
        found.stage_seconds, found.selection = {"load": 60.0}, ""
        return found, request.output

    monkeypatch.setattr(never_slower, "optimise", optimised)


def measure_as(monkeypatch: pytest.MonkeyPatch, ratio: Estimate) -> list[Effort]:
    """Makes the last measurement find `ratio`; returns the list of the efforts that it is made with."""
    efforts: list[Effort] = []

    def measure(reference: Variant, candidates: list[Variant], effort: Effort) -> Timing:
        efforts.append(effort)
        itself = VariantTiming("model", "fake", Estimate(5, 4, 6), Estimate(1, 0.99, 1.01), 0.0)
        result = VariantTiming("result", "fake", Estimate(5, 4, 6), ratio, 0.0)
        return Timing(itself, (result,), itself, 3, 1, "pairs", 0.01, 0.01, "clock", 1.0)

    monkeypatch.setattr(never_slower, "measure", measure)
    return efforts


def reproduce(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str]:
    assert main(["reproduce", "never-slower", "--scale", "smoke", GRAPH]) == 0
    (row,) = read_table("never-slower")
    return row, capsys.readouterr().out


def test_a_result_that_is_slower_after_all_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optimise_to(monkeypatch, measured=SimpleNamespace(ratio=0.9, high=0.95))
    efforts = measure_as(monkeypatch, Estimate(1.2, 1.1, 1.3))
    row, table = reproduce(capsys)
    assert float(row["ratio"]) == 1.2 and float(row["control"]) == 1.0 and row["steps"] == "2"
    assert f"Slower than its model beyond the interval: {GRAPH}." in table
    assert len(efforts) == 1 and efforts[0].control


def test_the_model_itself_has_no_ratio(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    optimise_to(monkeypatch, measured=None)
    efforts = measure_as(monkeypatch, Estimate(1.2, 1.1, 1.3))
    row, table = reproduce(capsys)
    assert {row[key] for key in never_slower.MEASURED} == {"–"} and not efforts
    assert f"Slower than its model beyond the interval: none. The model itself: {GRAPH}." in table
    monkeypatch.setattr(never_slower, "optimise", lambda *_: pytest.fail("optimised again"))
    assert reproduce(capsys)[1] == table
