"""`rlflow fuse`: what it writes and says, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from environment.fusion.export import KERNELS
from experiments.cli import main


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
