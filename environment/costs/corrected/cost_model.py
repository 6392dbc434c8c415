"""The cost model `endtoend:<device>:timings=N`: predicted prices of kernels, corrected by whole graphs that were timed.

`EndToEnd` times each graph that it is asked for. Who learns from thousands of graphs cannot wait for this. What a
rewrite makes of a graph is known without the clock, and what its kernels take is predicted; `Corrected` spends the
clock on a few finished graphs, in batches, and all other graphs have prices that agree with these timings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from environment.costs.corrected.choice import expected_best
from environment.costs.corrected.posterior import MISFIT, Bill, Posterior, Prices, TimedGraph
from environment.costs.end_to_end import EFFORT, EndToEnd, effort_of
from environment.costs.interface import Priced
from environment.costs.limits import Recent
from environment.costs.measured.cost_model import Learned, MeasuredPrices
from environment.measurement.effort import Effort
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from taso_ext import Graph, OnnxModel, State
from taso_ext.errors import ModelError
from taso_ext.onnx_io.session import Level

DRAWS = 256
"""Joint draws of what graphs may really take."""
_MOST_BILLS = 1 << 12
"""Largest number of kept bills of graphs."""
_MOST_MODELS = 2
"""Largest number of models whose predicted prices are kept to find out bills."""


class Corrected(Learned):
    """A cost model of predicted prices that agree with the timings of at most `timings` whole graphs of a model.

        costs = Corrected("cpu", 64)
        prices = costs.of(model)                             # as predicted
        costs.time(model, graphs)                            # by the clock, in turn with the start graph
        prices = costs.of(model)                             # agree with what was timed, and say how sure they are

    Who uses it says when a batch of graphs is timed. Objects that `of` has returned before keep their prices, so that
    no graph changes its cost; new ones follow all timings so far.

    Args:
      timings: the largest number of graphs of one model that are timed.
      pairs: number of pairs of samples of one timing, however sure its ratio then is; None: as `effort` says.
      effort: effort of one timing.
      graphs: file into which timings of whole graphs are written; None records nothing.
      device, threads, level, database: see `Learned`.
    """

    kind = "endtoend"

    def __init__(
        self,
        device: str = "cpu",
        timings: int = 64,
        *,
        pairs: int | None = None,
        effort: Effort = EFFORT,
        graphs: Path | None = None,
        threads: int = 1,
        level: Level = "all",
        database: Path | None = None,
    ) -> None:
        self.timings, self._pairs, self._graphs = timings, pairs, graphs
        self._effort = effort if pairs is None else effort_of(effort, pairs)
        super().__init__(device, threads=threads, level=level, database=database)
        self._timed: dict[str, list[TimedGraph]] = {}
        self._unrunnable: set[str] = set()
        self._forget_bills()

    def _forget_bills(self) -> None:
        self._bills: Recent[Bill] = Recent(_MOST_BILLS)
        self._predicted: Recent[MeasuredPrices] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """`endtoend:<device>:timings=<number>`, with the pairs of a timing if they are given."""
        pairs = "" if self._pairs is None else f",pairs={self._pairs}"
        return f"endtoend:{self.runtime.device}:timings={self.timings}{pairs}"

    @cached_property
    def clock_of_graphs(self) -> EndToEnd:
        """Times whole graphs."""
        return EndToEnd(self.runtime.device, runtime=self.runtime, effort=self._effort, database=self._graphs)

    def timed(self, model: OnnxModel) -> tuple[TimedGraph, ...]:
        """Returns the graphs of a model that were timed so far."""
        return tuple(self._timed.get(model.graph.hash, ()))

    def left(self, model: OnnxModel) -> int:
        """Returns how many graphs of a model may still be timed."""
        return self.timings - len(self.timed(model))

    def restore(self, model: OnnxModel, timed: Sequence[TimedGraph]) -> None:
        """Takes graphs that were timed before as if they had been timed now; known ones change nothing."""
        known = self._timed.setdefault(model.graph.hash, [])
        new = [each for each in timed if each.hash not in {other.hash for other in known}]
        if new:
            known += new
            self.forget(model)

    def choose(self, model: OnnxModel, graphs: Sequence[Graph], most: int, seed: int) -> list[int]:
        """Returns the places of the graphs that are worth timing next, the best one first; see `expected_best`.

        Graphs that were timed, cannot be run, or are the start graph are not among them.

        Args:
          most: largest number of graphs, beside the limit of `timings`.
          seed: determines the draws of what the graphs may take.
        """
        known = self._known(model)
        places = {graph.hash: place for place, graph in enumerate(graphs) if graph.hash not in known}
        if not places or min(most, self.left(model)) < 1:
            return []
        bills = [self._bill(model, graphs[place]) for place in places.values()]
        prices, posterior = self._corrected(model, bills)
        parts = prices.parts_ms([self._bill(model, model.graph), *bills]) * posterior.factor
        rng = np.random.default_rng(seed)
        ms = posterior.drawn_ms(parts, DRAWS, rng)
        possible = ms[1:] / ms[0] * np.exp(MISFIT * rng.standard_normal((len(bills), DRAWS)))
        best = max((1 - each.ratio for each in self.timed(model)), default=0.0)
        order = list(places.values())
        return [order[each] for each in expected_best(possible, min(most, self.left(model)), best)]

    def time(self, model: OnnxModel, graphs: Sequence[Graph]) -> int:
        """Times graphs of a model that were not timed before, as far as the limit allows.

        A graph that cannot be run is left out, and is not tried again.

        Returns:
          How many were timed. If any was, the next `of` returns other prices.
        Raises:
          ModelError: the start graph cannot be run.
        """
        before = len(self.timed(model))
        for graph in graphs:
            if graph.hash in self._known(model) or not self.left(model):
                continue
            clock = self.clock_of_graphs.of(model)
            clock.start_ms()  # without it, nothing can be timed
            try:
                found = clock.timed(graph)
            except ModelError:
                self._unrunnable.add(graph.hash)
                continue
            timed = TimedGraph(graph.hash, self._bill(model, graph), found.ratio, found.spread)
            self._timed.setdefault(model.graph.hash, []).append(timed)
        number = len(self.timed(model)) - before
        if number:
            self.forget(model)
        return number

    def forget(self, model: OnnxModel) -> None:
        """See `Measured.forget`; predictions stay, since a timing of a graph is no timing of a kernel."""
        self._models.forget(model.graph.hash)

    def _known(self, model: OnnxModel) -> set[str]:
        """Returns the hashes of the graphs of a model that are not to be timed any more."""
        return {model.graph.hash, *self._unrunnable, *(each.hash for each in self.timed(model))}

    def _as_predicted(self, model: OnnxModel) -> MeasuredPrices:
        """Returns the costs of a model's graphs before any of them was timed."""
        return self._predicted.get(model.graph.hash, partial(super()._new, model))

    def _bill(self, model: OnnxModel, graph: Graph) -> Bill:
        """Returns the kernels of a graph, which do not depend on what they cost."""
        return self._bills.get(graph.hash, lambda: dict(self._as_predicted(model).fast_bill(graph)))

    def _corrected(self, model: OnnxModel, others: Sequence[Bill] = ()) -> tuple[Prices, Posterior]:
        """Returns the prices of the kernels of all timed graphs, and of others, and what the timings say of them."""
        timed = self.timed(model)
        start = self._bill(model, model.graph)
        keys = sorted({key for bill in (start, *(each.bill for each in timed), *others) for key in bill})
        kernels = self._as_predicted(model).kernels
        kernels.foresee(keys)
        found = [kernels.of(key) for key in keys]
        deviation = np.array([each.spread for each in found]) / NORMAL_HALF_WIDTH
        prices = Prices(keys, np.array([each.ms for each in found]), deviation)
        return prices, Posterior(prices, start, timed)

    def _new(self, model: OnnxModel) -> MeasuredPrices:
        if not self.timed(model):
            return super()._new(model)
        prices, posterior = self._corrected(model)
        factors = dict(zip(prices.keys, posterior.factor.tolist(), strict=True))
        return CorrectedPrices(self, model, prices, posterior, factors)

    def __getstate__(self) -> dict[str, Any]:
        opened = ("clock_of_graphs", "_bills", "_predicted")
        return {name: value for name, value in super().__getstate__().items() if name not in opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget_bills()


class CorrectedPrices(MeasuredPrices):
    """The costs of one model's graphs, by prices that agree with the timings of some of them."""

    def __init__(
        self, costs: Corrected, model: OnnxModel, prices: Prices, posterior: Posterior, factors: dict[str, float]
    ) -> None:
        """Use `Corrected.of` instead of this constructor."""
        super().__init__(
            model, costs.runtime, costs.prices, clock=costs.clock, predictor=costs.predictions, factors=factors
        )
        self._prices, self._posterior, self._factors = prices, posterior, factors

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`. The errors of kernels that were timed together are not independent any more.

        They are contributions of independent quantities, with signs, and bear the names of the kernels all the same.
        """
        return self._priced.get(state.hash, partial(self._with_errors, state))

    def _with_errors(self, state: State) -> Priced:
        bill = self._operator_costs.bill(state.graph)
        known = {key: count for key, count in bill.items() if key in self._factors}
        parts = self._prices.parts_ms([known]) * self._posterior.factor
        errors = NORMAL_HALF_WIDTH * self._posterior.deviations(parts)[0]
        shared = dict(zip(self._prices.keys, errors.tolist(), strict=True))
        alone = self._operator_costs.errors_of({key: bill[key] for key in bill.keys() - known.keys()})
        return Priced(state.cost, {**shared, **alone})
