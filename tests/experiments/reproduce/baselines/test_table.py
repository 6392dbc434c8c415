"""Tests of `rlflow reproduce baselines`: it reports or refuses what cannot be compared, and measures nothing twice."""

from __future__ import annotations

import signal
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from environment import zoo
from environment.costs.measured import kernel_prices
from environment.costs.prices.price_list import Price
from environment.inputs import Feeds, input_specs, random_feeds
from environment.measurement.effort import WALL, Clock
from environment.measurement.memory import MeasuringProcessError, PeakMemory
from environment.runtimes import OnnxRuntime, Session, UnavailableError, openvino_runtime
from environment.verification import Scale, difference, spread_of
from experiments.baselines import tools
from experiments.baselines.tools import Maker, Tool, installed, onnx_runtime, simplified
from experiments.cli import main
from experiments.reproduce.baselines import comparison
from experiments.reproduce.baselines import table as baselines
from experiments.reproduce.search import default_runs
from experiments.reproduce.search.never_slower import our_best
from experiments.reproduce.table import UNDEFINED
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay, make_progress
from experiments.runs.result import Result
from taso_ext import OnnxModel
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model
from tests.commands import read_table

GRAPH = "squeezenet1.1-tiny"
COMMAND = ["reproduce", "baselines", "--scale", "smoke", "--ours", "ours", GRAPH]
FEW = {"ort-disabled": onnx_runtime("disabled"), "ort-all": onnx_runtime("all")}
MIB = 1 << 20


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tables quick: two tools, made-up memory, the cleaned graph as our best one, and an empty price cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(baselines, "makers", lambda device: FEW)
    monkeypatch.setattr(comparison, "peak_memory", lambda *_, **__: PeakMemory(300 * MIB, 100 * MIB))
    model = OnnxModel.load(zoo.build(GRAPH))
    write_model(model.export_checked(model.graph), tmp_path / "ours" / f"{GRAPH}.onnx")


def compete(monkeypatch: pytest.MonkeyPatch, **more: Maker) -> None:
    monkeypatch.setattr(baselines, "makers", lambda device: {**FEW, **more})


def rows() -> dict[str, dict[str, str]]:
    """Returns the rows of the table by their figure."""
    return {row["figure"]: row for row in read_table("baselines")}


def tool(prepare: Callable[[CheckedModel], CheckedModel], runtime: OnnxRuntime | None = None) -> Maker:
    return lambda: Tool("a tool of version 7", runtime or OnnxRuntime(), prepare)


def refuse(_: CheckedModel) -> CheckedModel:
    raise ModelError("the operator Foo (node 'foo_7') is not known.")


def damaged(model: CheckedModel) -> CheckedModel:
    """Returns the model with the weights of one convolution multiplied by 1.01."""
    name, kernel = next((name, each) for name, each in model.tensors.items() if len(each.shape) == 4)
    return replace(model, tensors=model.tensors | {name: ir.tensor(kernel.numpy() * np.float32(1.01))})


def test_ratios_of_the_reference_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([300 * MIB, 200 * MIB, 150 * MIB, 210 * MIB])
    monkeypatch.setattr(comparison, "peak_memory", lambda *_, **__: PeakMemory(next(sizes), 100 * MIB))
    assert main(COMMAND) == 0
    found = rows()
    assert list(found) == list(baselines.FIGURES)
    assert all(float(found[figure]["ort-all"]) == 1 for figure in ("time", "memory", "added"))
    assert float(found["± %"]["ort-all"]) == 0 < float(found["± %"]["ort-disabled"])
    assert [float(found["memory"][name]) for name in ("ort-disabled", "ours", "control")] == [1.5, 0.75, 1.05]
    assert [float(found["added"][name]) for name in ("reference", "ort-disabled", "ours")] == [100, 2, 0.5]
    for name in ("ort-disabled", "ours", "control"):
        assert float(found["time"][name]) > 0


@pytest.mark.parametrize("name", ["onnxsim", "openvino"])
def test_what_is_not_installed_is_noted(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    for module in (tools, openvino_runtime):
        monkeypatch.setattr(module, "importlib", types.SimpleNamespace(import_module=fail))
    compete(monkeypatch, **{name: tools.makers("cpu")[name]})
    assert main(COMMAND) == 0
    assert name not in rows()["time"]
    assert f"- Left out, {name}: " in (text := capsys.readouterr().out) and f"pip install {name}" in text


def test_what_is_installed_later_is_measured_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(COMMAND) == 0
    compete(monkeypatch, extra=tool(lambda model: model))
    assert main(COMMAND) == 0
    assert float(rows()["time"]["extra"]) > 0


@pytest.mark.parametrize("prepare", [damaged, lambda model: CheckedModel.from_proto(zoo.build("resnet18-tiny"))])
def test_what_computes_something_else_is_refused(
    prepare: Callable[[CheckedModel], CheckedModel], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compete(monkeypatch, wrong=tool(prepare))
    assert main(COMMAND) == 2
    message = capsys.readouterr().err
    assert f"On {GRAPH}, wrong (a tool of version 7) computes something else than ort-all" in message
    assert not list(Path("runs").rglob("*.json")) and not list(Path("runs").rglob("*.md"))


def test_what_cannot_run_a_graph_gets_a_dash_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compete(monkeypatch, limited=tool(refuse))
    assert main(COMMAND) == 0
    assert {row["limited"] for row in rows().values()} == {UNDEFINED}
    assert f"- {GRAPH}, limited: the operator Foo (node 'foo_7') is not known." in capsys.readouterr().out


def test_memory_that_runs_out_is_a_dash_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(runtime: OnnxRuntime, model: CheckedModel, **_: object) -> PeakMemory:
        if runtime.level == "disabled":
            raise MeasuringProcessError("the process was killed by SIGKILL.")
        return PeakMemory(300 * MIB, 100 * MIB)

    monkeypatch.setattr(comparison, "peak_memory", measured)
    assert main(COMMAND) == 0
    found = rows()
    assert found["memory"]["ort-disabled"] == found["added"]["ort-disabled"] == UNDEFINED
    assert float(found["time"]["ort-disabled"]) > 0 and float(found["memory"]["ours"]) == 1
    assert f"{GRAPH}, memory of ort-disabled: the process was killed" in capsys.readouterr().out


def test_without_the_memory_of_the_reference_there_are_no_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object, **__: object) -> PeakMemory:
        raise MeasuringProcessError("measure on Linux.")

    monkeypatch.setattr(comparison, "peak_memory", measured)
    assert main(COMMAND) == 0
    assert {rows()["memory"][name] for name in ("reference", *FEW, "ours", "control")} == {UNDEFINED}
    assert f"{GRAPH}, memory of ort-all: measure on Linux." in capsys.readouterr().out


def test_our_own_graph_has_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    other = CheckedModel.from_proto(zoo.build("bert-base-tiny"))
    write_model(other, Path("ours") / f"{GRAPH}.onnx")
    assert main(COMMAND) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"has to run {GRAPH}, and cannot: the model has no input 'input'" in message


def test_a_missing_file_of_ours_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND[:-1], "bert-base-tiny"]) == 2
    assert str(Path("ours/bert-base-tiny.onnx")) in capsys.readouterr().err


def test_nothing_finished_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(COMMAND) == 0
    found = rows()
    done: list[str] = []
    time = comparison.measure

    def memory(runtime: OnnxRuntime, *_: object, **__: object) -> PeakMemory:
        done.append(runtime.level)
        return PeakMemory(600 * MIB, 100 * MIB)

    monkeypatch.setattr(comparison, "measure", lambda *_, **__: pytest.fail("timed again"))
    monkeypatch.setattr(comparison, "peak_memory", memory)
    assert main(COMMAND) == 0 and not done and rows() == found
    (unit,) = Path("runs/reproduce/baselines/units").glob(f"{GRAPH}-memory-ort-disabled-*.json")
    unit.unlink()
    assert main(COMMAND) == 0 and done == ["disabled"] and float(rows()["memory"]["ort-disabled"]) == 2
    monkeypatch.setattr(comparison, "measure", time)
    model = OnnxModel.load(zoo.build(GRAPH), clean="none")
    write_model(model.export_checked(model.graph), Path("ours") / f"{GRAPH}.onnx")
    assert main(COMMAND) == 0 and done == ["disabled", "all"]  # only our graph is new


def test_an_interrupted_table_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def memory(runtime: OnnxRuntime, *_: object, **__: object) -> PeakMemory:
        calls.append(runtime.level)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return PeakMemory(300 * MIB, 100 * MIB)

    monkeypatch.setattr(comparison, "peak_memory", memory)
    assert main(COMMAND) == 128 + signal.SIGINT
    monkeypatch.setattr(comparison, "measure", lambda *_, **__: pytest.fail("timed again"))
    assert main(COMMAND) == 0
    assert calls == ["disabled", "all", "all", "all", "all"]  # the second is repeated; then ours and the control


def test_one_clock_is_read_for_all_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compete(monkeypatch, other=lambda: Tool("of several threads", _ByTheWall(), lambda model: model))
    assert main(COMMAND) == 0
    assert f"single precision; clock: {WALL.name}." in capsys.readouterr().out


@dataclass(frozen=True)
class _ByTheWall:
    """ONNX Runtime that has to be timed by the wall clock."""

    level: str = "all"

    @property
    def label(self) -> str:
        return "by the wall"

    @property
    def clock(self) -> Clock:
        return WALL

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> Session:
        return OnnxRuntime().open(model, feeds)


# The tools


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasnet-a-tiny", "nasrnn-tiny"])
def test_onnxsim_keeps_the_function(name: str) -> None:
    pytest.importorskip("onnxsim", reason="onnxsim is not installed (pip install onnxsim)")
    model = CheckedModel.from_proto(zoo.build(name))
    found = simplified(model)
    feeds = random_feeds(input_specs(model), np.random.default_rng(0))
    for one, other in zip(outputs(model, feeds), outputs(found, feeds), strict=True):
        assert difference(one, other, Scale(spread_of((one,)), 1e-4)) <= 1e-4


def outputs(model: CheckedModel, feeds: Feeds) -> list[np.ndarray]:
    session = OnnxRuntime(level="disabled").open(model, feeds)
    session.run()
    return session.outputs()


def test_onnxsim_that_fails_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def simplify(*_: object, **__: object) -> None:
        raise RuntimeError("a pass\nfailed")

    monkeypatch.setattr(tools, "_onnxsim", lambda: types.SimpleNamespace(simplify=simplify))
    with pytest.raises(ModelError, match="onnxsim cannot simplify the model: a pass failed"):
        simplified(CheckedModel.from_proto(zoo.build(GRAPH)))


def test_every_tool_is_here_or_says_how_to_get_it() -> None:
    wanted = tools.makers("cpu")
    here, absent = installed(wanted)
    assert {*here, *absent} == set(wanted) and not {*here} & {*absent}
    assert all("pip install" in reason for reason in absent.values())
    assert all("1 thread" in each.label and "1 thread" in each.runtime.label for each in here.values())
    assert len({each.label for each in here.values()}) == len(here)


def test_another_device_is_for_tools_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tools, "OnnxRuntime", lambda device, *_: asked.append(device) or OnnxRuntime())
    here, _ = installed(tools.makers("cuda"))
    assert {"ort-disabled", "ort-all"} <= set(here) and not set(here) & set(tools.ON_CPU)
    assert set(asked) == {"cuda"} and "tensorrt" not in here


def test_tensorrt_takes_part_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "OnnxRuntime", lambda device, *_: OnnxRuntime())
    _, absent = installed({"tensorrt": tools.makers("cuda")["tensorrt"]})
    assert "pip install tensorrt" in absent["tensorrt"]
    monkeypatch.setattr(tools, "require_working", lambda device: None)
    here, _ = installed({"tensorrt": tools.makers("cuda")["tensorrt"]})
    assert here["tensorrt"].runtime == OnnxRuntime()
    assert "tensorrt" not in tools.makers("cpu")


def test_a_device_that_is_not_here_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--device", "cuda"]) == 2
    assert "device 'cuda' is not available" in capsys.readouterr().err


def test_unavailable_tools_are_told_apart_from_defects() -> None:
    def defect() -> Tool:
        raise KeyError("a defect")

    def missing() -> Tool:
        raise UnavailableError("not here")

    assert installed({"a": missing}) == ({}, {"a": "not here"})
    with pytest.raises(KeyError):
        installed({"a": missing, "b": defect})


# Our graph


def test_our_graph_is_what_optimise_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our graph is searched for once, here or by its own table, and written again if its file is missing."""
    requests = []
    optimised = default_runs.optimise

    def note(request: Request, progress: ProgressDisplay) -> tuple[Result, Path]:
        requests.append(request)
        return optimised(request, progress)

    monkeypatch.setattr(default_runs, "optimise", note)
    monkeypatch.setitem(default_runs.CHANGES["smoke"], "search", {"seconds": 1.0})
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: Price(1.0, 0.01))
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    ours = our_best(GRAPH, "smoke", "cpu", None, make_progress())
    found = [ours.model().skeleton for _ in range(2)]
    assert found[0] == found[1] and len(requests) == 1
    (request,) = requests
    assert request.config.costs == "measured:cpu" and request.config.controller == "climb"
    request.output.unlink()
    assert ours.model().skeleton == found[0]
    assert ours.settings != our_best(GRAPH, "full", "cpu", None, make_progress()).settings
