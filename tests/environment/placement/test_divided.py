"""Divided models: stages, the runner, and equal outputs however a model is divided."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

from environment import zoo
from environment.inputs import input_specs, random_feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.placement import Machine, OperatorGraph, PlacementError, PlacementProblem, at_most, runner
from environment.placement.real import (
    SCRIPT,
    ParallelExecutor,
    PlacedRuntime,
    parse_devices,
    real_machine,
    without_communication,
    write_divided,
)
from environment.placement.stages import divide, operators_by_stage
from environment.runtimes import OnnxRuntime, UnavailableError
from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.session import create_session

CORE = min(os.sched_getaffinity(0))
BRANCHING = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[2, 3] x, bool[1] flag) => (float[2, 3] y, float[2, 3] x_again, float[3] c)
<float[3] c = {1, 2, 3}>
{
  a = Relu(x)
  b = If(flag) <
    then_branch = g1 () => (float[2, 3] t) { t = Add(a, c) },
    else_branch = g2 () => (float[2, 3] e) { e = Sub(a, c) }
  >
  d = Exp(a)
  y = Mul(b, d)
  x_again = Identity(x)
}
"""


def machine(devices: int = 2) -> Machine:
    """Returns devices of which `written` makes one and the same core, so that tests need one only."""
    return real_machine([f"cpu:{number}" for number in range(devices)])


def problem_of(model: OnnxModel, groups: int = 1000, devices: int = 2) -> PlacementProblem:
    graph = OperatorGraph.of(model)
    return PlacementProblem.of(graph, machine(devices), at_most(graph, groups))


def written(folder: Path, model: OnnxModel, problem: PlacementProblem, assignment: np.ndarray) -> Path:
    exported, stages = divide(model, problem, assignment)
    write_divided(folder, exported, stages, problem.machine)
    plan = json.loads((folder / runner.PLAN).read_text())
    plan["devices"] = [f"cpu:{CORE}"] * len(plan["devices"])
    (folder / runner.PLAN).write_text(json.dumps(plan))
    return folder


@pytest.mark.parametrize("name", ["inception-v3-tiny", "bert-base-tiny", "nasrnn-tiny", "transformer-transducer-tiny"])
@pytest.mark.parametrize("seed", range(2))
def test_however_a_model_is_divided_its_outputs_stay(name: str, seed: int, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build(name))
    problem = problem_of(model, groups=20 + 50 * seed, devices=2 + seed)
    assignment = np.random.default_rng(seed).integers(0, 2 + seed, problem.num_groups).astype(np.int32)
    folder = written(tmp_path, model, problem, assignment)
    placed, whole = runner.PlacedModel(folder), create_session(model.cleaned, "disabled")
    assert len(placed.plan["stages"]) > 4
    rng = np.random.default_rng(seed)
    for _ in range(2):  # the same threads run several steps
        feeds = random_feeds(input_specs(model.cleaned), rng)
        assert runner.largest_difference(whole.run(placed.outputs, feeds), placed.run(feeds)) < 1e-4
    placed.close()


def test_bodies_that_capture_values_and_outputs_that_are_not_computed_are_handed_over(tmp_path: Path) -> None:
    model = OnnxModel.load(onnx.parser.parse_model(BRANCHING), clean="none")
    problem = problem_of(model)
    for number in range(2**problem.num_groups):
        assignment = np.array([number >> group & 1 for group in range(problem.num_groups)], np.int32)
        placed = runner.PlacedModel(written(tmp_path / str(number), model, problem, assignment))
        x = np.random.default_rng(number).standard_normal((2, 3)).astype(np.float32)
        for flag in (True, False):
            feeds = {"x": x, "flag": np.array([flag])}
            expected = create_session(model.given, "disabled").run(placed.outputs, feeds)
            assert runner.largest_difference(expected, placed.run(feeds)) < 1e-6
        placed.close()


@pytest.mark.parametrize("seed", range(6))
def test_stages_cover_all_operators_once_and_wait_only_for_earlier_ones(seed: int) -> None:
    model = OnnxModel.load(zoo.build("nasrnn-tiny"))
    problem = problem_of(model, groups=30, devices=3)
    assignment = np.random.default_rng(seed).integers(0, 3, problem.num_groups).astype(np.int32)
    stages = operators_by_stage(problem, assignment)
    assert sorted(each for _, operators in stages for each in operators) == list(range(len(problem.graph)))
    stage_of = {operator: at for at, (_, operators) in enumerate(stages) for operator in operators}
    assert all(stage_of[producer] <= stage_of[reader] for producer, reader, _ in problem.graph.edges())
    placement = problem.placement(assignment)[problem.tasks]
    assert all(placement[operator] == device for device, operators in stages for operator in operators)


def test_on_one_device_there_is_one_stage() -> None:
    problem = problem_of(OnnxModel.load(zoo.build("bert-base-tiny")))
    assert len(operators_by_stage(problem, problem.single(1))) == 1


def divided(tmp_path: Path, name: str = "inception-v3-tiny") -> tuple[OnnxModel, Path]:
    model = OnnxModel.load(zoo.build(name))
    problem = problem_of(model, groups=6)
    assignment = np.arange(problem.num_groups, dtype=np.int32) % 2
    return model, written(tmp_path / "out", model, problem, assignment)


def test_the_folder_runs_and_verifies_itself_without_the_program(tmp_path: Path) -> None:
    model, folder = divided(tmp_path)
    command = [sys.executable, str(folder / SCRIPT)]
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("Equal: on 3 random input sets")
    feeds = random_feeds(input_specs(model.cleaned), np.random.default_rng(0))
    np.savez(tmp_path / "in.npz", **feeds)  # type: ignore[arg-type]
    command += ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    subprocess.run(command, cwd=tmp_path, env=alone, check=True, capture_output=True)
    names = [value.name for value in model.cleaned.skeleton.graph.output]
    expected = create_session(model.cleaned, "all").run(names, feeds)
    with np.load(tmp_path / "out.npz") as arrays:
        assert runner.largest_difference(expected, [arrays[name] for name in names]) < 1e-4
    again = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert again.returncode == 2
    assert again.stderr.strip().endswith("out.npz exists; add --force to overwrite it, or name another file")
    subprocess.run([*command, "--force"], cwd=tmp_path, env=alone, check=True, capture_output=True)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_wrong_stage_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = divided(tmp_path)
    for path in sorted(folder.glob("stage-*.onnx")):
        stage = onnx.load(path)
        weights = [each for each in stage.graph.initializer if len(each.dims) == 4]
        if weights:
            values = onnx.numpy_helper.to_array(weights[0]) + np.float32(0.5)
            weights[0].CopyFrom(onnx.numpy_helper.from_array(values, weights[0].name))
            onnx.save(stage, path)
            break
    assert runner.main(["--folder", str(folder)]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_bad_folders_inputs_and_devices_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = divided(tmp_path)
    placed = runner.PlacedModel(folder)
    with pytest.raises(runner.PlacedModelError, match="expected the inputs"):
        placed.run({})
    with pytest.raises(runner.PlacedModelError, match="cannot be run"):
        placed.run({placed.inputs[0]: np.zeros((1, 2), np.float32)})
    ordinary = runner.random_inputs(placed.plan, 0)
    assert np.isfinite(placed.run(ordinary)[0]).all()  # a failed step leaves the model usable
    placed.close()
    plan = json.loads((folder / runner.PLAN).read_text())
    for device, message in (("cpu:4096", "core 4096"), ("cuda:0", "not here"), ("tpu:0", "not here")):
        (folder / runner.PLAN).write_text(json.dumps({**plan, "devices": [device, device]}))
        with pytest.raises(runner.PlacedModelError, match=message):
            runner.PlacedModel(folder)
    (folder / runner.PLAN).write_text(json.dumps({**plan, "format": 99}))
    assert runner.main(["--folder", str(folder)]) == 2
    assert runner.main(["--folder", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("run.py: ") == 2


def test_a_model_that_is_dropped_ends_its_threads(tmp_path: Path) -> None:
    _, folder = divided(tmp_path)
    before = threading.active_count()
    placed = runner.PlacedModel(folder)
    assert threading.active_count() == before + 2
    own = [thread for thread in threading.enumerate() if thread.name == f"cpu:{CORE}"]
    del placed
    gc.collect()
    for thread in own:
        thread.join(timeout=10)
    assert threading.active_count() == before


def test_a_divided_model_is_a_runtime_that_can_be_measured(tmp_path: Path) -> None:
    model, folder = divided(tmp_path)
    candidates = [Variant("divided", PlacedRuntime(folder), model.cleaned)]
    candidates += [Variant("parallel", ParallelExecutor(), model.cleaned)]
    effort = Effort(pairs=2, sessions=1, control=False)
    found = measure(Variant("whole", OnnxRuntime(), model.cleaned), candidates, effort)
    assert [each.name for each in found.candidates] == ["divided", "parallel"]
    assert all(each.ratio.value > 0 for each in found.candidates)
    (folder / runner.PLAN).unlink()
    with pytest.raises(ModelError, match="no divided model"):
        PlacedRuntime(folder).open(model.cleaned, {})


def test_devices_that_are_not_here_are_refused() -> None:
    assert parse_devices(f"cpu:{CORE}") == [f"cpu:{CORE}"]
    for text, message in (
        ("cpu:4096", "is not here"),
        (f"cpu:{CORE},cpu:{CORE}", "named twice"),
        ("gpu:0", "no device"),
        ("cpu", "no device"),
    ):
        with pytest.raises(PlacementError, match=message):
            parse_devices(text)
    if "CUDAExecutionProvider" not in runner.ort.get_available_providers():
        with pytest.raises(UnavailableError, match="cuda"):
            parse_devices("cuda:0")


def test_the_host_of_real_devices_is_a_cpu_and_free_links_are_free() -> None:
    made = real_machine(["cuda:0", "cpu:0"])
    assert [device.name for device in made.devices] == ["cpu:0", "cuda:0"]
    graph = OperatorGraph.of(OnnxModel.load(zoo.build("nasrnn-tiny")))
    labels = at_most(graph, 20)
    assignment = np.arange(labels.max() + 1, dtype=np.int32) % 2
    costly = PlacementProblem.of(graph, machine(), labels).evaluate(assignment)
    free = PlacementProblem.of(graph, without_communication(machine()), labels).evaluate(assignment)
    assert free.copies == costly.copies > 0
    assert free.ms <= costly.ms - 0.1
