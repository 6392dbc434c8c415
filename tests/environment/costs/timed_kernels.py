"""A fake machine on which every run of a kernel takes a known time in every session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from environment.costs.measured import benchmark
from environment.inputs import Feeds
from environment.measurement import timing
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.environment.measurement.fake_machine import FakeMachine, FakeRuntime, FakeSession, OnFakeMachine

REFERENCE_MS = 0.25


@dataclass(eq=False)
class TimedKernels(OnFakeMachine):
    """A runtime on a fake machine.

    Attributes:
      ms: the time of one run, by operator; that of MatMul is the reference kernel's.
      opened: the operator of each model that was opened, and how many times the model contains it.
    """

    ms: Mapping[str, float]
    machine: FakeMachine = field(default_factory=FakeMachine)
    opened: list[tuple[str, int]] = field(default_factory=list)

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> FakeSession:
        assert not isinstance(model, Path)
        graph = model.skeleton.graph
        assert {value.name for value in graph.input} == set(feeds)
        (op_type,) = {node.op_type for node in graph.node}
        self.opened.append((op_type, len(graph.node)))
        seconds = len(graph.node) * self.ms[op_type] / 1e3
        return FakeSession(FakeRuntime(self.machine, op_type, seconds, 0))


def run_on(runtime: TimedKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes kernels be timed on a fake machine, by the real timing routine."""

    def measure(
        reference: Variant, candidates: Sequence[Variant] = (), effort: Effort | None = None, **options: Any
    ) -> Timing:
        here = [replace(each, runtime=runtime) for each in (reference, *candidates)]
        return timing.measure(here[0], here[1:], effort, now=runtime.machine.now, **options)

    monkeypatch.setattr(benchmark, "measure", measure)
