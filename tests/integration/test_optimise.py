"""End-to-end tests of `rlflow optimise` on tiny models, with the controllers that need no training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from controller.search.climb import ClimbController
from environment import zoo
from environment.measurement.racing import Outcome
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict
from experiments.cli import main
from experiments.reports.page import extra
from experiments.runs.result import MeasuredRatio
from taso_ext import State
from tests.integration.tiny_run import RECOLLECT, TINY

FAST = ["--set", "measure.pairs=2", "--set", "evaluate.sampled_episodes=3", "--set", "search.budget=20"]
ON_PAPER = ["--costs", "roofline:rtx2070"]


def optimise(model: str | Path, output: Path, *arguments: str) -> int:
    run = ["--run-dir", str(output.with_suffix(".run"))]
    costs = [] if "--costs" in arguments else ON_PAPER
    return main(["optimise", str(model), "-o", str(output), *run, *FAST, *costs, *arguments])


def outputs_of(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def saved_zoo_model(name: str, path: Path) -> Path:
    onnx.save(zoo.build(name), path)
    return path


@pytest.mark.parametrize("controller", ["random", "greedy", "taso"])
@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny"])
def test_the_result_is_cheaper_and_computes_the_same(name: str, controller: str, tmp_path: Path) -> None:
    model = saved_zoo_model(name, tmp_path / "model.onnx")
    output = tmp_path / "out.onnx"
    assert optimise(model, output, "--controller", controller) == 0
    onnx.checker.check_model(str(output))
    feeds = random_feeds(onnx.load(model), seed=1)
    for expected, got in zip(outputs_of(model, feeds), outputs_of(output, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * np.ptp(expected))
    result = json.loads((output.with_suffix(".run") / "result.json").read_text())
    assert result["after"]["cost_ms"] < result["before"]["cost_ms"]
    assert sum(result["rules_applied"].values()) > 0


@pytest.mark.parametrize(("limit", "cut_off"), [(1, 1), (200, 0)])
def test_a_best_graph_at_the_limit_of_steps_is_told(
    limit: int, cut_off: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = "--controller", "random", "--set", f"environment.max_steps={limit}"
    assert optimise("bert-base-tiny", tmp_path / "out.onnx", *settings) == 0
    result = json.loads((tmp_path / "out.run/result.json").read_text())
    assert result["cut_off"] == cut_off
    assert ("The limit of 1 step ended" in capsys.readouterr().out) == bool(cut_off)


@pytest.mark.parametrize("faster", [True, False])
def test_what_the_clock_chooses_is_written_if_the_clock_confirms_it(
    faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The climb follows costs here, and the last measurement, which does not know that, has the last word."""

    def compare(_: object, reference: State, candidates: Sequence[State], patience: int) -> list[Outcome]:
        ratios = [each.cost.ms / reference.cost.ms for each in candidates]
        verdicts = [Verdict.FASTER if ratio < 1 - 1e-9 else Verdict.NOT_FASTER for ratio in ratios]
        return [Outcome(verdict, Estimate(*[r] * 3), 6, 1) for verdict, r in zip(verdicts, ratios, strict=True)]

    monkeypatch.setattr(ClimbController, "compare", compare)
    monkeypatch.setattr(MeasuredRatio, "is_faster", faster)
    output = tmp_path / "out.onnx"
    assert optimise("bert-base-tiny", output, "--controller", "climb", "--time", "60") == 0
    result = json.loads((output.with_suffix(".run") / "result.json").read_text())
    assert bool(result["rules_applied"]) == faster and result["timed"] > 0
    assert ("not faster beyond noise" in result["selection"]) != faster
    written, model = onnx.load(output), zoo.build("bert-base-tiny")
    assert (len(written.graph.node) < len(model.graph.node)) == faster


def test_several_models_go_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved_zoo_model("bert-base-tiny", tmp_path / "mine.onnx")
    both = ["optimise", "mine.onnx", "squeezenet1.1-tiny", "-o", "out", "--controller", "greedy", *FAST[:2], *ON_PAPER]
    assert main([*both, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["output"] for each in found] == ["out/mine.onnx", "out/squeezenet1.1-tiny.onnx"]
    assert all(Path(each["output"]).is_file() and each["measured"] for each in found)
    (tmp_path / "bad.onnx").write_text("no model")
    assert (
        main(["optimise", "bad.onnx", "mine.onnx", "-o", "more", "--controller", "greedy", *FAST[:2], *ON_PAPER]) == 2
    )
    assert (tmp_path / "more" / "mine.onnx").is_file(), "the other one is optimised nevertheless"


def test_whole_graphs_can_be_timed(tmp_path: Path) -> None:
    """The search itself then uses a roofline; the graphs on its path are timed, and the record has a time for each."""
    output = tmp_path / "out.onnx"
    costs = ["--costs", "endtoend:cpu", "--set", "measure.resolution=0.5", "--set", "environment.max_steps=4"]
    assert optimise("squeezenet1.1-tiny", output, "--controller", "taso", *costs) == 0
    run = output.with_suffix(".run")
    result, actions = (json.loads((run / name).read_text()) for name in ("result.json", "actions.json"))
    assert result["costs"] == "endtoend:cpu"
    assert result["before"]["cost_ms"] == actions["initial_cost_ms"] > 0
    costs_ms = [result["before"]["cost_ms"], *(step["cost_ms"] for step in actions["actions"])]
    assert result["after"]["cost_ms"] == costs_ms[-1] == min(costs_ms)


@pytest.mark.full
@pytest.mark.parametrize("costs", ["learned:cpu", "endtoend:cpu"])
def test_a_dream_is_learned_of_costs_that_are_no_prices_of_kernels(costs: str, tmp_path: Path) -> None:
    """What a dream promises is compared with these costs too."""
    output = tmp_path / "out.onnx"
    few = [part for each in (*TINY, "collect.episodes=12", "measure.resolution=0.5") for part in ("--set", each)]
    assert optimise("squeezenet1.1-tiny", output, "--controller", "ppo", "--costs", costs, *few, *RECOLLECT) == 0
    result = json.loads((output.with_suffix(".run") / "result.json").read_text())
    assert (result["costs"], result["world"]) == (costs, "dream") and result["rounds"]
    assert all(row["plans"]["gap"] >= 0 for row in result["rounds"])


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Returns random inputs: the integers 0 and 1, which are valid token ids and masks, and standard normal floats."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = rng.integers(0, 2, shape) if np.issubdtype(dtype, np.integer) else rng.standard_normal(shape)
        feeds[value.name] = array.astype(dtype)
    return feeds


def test_the_run_directory_is_complete(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    assert optimise("squeezenet1.1-tiny", output, "--controller", "random") == 0
    run = output.with_suffix(".run")
    expected = (
        "DONE actions.json checkpoints config.json manifest.json metrics.jsonl output.json plots report.md result.json "
        "run.lock stages.json"
    )
    page = ["report.html"] if extra.is_installed() else []
    assert sorted(path.name for path in run.iterdir()) == sorted([*expected.split(), *page])
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest[0]["versions"]["onnxruntime"] and manifest[0]["argv"][0] == "optimise"
    assert not list(tmp_path.rglob(".*")), "temporary files are left"


def test_the_action_log_leads_to_the_exported_graph(tmp_path: Path) -> None:
    from environment import GraphSubstitutionEnv

    output = tmp_path / "out.onnx"
    assert optimise("bert-base-tiny", output, "--controller", "random") == 0
    run = output.with_suffix(".run")
    log = json.loads((run / "actions.json").read_text())["actions"]
    graph = GraphSubstitutionEnv("bert-base-tiny").replay([(step["rule"], step["location"]) for step in log])
    assert graph.hash == json.loads((run / "result.json").read_text())["graph_hash"]


def test_the_same_command_after_the_end_repeats_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.onnx"
    assert optimise("squeezenet1.1-tiny", output, "--controller", "random") == 0
    first, summary = output.read_bytes(), capsys.readouterr().out
    assert optimise("squeezenet1.1-tiny", output, "--controller", "random", "--force") == 0
    assert output.read_bytes() == first
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if "measured" in line] == [
        line for line in summary.splitlines() if "measured" in line
    ], "a finished measurement is not repeated"


def test_seeds_decide_the_episodes(tmp_path: Path) -> None:
    logs = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert optimise("bert-base-tiny", tmp_path / f"{name}.onnx", "--controller", "random", "--seed", seed) == 0
        logs.append((tmp_path / f"{name}.run" / "metrics.jsonl").read_text())
    assert logs[0] == logs[1] != logs[2]


def test_a_model_without_rewrites_comes_out_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = helper.make_tensor_value_info
    node = helper.make_node("Sigmoid", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    assert optimise(tmp_path / "model.onnx", tmp_path / "out.onnx", "--controller", "taso") == 0
    assert onnx.load(tmp_path / "out.onnx") == model
    assert "nothing could be rewritten" in capsys.readouterr().out


def test_a_symbolic_dimension_with_a_size_stays_symbolic_in_the_result(tmp_path: Path) -> None:
    model = zoo.build("squeezenet1.1-tiny")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "model.onnx")
    assert optimise(tmp_path / "model.onnx", tmp_path / "out.onnx", "--controller", "greedy", "--dim", "batch=2") == 0
    shape = onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape
    assert shape.dim[0].dim_param == "batch"


def test_zoo_writes_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    assert "squeezenet1.1-tiny" in capsys.readouterr().out.split()
    assert main(["zoo", "squeezenet1.1-tiny", "-o", str(tmp_path / "m.onnx")]) == 0
    assert onnx.load(tmp_path / "m.onnx") == zoo.build("squeezenet1.1-tiny")


def test_a_file_for_no_graph_of_the_zoo_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "-o", str(tmp_path / "m.onnx")]) == 2
    assert "no graph is named" in capsys.readouterr().err and not list(tmp_path.iterdir())
