"""A fake machine of known speed: it drifts, its sessions differ, and its clock is a number."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from environment.measurement.effort import Clock, Effort
from environment.measurement.timing import Timing, Variant, measure
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel

INFERENCE_S = 0.03
"""The usual time of an inference, too long to be repeated before each sample."""


@dataclass(eq=False)
class FakeMachine:
    """A machine on which sessions run in a known time.

    Attributes:
      drift: standard deviation of the lasting change of speed between two inferences.
      noise: standard deviation of the speed of each inference alone.
      session_noise: standard deviation of the lasting speed of each session.
      opening_s: the time to open a session.
      cold: the factors by which the first inferences after one of another session take longer.
    """

    drift: float = 0.0
    noise: float = 0.0
    session_noise: float = 0.0
    opening_s: float = 0.0
    cold: tuple[float, ...] = ()
    seed: int = 0
    time_s: float = 0.0
    speed: float = 1.0
    last: object = None
    since: int = 0
    ran: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    alive: weakref.WeakSet[FakeSession] = field(default_factory=weakref.WeakSet)
    most_alive: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.interruptions = 0

    def factor(self, spread: float) -> float:
        return math.exp(spread * self.rng.standard_normal())

    def now(self) -> float:
        return self.time_s

    def variant(self, name: str, ratio: float = 1.0, *, inference_s: float = INFERENCE_S, scope: int = 0) -> Variant:
        return Variant(name, FakeRuntime(self, name, ratio * inference_s, scope), CheckedModel(onnx.ModelProto(), {}))

    def measure(self, ratios: list[float], effort: Effort, **options: object) -> Timing:
        """Measures variants `0`, `1` … against a reference `r`."""
        candidates = [self.variant(str(index), ratio) for index, ratio in enumerate(ratios)]
        return measure(self.variant("r"), candidates, effort, feeds={}, now=self.now, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class FakeRuntime:
    machine: FakeMachine
    name: str
    seconds: float
    scope: int

    @property
    def label(self) -> str:
        return f"runtime of {self.name}"

    @property
    def clock(self) -> Clock:
        return Clock(f"clock {self.scope}", self.scope, self.machine.now, lambda: self.machine.interruptions)

    def open(self, model: CheckedModel | Path, feeds: object) -> FakeSession:
        self.machine.time_s += self.machine.opening_s
        self.machine.opened.append(self.name)
        return FakeSession(self)


class OnFakeMachine:
    """The common part of the runtimes of a fake machine."""

    machine: FakeMachine

    @property
    def label(self) -> str:
        return "a fake machine"

    @property
    def clock(self) -> Clock:
        return Clock("fake clock", 0, self.machine.now, lambda: 0)


class FakeSession:
    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime, self.machine = runtime, runtime.machine
        self.seconds = runtime.seconds * self.machine.factor(self.machine.session_noise)
        gc.collect(0)
        self.machine.alive.add(self)
        self.machine.most_alive = max(self.machine.most_alive, len(self.machine.alive))

    def run(self) -> None:
        machine = self.machine
        if self.seconds == math.inf:
            raise ModelError("the operator Foo of the node foo_7 is unknown")
        machine.speed *= machine.factor(machine.drift)
        machine.since = machine.since + 1 if machine.last is self else 0
        cold = machine.cold[machine.since] if machine.since < len(machine.cold) else 1.0
        machine.time_s += self.seconds * machine.speed * cold * machine.factor(machine.noise)
        machine.last = self
        machine.ran.append(self.runtime.name)

    def outputs(self) -> list[np.ndarray]:
        return []
