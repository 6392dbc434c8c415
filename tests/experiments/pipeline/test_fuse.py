"""`rlflow fuse`: what it writes and says, and bad input."""

from __future__ import annotations

import contextlib
import json
import math
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import onnx
import pytest

from environment.fusion.export import KERNELS
from experiments.cli import main
from experiments.config.run import RunConfig
from experiments.pipeline.fuse import Fused, fuse
from experiments.runs.progress import SilentProgress
from experiments.runs.signals import Interrupted


def test_a_plan_is_written_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "fused.onnx"
    command = ["fuse", "nasrnn-tiny", "-o", str(output), "--prices", "h100", "--budget", "150", "--json"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["planned_ms"] < said["compiler_ms"] and said["queries"] == 150 and said["device"] == "h100"
    nodes = onnx.load(output).graph.node
    roots = {
        root for node in nodes for prop in node.metadata_props if prop.key == KERNELS for root in prop.value.split(",")
    }
    assert len(roots) == said["kernels"]
    assert main(command) == 2
    assert "Use --force to overwrite it" in capsys.readouterr().err


class Stopping(SilentProgress):
    """A display that notes what it is told, and passes on a signal as soon as so many queries are done."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at, self.told = stop_at, list[int]()

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Stopping]:
        yield self

    def update(self, done: int, **figures: float) -> None:
        self.told.append(done)
        if done >= self.stop_at:
            raise Interrupted(signal.SIGINT)


def test_an_interrupted_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("controller.fusion.run.KEEP_SECONDS", 0.0)

    def found(name: str, stop_at: int, budget: int = 150) -> tuple[Fused, list[int]]:
        display = Stopping(stop_at)
        command = partial(fuse, "nasrnn-tiny", tmp_path / name, RunConfig(), display, device="v100", budget=budget)
        return command(), display.told

    whole, told = found("whole.onnx", 1000)
    assert told[0] == 20 and told == sorted(told)
    with pytest.raises(Interrupted):
        found("out.onnx", 80)
    assert not (tmp_path / "out.onnx").exists() and len(list((tmp_path / "runs/fuse").iterdir())) == 1
    assert found("other.onnx", 1000, budget=160)[1][0] == 20  # another search begins anew
    again, rest = found("out.onnx", 1000)
    assert rest[0] >= 80 and again.planned_ms == whole.planned_ms and again.queries == whole.queries
    assert not list((tmp_path / "runs/fuse").iterdir())
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nasrnn-tiny", "--prices", "h10"], "No fusion device is called 'h10'. Did you mean 'h100'?"),
        (["nasrnn-tiny", "--search", "rando"], "No fusion search is called 'rando'. Did you mean 'random'?"),
        (["nasrnn-tiny", "--search", "guided"], "--search guided and --advantages FILE belong together"),
        (["nasrnn-tiny", "--advantages", "x.npz"], "--search guided and --advantages FILE belong together"),
        (["nasrnn-tiny", "--search", "guided", "--advantages", "none.npz"], "none.npz cannot be read"),
        (["nasrnn-tiny", "--budget", "0"], "budget"),
        (["nasrn-tiny"], "nasrnn-tiny"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_no_file(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fuse", *arguments, "-o", "out.onnx"]) == 2
    error = capsys.readouterr().err
    assert reason in error and "Traceback" not in error
    assert not list(tmp_path.iterdir())
