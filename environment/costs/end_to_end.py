"""`endtoend:<device>`: the run time of whole graphs, measured in the runtime that they are made for.

`EndToEnd` times graphs and can record them in a database of prices; `RecordedEndToEnd` replays such a database.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from environment.costs.interface import FROZEN, MeasuredCost, Noise, Priced
from environment.costs.limits import NoisyClock, Recent
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.graph_prices import GraphPrice, GraphPrices, kept
from environment.costs.prices.price_list import UnrecordedError
from environment.costs.prices.settings import Setting, setting_of
from environment.costs.resampling import Factors, Sum, drawn_price, named, single_spread
from environment.costs.roofline import predicting_preset
from environment.inputs import Feeds, input_specs, timing_feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime, Runtime
from environment.runtimes.onnx_runtime import require_working
from taso_ext import CostModel, Graph, OnnxModel, State
from taso_ext.onnx_io.checked_model import CheckedModel

EFFORT = Effort(resolution=0.01, pairs=400, seconds=20.0, sessions=3, control=False)
"""Effort of one price. On a quiet machine 9 to 61 pairs reach one percent; the other limits are for noisy machines."""
_START = {"resolution": None, "pairs": 6, "sessions": 2}
"""Changes of the effort for the start graph: its time is only a unit, since all rewards compare ratios to it."""
_MOST_PRICES = 1 << 16
"""Largest number of kept prices of one model, about 20 MB."""
_MOST_MODELS = 64


def effort_of(effort: Effort, pairs: int) -> Effort:
    """Returns the effort of a price that rests on exactly so many pairs, of one session, however sure it then is."""
    return replace(effort, resolution=None, pairs=pairs, seconds=0.0, sessions=1)


@dataclass
class _Known:
    """The measurements of one start graph and of the graphs that rewriting makes of it.

    Attributes:
      start_ms: run time of one inference of the start graph; None before it was measured.
      prices: prices by graph hash.
    """

    start_ms: float | None = None
    prices: Recent[_Graph] = field(default_factory=lambda: Recent(_MOST_PRICES))


@dataclass(frozen=True)
class _Graph:
    """The price of a graph, and how single timings of it vary."""

    price: Priced
    noisy: Sum

    @classmethod
    def of(cls, state: State, unit_ms: float, found: GraphPrice) -> _Graph:
        """Returns the price of a state's graph, given the unit: the time of the start graph."""
        cost = MeasuredCost.timed(unit_ms * found.ratio, state.cost)
        factors = Factors.of(found.timings, single_spread(found.spread, len(found.timings)))
        return cls(Priced(cost, {state.hash: found.spread * cost.ms}), Sum([1.0], [factors]))


class EndToEnd:
    """A cost model that times each whole graph against the start graph, in one interleaved run.

        costs = EndToEnd("cpu", effort=replace(EFFORT, resolution=0.005, seconds=60.0))
        env = GraphSubstitutionEnv("squeezenet1.1", costs=costs, reward="percent")

    A price is the start graph's time, which is measured once, times the measured ratio. A machine that becomes slower
    therefore makes no graph dearer. `native`, a roofline (xeon for CPUs, h200 for NVIDIA's devices), counts FLOPs,
    bytes and launches. It also predicts the costs of rewrites, so that a look-ahead or a search times nothing. Every
    graph is timed once; all environments that share this object share its prices, which stay in memory.

    With `noise="resampled"` rewards are made of one of the graph's paired timings, which is drawn
    (`environment.costs.resampling`). The start graph has no noise, since all others are ratios to it.

    If the clock is too noisy for the requested resolution, prices state the interval that was reached, and the first
    such price comes with a `NoisyClockWarning`.
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        runtime: Runtime | None = None,
        effort: Effort = EFFORT,
        noise: Noise = FROZEN,
        database: Path | None = None,
    ) -> None:
        """
        Args:
          device: one of `environment.runtimes.available_devices()`.
          runtime: runs the graphs there; None means ONNX Runtime with one thread and all its optimisations.
          effort: effort of one price: resolution, seconds, pairs, sessions.
          noise: whether rewards are made of drawn costs.
          database: file into which the timings are written, for `RecordedEndToEnd`; they are never read from it. None
            records nothing.
        Raises:
          UnavailableError: the device is not here; the message lists the devices that are and how to install others.
        """
        self.device, self.effort, self.noise, self._database = device, effort, noise, database
        self.runtime: Runtime = OnnxRuntime(device) if runtime is None else runtime
        self.native = CostModel.roofline(predicting_preset(device))
        self.clock = NoisyClock(self.name)
        self._known: Recent[_Known] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """`endtoend:<device>`, with the noise unless it is frozen."""
        return named(f"endtoend:{self.device}", self.noise)

    @cached_property
    def recorded(self) -> GraphPrices | None:
        """Where timings are recorded, if they are; the first access opens the database."""
        if self._database is None or not isinstance(self.runtime, OnnxRuntime):
            return None
        return PriceDatabase(self._database).setting(setting_of(self.runtime)).graphs

    def of(self, model: OnnxModel) -> EndToEndPrices:
        """See `Costs.of`. Models with the same start graph share their prices."""
        if isinstance(self.runtime, OnnxRuntime):
            require_working(self.runtime.device)
        return EndToEndPrices(self, model, self._known.get(model.graph.hash, _Known))


class _PricedGraphs:
    """Prices, and draws of prices, of graphs that were timed as a whole."""

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`. The start graph's price has no noise, since all others are ratios to it."""
        return self._graph(state).price

    def draw(self, state: State, rng: np.random.Generator) -> Priced:
        """See `DrawnCosts.draw`."""
        graph = self._graph(state)
        return drawn_price(graph.price.cost, graph.noisy, state.hash, rng)

    def _graph(self, state: State) -> _Graph:
        raise NotImplementedError


class EndToEndPrices(_PricedGraphs):
    """The end-to-end costs of one model's graphs."""

    is_free = False
    sums_nodes = False

    def __init__(self, costs: EndToEnd, model: OnnxModel, known: _Known) -> None:
        """Use `EndToEnd.of` instead of this constructor."""
        self._costs, self._model, self._known, self.noise = costs, model, known, costs.noise

    @property
    def native(self) -> CostModel:
        return self._costs.native

    def _graph(self, state: State) -> _Graph:
        return self._known.prices.get(state.hash, partial(self._found, state))

    def _found(self, state: State) -> _Graph:
        return _Graph.of(state, self.start_ms(), self.timed(state.graph))

    def timed(self, graph: Graph) -> GraphPrice:
        """Times a graph against the start graph, whether or not it was timed before, and records the timing.

        Raises:
          ModelError: the graph cannot be run.
        """
        found = self._measured(graph, self.start_ms())
        if self._costs.recorded is not None:
            self._costs.recorded.put(self._model.graph.hash, graph.hash, found)
        return found

    def _measured(self, graph: Graph, start_ms: float) -> GraphPrice:
        if graph.hash == self._model.graph.hash:
            return GraphPrice(start_ms, 1.0, 0.0)
        rewritten = Variant("rewritten", self._costs.runtime, self._model.export_checked(graph))
        timing = measure(self._start, [rewritten], self._costs.effort, feeds=self._feeds)
        resolution = self._costs.effort.resolution
        if resolution is not None and timing.precision > resolution:
            self._costs.clock.warn(timing.ending)
        (candidate,) = timing.candidates
        return GraphPrice(start_ms, timing.ratio.value, timing.ratio.half_width, kept(candidate.ratios))

    def start_ms(self) -> float:
        """Returns the run time of the start graph [ms], which is measured once.

        Raises:
          ModelError: it cannot be run.
        """
        if self._known.start_ms is None:
            effort = replace(self._costs.effort, **_START)  # type: ignore[arg-type]  # of several types
            self._known.start_ms = measure(self._start, (), effort, feeds=self._feeds).reference.ms.value
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


class RecordedEndToEnd:
    """A cost model like `EndToEnd` that reads all times from a database. It needs no device and opens no session.

    A rewrite to a graph that was not timed ends the episode, because such a graph has no price.

    Args:
      database: a file with the prices of one setting, or of one that is this machine's.
      noise: see `EndToEnd`.
    Raises:
      DatabaseError: the file is missing or cannot be used.
      UnrecordedError: from pricing, if a graph was not timed.
    """

    def __init__(self, database: Path, noise: Noise = FROZEN) -> None:
        self._database, self.noise = database, noise
        with PriceDatabase(database, create=False) as prices:
            self.setting: Setting = prices.only_setting()
        self.native = CostModel.roofline(predicting_preset(self.setting.device))

    @property
    def name(self) -> str:
        """The path of the file with its parameters."""
        noise = "" if self.noise == FROZEN else f",noise={self.noise}"
        return f"{self._database}:kind=endtoend{noise}"

    @cached_property
    def digest(self) -> str:
        """Hash of the setting and of all graphs' times."""
        said = hashlib.sha256(str(self.setting).encode())
        for start, graph, price in self.graphs.items():
            said.update(f"{start} {graph} {price}".encode())
        return said.hexdigest()[:16]

    @cached_property
    def graphs(self) -> GraphPrices:
        """The times of the setting; the first access opens the database."""
        return PriceDatabase(self._database, create=False).setting(self.setting).graphs

    def of(self, model: OnnxModel) -> RecordedGraphs:
        """See `Costs.of`.

        Raises:
          UnrecordedError: the model was not timed.
        """
        return RecordedGraphs(self, model.graph.hash)


class RecordedGraphs(_PricedGraphs):
    """The recorded end-to-end times of one model's graphs; see `RecordedEndToEnd.of`."""

    is_free = True
    sums_nodes = False
    may_lack_prices = True

    def __init__(self, costs: RecordedEndToEnd, start: str) -> None:
        """Use `RecordedEndToEnd.of` instead of this constructor."""
        self._costs, self._start, self.noise, self.native = costs, start, costs.noise, costs.native
        self._unit_ms = self._recorded(start).start_ms
        self._graphs: Recent[_Graph] = Recent(_MOST_PRICES)

    def _graph(self, state: State) -> _Graph:
        return self._graphs.get(state.hash, lambda: _Graph.of(state, self._unit_ms, self._recorded(state.hash)))

    def _recorded(self, graph: str) -> GraphPrice:
        found = self._costs.graphs.get(self._start, graph)
        if found is not None:
            return found
        what = "the model" if graph == self._start else "a graph that rewriting has made"
        raise UnrecordedError(
            f"{self._costs.name} has no end-to-end time of {what}, and a replay measures nothing. Record it where the "
            f"others were: run the same command with --costs endtoend:{self._costs.setting.device} there, and then "
            f"`rlflow costs export`."
        )
