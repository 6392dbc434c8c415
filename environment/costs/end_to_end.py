"""`endtoend:<device>`: whole graphs, timed in the runtime that they are made for."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from environment.costs.analytic import foretelling_preset
from environment.costs.interface import MeasuredCost, Priced
from environment.effort import Effort
from environment.model_inputs import Feeds, input_specs, random_feeds
from environment.runtimes import OnnxRuntime, Runtime
from environment.runtimes.devices import require_working
from environment.timing import Variant, measure
from taso_ext import CostModel, OnnxModel, State
from taso_ext.detached import DetachedModel

EFFORT = Effort(resolution=0.01, pairs=400, seconds=20.0, sessions=3, control=False)
"""Of one price. On a quiet machine 9 to 61 pairs give one percent; the other limits are for machines that are not."""
_START = {"resolution": None, "pairs": 6, "sessions": 2}
"""The start graph's own time is only a unit: what counts are ratios to it."""
_MOST_PRICES = 1 << 16
"""Graphs of a model whose prices are kept, about 20 MB."""
_MOST_MODELS = 64


class NoisyClockWarning(UserWarning):
    """Prices are less precise than asked for; each says how precise it is."""


@dataclass
class _Known:
    """What was measured of the graphs that rewriting makes of one start graph.

    Attributes:
      start_ms: of one inference of the start graph; None before it was measured.
      prices: by graph hash, those asked for last at the end.
    """

    start_ms: float | None = None
    prices: OrderedDict[str, Priced] = field(default_factory=OrderedDict)

    def recall(self, graph_hash: str) -> Priced | None:
        if graph_hash not in self.prices:
            return None
        self.prices.move_to_end(graph_hash)
        return self.prices[graph_hash]

    def keep(self, graph_hash: str, priced: Priced) -> Priced:
        self.prices[graph_hash] = priced
        while len(self.prices) > _MOST_PRICES:
            self.prices.popitem(last=False)
        return priced


class EndToEnd:
    """The whole graph timed against the start graph, in one interleaved run.

        costs = EndToEnd("cpu", effort=replace(EFFORT, resolution=0.005, seconds=60.0))
        env = GraphSubstitutionEnv("squeezenet1.1", costs=costs, reward="percent")

    A price is the start graph's time, measured once, times the measured ratio: a machine that becomes slower makes no
    graph dearer. FLOPs, bytes and launches are counted by `native`, a roofline (xeon for CPUs, h200 for NVIDIA's
    devices), which also foretells what rewrites would cost: nothing is timed for a look-ahead or a search. Every graph
    is timed once; prices are kept in memory, for all environments that share this object.

    Where the clock is too noisy for the asked resolution, prices come with the interval that was reached, and the first
    one with a `NoisyClockWarning`.
    """

    def __init__(self, device: str = "cpu", *, runtime: Runtime | None = None, effort: Effort = EFFORT) -> None:
        """
        Args:
          device: one of `environment.runtimes.available_devices()`.
          runtime: what runs the graphs there; None: ONNX Runtime with one thread and all its optimisations.
          effort: of one price: resolution, seconds, pairs, sessions.
        Raises:
          UnavailableError: no such device here; the message lists those that are and how to install others.
        """
        self.device, self.effort = device, effort
        self.runtime: Runtime = OnnxRuntime(device) if runtime is None else runtime
        self.native = CostModel.roofline(foretelling_preset(device))
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._warned = False

    @property
    def name(self) -> str:
        """`endtoend:<device>`."""
        return f"endtoend:{self.device}"

    def of(self, model: OnnxModel) -> EndToEndPrices:
        """See `Costs.of`. Models with one start graph, such as the same model loaded twice, share their prices."""
        if isinstance(self.runtime, OnnxRuntime):
            require_working(self.runtime.device)
        known = self._known.setdefault(model.graph.hash, _Known())
        self._known.move_to_end(model.graph.hash)
        while len(self._known) > _MOST_MODELS:
            self._known.popitem(last=False)
        return EndToEndPrices(self, model, known)

    def warn_once(self, ending: str) -> None:
        """Warns of a noisy clock, unless it has."""
        if not self._warned:
            self._warned = True
            text = f"{self.name}: {ending} Rewards carry this noise (info['reward_noise']); this is said once."
            warnings.warn(text, NoisyClockWarning, stacklevel=2)


class EndToEndPrices:
    """`EndToEnd` of one model."""

    is_free = False

    def __init__(self, costs: EndToEnd, model: OnnxModel, known: _Known) -> None:
        """Use `EndToEnd.of`."""
        self._costs, self._model, self._known = costs, model, known

    @property
    def native(self) -> CostModel:
        return self._costs.native

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`; the start graph's price has no noise, since all others are ratios to it."""
        graph_hash = state.hash
        found = self._known.recall(graph_hash)
        return self._known.keep(graph_hash, self._measured(state)) if found is None else found

    def _measured(self, state: State) -> Priced:
        if state.hash == self._model.graph.hash:
            return Priced(MeasuredCost.timed(self._start_ms(), state.cost))
        graph = Variant("rewritten", self._costs.runtime, self._model.export_detached(state.graph))
        timing = measure(self._start, [graph], self._costs.effort, feeds=self._feeds)
        resolution = self._costs.effort.resolution
        if resolution is not None and timing.precision > resolution:
            self._costs.warn_once(timing.ending)
        cost = MeasuredCost.timed(self._start_ms() * timing.ratio.value, state.cost)
        return Priced(cost, timing.ratio.half_width)

    def _start_ms(self) -> float:
        if self._known.start_ms is None:
            effort = replace(self._costs.effort, **_START)  # type: ignore[arg-type]  # of several types
            self._known.start_ms = measure(self._start, (), effort, feeds=self._feeds).reference.ms.value
        return self._known.start_ms

    @cached_property
    def _start(self) -> Variant:
        return Variant("start", self._costs.runtime, self._start_model)

    @cached_property
    def _start_model(self) -> DetachedModel:
        return self._model.export_detached(self._model.graph)

    @cached_property
    def _feeds(self) -> Feeds:
        return random_feeds(input_specs(self._start_model), np.random.default_rng(self._costs.effort.seed))
