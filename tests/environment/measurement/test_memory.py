"""Peak memory is what one process needs for one model, and a process that dies is an error."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment.measurement import memory
from environment.measurement.effort import WALL, Clock
from environment.measurement.memory import (
    MeasuringProcessError,
    PeakMemory,
    peak_bytes,
    peak_memory,
    restart_peak,
    status_bytes,
)
from environment.runtimes import OnnxRuntime, UnavailableError
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel

MIB = 1 << 20
SLACK = 24 * MIB  # what an allocator rounds up, and Python's own objects


@dataclass(frozen=True)
class Hungry:
    """A runtime that takes memory for good when it opens a session, more while it runs, and then ends as `end` says."""

    held: int = 0
    passing: int = 0
    end: str = ""

    @property
    def label(self) -> str:
        return "a hungry runtime"

    @property
    def clock(self) -> Clock:
        return WALL

    def open(self, model: CheckedModel | Path, feeds: object) -> Hungry:
        object.__setattr__(self, "memory", np.ones(self.held, np.uint8))
        return self

    def run(self) -> None:
        np.ones(self.passing, np.uint8)
        if self.end == "hang":
            time.sleep(3600)
        if self.end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.end == "leave":
            os._exit(3)
        if self.end == "raise":
            raise KeyError("a defect of the runtime")
        if self.end == "refuse":
            raise ModelError("the operator Foo is unknown")
        if self.end == "unavailable":
            raise UnavailableError("device 'x' is not here")

    def outputs(self) -> list[np.ndarray]:
        return []


def gather(rows: int) -> CheckedModel:
    """Returns a model that reads one row of a table of `rows` times 1 KiB."""
    table = numpy_helper.from_array(np.zeros((rows, 256), np.float32), "table")
    values = [
        helper.make_tensor_value_info("i", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 256]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"])], "table", values[:1], values[1:], [table]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return CheckedModel.from_proto(proto)


def measured(runtime: Hungry | OnnxRuntime, model: CheckedModel | None = None) -> PeakMemory:
    return peak_memory(runtime, model or gather(1), feeds={"i": np.array([0])})


def test_memory_is_that_of_the_session_and_its_peak_counts() -> None:
    small, large = measured(Hungry(held=10 * MIB)), measured(Hungry(held=100 * MIB, passing=150 * MIB))
    assert abs(small.session_bytes - 10 * MIB) < SLACK
    assert abs(large.session_bytes - 250 * MIB) < SLACK
    assert small.total_bytes > small.baseline_bytes > 20 * MIB  # an interpreter with NumPy
    assert abs(small.baseline_bytes - large.baseline_bytes) < SLACK


def test_nothing_of_the_parent_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak that the system reports of a child process begins with the size of its parent; this peak does not."""
    (tmp_path / "environment.py").write_text("raise SystemExit('found in the current directory')")
    monkeypatch.chdir(tmp_path)
    parents = np.ones(700 * MIB, np.uint8)
    assert measured(Hungry()).total_bytes < len(parents)


@pytest.mark.parametrize("mib", [30, 200])
def test_a_real_runtime_needs_its_weights(mib: int) -> None:
    """It needs them once for good, and once more while it reads them."""
    assert mib * MIB < measured(OnnxRuntime(), gather(mib * 1024)).session_bytes < 2 * mib * MIB + SLACK


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("kill", "was killed by SIGKILL .*memory runs out"),
        ("leave", "status 3"),
        ("raise", "status 1.*a defect of the"),
    ],
)
def test_a_process_that_dies_is_one_clear_error(end: str, said: str) -> None:
    with pytest.raises(MeasuringProcessError, match=said) as error:
        measured(Hungry(end=end))
    assert "a hungry runtime" in str(error.value) and "\n" not in str(error.value)


def test_a_process_that_hangs_is_given_up() -> None:
    with pytest.raises(MeasuringProcessError, match=r"a hungry runtime gave no answer within 1 s") as error:
        peak_memory(Hungry(end="hang"), gather(1), feeds={"i": np.array([0])}, patience_s=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("end", "kind"), [("refuse", ModelError), ("unavailable", UnavailableError)])
def test_what_a_user_can_mend_is_told_as_it_is(end: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"the operator Foo is unknown|device 'x' is not here"):
        measured(Hungry(end=end))


LARGE = 200 << 20


def test_the_peak_begins_anew() -> None:
    if not restart_peak():
        pytest.skip("this system does not let a process restart its peak")
    before = peak_bytes()
    large = np.ones(LARGE, np.uint8)
    assert status_bytes("VmRSS") > before + 0.9 * LARGE
    del large
    assert peak_bytes() > before + 0.9 * LARGE
    assert restart_peak() and peak_bytes() < before + 0.5 * LARGE


def test_elsewhere_it_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "not" / "there")
    assert not restart_peak() and peak_bytes() > 10 << 20
