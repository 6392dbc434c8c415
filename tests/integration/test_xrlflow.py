"""`rlflow optimise --controller xrlflow`: to a verified result, on another graph, and with bad settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

import experiments
from experiments.cli import main
from tests import tracing
from tests.commands import failure
from tests.integration.tiny_run import arguments

SMALL = (
    *("xrlflow.updates=2", "xrlflow.batch=2", "xrlflow.epochs=1", "xrlflow.width=8", "xrlflow.layers=2"),
    *("xrlflow.embedding=4", "xrlflow.torso=[8]", "xrlflow.minibatch=4"),
)
CHANGES = tuple(part for setting in SMALL for part in ("--set", setting))


@pytest.fixture(scope="module", autouse=True)
def untraced() -> Iterator[None]:
    with tracing.untraced():
        yield


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("xrlflow") / "out.onnx"
    assert main(arguments(path, "--controller", "xrlflow", *CHANGES)) == 0
    return path


def test_a_run_is_verified_and_counts_its_real_steps(output: Path) -> None:
    result = json.loads((output.with_suffix(".run") / "result.json").read_text())
    assert (result["controller"], result["world"]) == ("xrlflow", "real")
    assert result["counts"]["real_steps"] > 0 == result["counts"]["dreamed_steps"]
    assert result["largest_difference"] <= result["tolerance"] and output.is_file()
    assert any(source.startswith("(a) training") for source in result["improvements"])


def test_a_run_is_loaded_and_resumed(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = output.with_suffix(".run")
    loaded = experiments.load(run)
    assert loaded.controller.name == "xrlflow" and loaded.controller.num_updates == 2
    metrics = (run / "metrics.jsonl").read_text()
    (run / "DONE").unlink()
    assert main(arguments(output, "--controller", "xrlflow", *CHANGES, "--force")) == 0
    assert (run / "metrics.jsonl").read_text() == metrics, "nothing is done again"


@pytest.mark.filterwarnings("default::taso_ext.errors.ModelWarning")
def test_what_it_has_learned_plays_on_another_graph(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.onnx"
    run = str(output.with_suffix(".run"))
    command = ["optimise", "nasrnn-tiny", "-o", str(other), "--from", run, "--run-dir", str(tmp_path / "run")]
    assert main([*command, "--set", "evaluate.sampled_episodes=1", "--set", "measure.pairs=2"]) == 0
    assert other.is_file()
    assert "rewrites of the start graph cannot be chosen" in capsys.readouterr().err, "it has too few locations"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--world", "dream"], "'xrlflow' learns in the world real, but world=dream came"),
        (["--set", "xrlflow.head=pinter"], "must be one of pointer, flat, but 'pinter' came"),
        (["--set", "xrlflow.heads=flat"], "Unknown key 'xrlflow.heads' in --set. Did you mean 'xrlflow.head'"),
        (["--set", "xrlflow.slots=1"], "slots is 1; it must be at least 2"),
    ],
)
def test_bad_settings_are_one_clear_error(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in failure(capsys, *arguments(Path("out.onnx"), "--controller", "xrlflow", *options))


def two_branches(path: Path) -> None:
    """Writes a model of the user's: two linear maps of one input, rectified, side by side."""
    rng = np.random.default_rng(0)
    weights = [from_array(rng.normal(size=(16, 8)).astype(np.float32), name) for name in ("left", "right")]
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}_map"]) for name in ("left", "right")]
    nodes += [helper.make_node("Relu", [f"{name}_map"], [f"{name}_out"]) for name in ("left", "right")]
    nodes += [helper.make_node("Concat", ["left_out", "right_out"], ["y"], axis=1)]
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", TensorProto.FLOAT, ["rows", 16])], [value("y", TensorProto.FLOAT, ["rows", 16])]
    graph = helper.make_graph(nodes, "two branches", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_a_model_of_the_user_is_rewritten_as_published_by_the_clock(tmp_path: Path) -> None:
    two_branches(tmp_path / "model.onnx")
    given = ["optimise", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "out.onnx"), "--dim", "rows=4"]
    few = [
        *("environment.max_steps=6", "evaluate.sampled_episodes=1", "xrlflow.slots=20"),
        *("measure.pairs=2", "measure.sessions=1", "measure.resolution=1"),
    ]
    changes = [part for setting in (*SMALL, *few) for part in ("--set", setting)]
    clock = ["--preset", "xrlflow", "--costs", "endtoend:auto:pairs=2", "--run-dir", str(tmp_path / "run")]
    assert main([*given, *clock, *changes]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["controller"], result["world"]) == ("xrlflow", "real")
    assert result["counts"]["end_to_end_timings"] > 1 and (tmp_path / "out.onnx").is_file()
    report = (tmp_path / "run" / "report.md").read_text()
    assert f"of whole graphs; {result['final_timings']} more timed the result itself at the end." in report
    config = experiments.load(tmp_path / "run").config
    assert (config.costs, config.environment.reward) == ("endtoend:cpu:pairs=2", "percent:every=5,bonus=0.1")
    assert (config.xrlflow.head, config.xrlflow.pool) == ("flat", "sum")
