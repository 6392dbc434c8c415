"""A fake machine on which a model takes the known time of all its operators, without noise unless it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from environment.costs.end_to_end import EFFORT, EndToEnd
from environment.measurement.effort import Effort
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.environment.measurement.fake_machine import FakeMachine, FakeRuntime, FakeSession, OnFakeMachine

MS_PER_OPERATOR = {"Conv": 3.0, "MatMul": 2.0, "Gemm": 2.5}


def true_ms(model: CheckedModel) -> float:
    """Returns the time of an inference on a quiet machine, in milliseconds."""
    return sum(MS_PER_OPERATOR.get(node.op_type, 1.0) for node in model.skeleton.graph.node)


@dataclass(eq=False)
class TimedGraphs(OnFakeMachine):
    """A runtime on a fake machine.

    Attributes:
      timed: the true times of the models that were opened, in milliseconds and in order.
    """

    machine: FakeMachine = field(default_factory=FakeMachine)
    timed: list[float] = field(default_factory=list)

    def open(self, model: CheckedModel | Path, feeds: object) -> FakeSession:
        assert isinstance(model, CheckedModel)
        self.timed.append(true_ms(model))
        return FakeSession(FakeRuntime(self.machine, f"{self.timed[-1]} ms", self.timed[-1] / 1e3, 0))


def fake_costs(runtime: TimedGraphs | None = None, effort: Effort = EFFORT) -> EndToEnd:
    """Returns `endtoend:cpu` on a fake machine, with only as much effort as an exact clock needs."""
    cheap = replace(effort, sessions=1, pairs=min(effort.pairs, 40), seconds=0.0)
    return EndToEnd("cpu", runtime=TimedGraphs() if runtime is None else runtime, effort=cheap)
