"""`rlflow gradients` writes a file that runs, and refuses bad input in one paragraph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from environment import zoo
from environment.gradients.losses import LOSSES
from environment.gradients.optimisers import OPTIMISERS
from experiments import gradients
from experiments.cli import main
from tests import commands
from tests.environment.gradients.case import session


def test_the_command_knows_all_losses_and_optimisers() -> None:
    assert list(gradients.LOSSES) == list(LOSSES)
    assert list(gradients.OPTIMISERS) == list(OPTIMISERS)


def test_a_users_file_becomes_a_training_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, out = tmp_path / "model.onnx", tmp_path / "step.onnx"
    model = zoo.build("squeezenet1.1-tiny")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, given)
    before = given.read_bytes()
    options = ["--loss", "cross-entropy", "--optimiser", "adam", "--dim", "batch=1"]
    assert main(["gradients", str(given), "-o", str(out), *options]) == 0
    printed = capsys.readouterr().out
    assert "reads input, output.labels" in printed and "a step of adam" in printed
    feeds = {"input": np.ones((1, 3, 32, 32), np.float32), "output.labels": np.zeros(1, np.int64)}
    results = session(onnx.load(out)).run(["loss", "step.updated", "classifier.1.weight.updated"], feeds)
    assert results[0] > 0 and results[1] == 1 and results[2].shape == (10, 24, 1, 1)
    assert given.read_bytes() == before


def test_only_the_named_weights_and_outputs_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    options = ["--train", "cell.kernel.*", "--train", "cell.recurrent.3", "--output", "output", "--loss", "sum"]
    assert main(["gradients", "nasrnn-tiny", "-o", str(out), *options]) == 0
    outputs = {value.name for value in onnx.load(out).graph.output}
    assert outputs == {"loss", "cell.recurrent.3.gradient", *(f"cell.kernel.{i}.gradient" for i in range(8))}
    assert "gradients of 9 weights" in capsys.readouterr().out


def test_bad_input_is_one_paragraph_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, mine = tmp_path / "out.onnx", tmp_path / "mine.onnx"
    onnx.save(zoo.build("squeezenet1.1-tiny"), mine)
    for arguments, expected in (
        ([str(tmp_path / "none.onnx")], "does not exist"),
        (["resnet19"], "did you mean 'resnet18'"),
        (["nasrnn-tiny", "--train", "cell.x"], "no weight called 'cell.x'"),
        (["nasrnn-tiny", "--output", "outputs"], "did you mean 'output'"),
        (["nasrnn-tiny", "--dim", "batch"], "--dim is written NAME=SIZE"),
        (["nasrnn-tiny", "--dim", "batch=2"], "no symbolic dimension 'batch'"),
        (["nasrnn-tiny", "--loss", "cross-entropy", "--axis", "5"], "no axis 5 of classes"),
        (["nasrnn-tiny", "--loss", "hinge"], "invalid choice: 'hinge'"),
        ([str(mine), "-o", str(mine), "--force"], "never overwritten"),
        ([str(mine), "-o", str(mine)], "exists. Use --force"),
    ):
        target = [] if "-o" in arguments else ["-o", str(out)]
        assert expected in commands.failure(capsys, "gradients", *arguments, *target), arguments
        assert sorted(tmp_path.iterdir()) == [mine]
