"""`endtoend:<device>`: the run time of whole graphs, measured in the runtime that they are made for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from environment.costs.interface import MeasuredCost, Priced
from environment.costs.limits import NoisyClock, Recent
from environment.costs.roofline import predicting_preset
from environment.counting import count
from environment.inputs import Feeds, input_specs, timing_feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime, Runtime
from environment.runtimes.onnx_runtime import require_working
from taso_ext import CostModel, OnnxModel, State
from taso_ext.onnx_io.checked_model import CheckedModel

EFFORT = Effort(resolution=0.01, pairs=400, seconds=20.0, sessions=3, control=False)
"""Effort of one price. On a quiet machine 9 to 61 pairs reach one percent; the other limits are for noisy machines."""
_START = {"resolution": None, "pairs": 6, "sessions": 2}
"""Changes of the effort for the start graph: its time is only a unit, since all rewards compare ratios to it."""
_MOST_PRICES = 1 << 16
"""Largest number of kept prices of one model, about 20 MB."""
_MOST_MODELS = 64


@dataclass
class _Known:
    """The measurements of one start graph and of the graphs that rewriting makes of it.

    Attributes:
      start_ms: run time of one inference of the start graph; None before it was measured.
      prices: prices by graph hash.
    """

    start_ms: float | None = None
    prices: Recent[Priced] = field(default_factory=lambda: Recent(_MOST_PRICES))


class EndToEnd:
    """A cost model that times each whole graph against the start graph, in one interleaved run.

        costs = EndToEnd("cpu", effort=replace(EFFORT, resolution=0.005, seconds=60.0))
        env = GraphSubstitutionEnv("squeezenet1.1", costs=costs, reward="percent")

    A price is the start graph's time, which is measured once, times the measured ratio. A machine that becomes slower
    therefore makes no graph dearer. `native`, a roofline (xeon for CPUs, h200 for NVIDIA's devices), counts FLOPs,
    bytes and launches. It also predicts the costs of rewrites, so that a look-ahead or a search times nothing. Every
    graph is timed once; all environments that share this object share its prices, which stay in memory.

    If the clock is too noisy for the requested resolution, prices state the interval that was reached, and the first
    such price comes with a `NoisyClockWarning`.
    """

    def __init__(self, device: str = "cpu", *, runtime: Runtime | None = None, effort: Effort = EFFORT) -> None:
        """
        Args:
          device: one of `environment.runtimes.available_devices()`.
          runtime: runs the graphs there; None means ONNX Runtime with one thread and all its optimisations.
          effort: effort of one price: resolution, seconds, pairs, sessions.
        Raises:
          UnavailableError: the device is not here; the message lists the devices that are and how to install others.
        """
        self.device, self.effort = device, effort
        self.runtime: Runtime = OnnxRuntime(device) if runtime is None else runtime
        self.native = CostModel.roofline(predicting_preset(device))
        self.clock = NoisyClock(self.name)
        self._known: Recent[_Known] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """`endtoend:<device>`."""
        return f"endtoend:{self.device}"

    def of(self, model: OnnxModel) -> EndToEndPrices:
        """See `Costs.of`. Models with the same start graph share their prices."""
        if isinstance(self.runtime, OnnxRuntime):
            require_working(self.runtime.device)
        return EndToEndPrices(self, model, self._known.get(model.graph.hash, _Known))


class EndToEndPrices:
    """The end-to-end costs of one model's graphs."""

    is_free = False
    sums_nodes = False

    def __init__(self, costs: EndToEnd, model: OnnxModel, known: _Known) -> None:
        """Use `EndToEnd.of` instead of this constructor."""
        self._costs, self._model, self._known = costs, model, known

    @property
    def native(self) -> CostModel:
        return self._costs.native

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`. The start graph's price has no noise, since all others are ratios to it."""
        return self._known.prices.get(state.hash, partial(self._measured, state))

    def _measured(self, state: State) -> Priced:
        if state.hash == self._model.graph.hash:
            return Priced(MeasuredCost.timed(self._start_ms(), state.cost))
        graph = Variant("rewritten", self._costs.runtime, self._model.export_checked(state.graph))
        timing = measure(self._start, [graph], self._costs.effort, feeds=self._feeds)
        count(end_to_end_timings=1)
        resolution = self._costs.effort.resolution
        if resolution is not None and timing.precision > resolution:
            self._costs.clock.warn(timing.ending)
        cost = MeasuredCost.timed(self._start_ms() * timing.ratio.value, state.cost)
        return Priced(cost, {state.hash: timing.ratio.half_width * cost.ms})

    def _start_ms(self) -> float:
        if self._known.start_ms is None:
            effort = replace(self._costs.effort, **_START)  # type: ignore[arg-type]  # of several types
            self._known.start_ms = measure(self._start, (), effort, feeds=self._feeds).reference.ms.value
            count(end_to_end_timings=1)
        return self._known.start_ms

    @cached_property
    def _start(self) -> Variant:
        return Variant("start", self._costs.runtime, self._start_model)

    @cached_property
    def _start_model(self) -> CheckedModel:
        return self._model.export_checked(self._model.graph)

    @cached_property
    def _feeds(self) -> Feeds:
        return timing_feeds(input_specs(self._start_model), np.random.default_rng(self._costs.effort.seed))
