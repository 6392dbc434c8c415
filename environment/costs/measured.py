"""`measured:<device>`: graphs cost what the kernels cost that ONNX Runtime makes of them, each timed once.

The full model lowers the whole graph. The fast one, for the many graphs that a search or an agent meets, takes what an
operator costs from the first graph in which it stood among the same neighbours; only what is new is lowered, with the
operators around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from environment.affordable import affordable
from environment.costs.analytic import foretelling_preset
from environment.costs.interface import Priced
from environment.costs.kernel_prices import KernelPrices
from environment.costs.lowering import Placed, lower
from environment.costs.neighbourhood import neighbourhood
from environment.costs.price_database import DatabaseError, PriceDatabase, PriceList, Setting, default_database
from environment.costs.settings import setting_of
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.devices import require_working
from taso_ext import Cost, CostModel, Graph, OnnxModel, State

DISTANCE = 5
"""Nodes around a new operator that are lowered with it: as far as fusions and layouts reach."""
_WHOLE = 0.5
"""The whole graph is lowered if more of its operators than this are new."""


class Totals(NamedTuple):
    """Of a graph: run time, memory traffic and kernels."""

    ms: float
    memory_bytes: float
    kernel_launches: int


class Measured:
    """The sum of what a graph's kernels take.

        costs = Measured("cpu")
        env = GraphSubstitutionEnv("bert-base", costs=costs)

    Kernels are timed when they are first met, and their prices kept in a database that other processes may use too. It
    pickles to its settings: a process that is given one opens the database itself, and so agrees with the others.

    Args:
      device: one of `environment.runtimes.available_devices()`.
      threads: of one operator.
      database: file of the prices; None: the user's own.
    Raises:
      UnavailableError: no such device here; the message lists those that are and how to install others.
      DatabaseError: from `of`: the database cannot be used.
    """

    def __init__(self, device: str = "cpu", *, threads: int = 1, database: Path | None = None) -> None:
        self.runtime = OnnxRuntime(device, threads)
        self._database = database
        self._prices: dict[str, MeasuredPrices] = {}

    @property
    def name(self) -> str:
        """`measured:<device>`."""
        return f"measured:{self.runtime.device}"

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`."""
        if model.graph.hash not in self._prices:
            require_working(self.runtime.device)
            database = PriceDatabase(self._database or default_database())
            prices = database.setting(setting_of(self.runtime))
            self._prices[model.graph.hash] = MeasuredPrices(model, self.runtime, prices)
        return self._prices[model.graph.hash]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prices": {}}


class Recorded:
    """The same from a database alone: nothing is measured, and the file is not written to.

    Where the device is, graphs that were never met are priced too, as long as their kernels are known. Elsewhere nobody
    can tell which kernels they would have: only operators whose surroundings were met are priced.

    Args:
      database: with the prices of one setting, or of one that is this machine's.
    Raises:
      DatabaseError: no such file, or one that cannot be used; and, from pricing, a price that was not recorded.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        with PriceDatabase(database, create=False) as prices:
            self.setting = _only(prices)
        self._prices: dict[str, MeasuredPrices] = {}

    @property
    def name(self) -> str:
        """The file's."""
        return str(self._database)

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`."""
        if model.graph.hash not in self._prices:
            prices = PriceDatabase(self._database, create=False).setting(self.setting)
            self._prices[model.graph.hash] = MeasuredPrices(model, replaying_runtime(self.setting), prices, replay=True)
        return self._prices[model.graph.hash]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prices": {}}


def replaying_runtime(setting: Setting) -> OnnxRuntime:
    """That of a setting, or, where its device cannot be used, one of the CPU."""
    try:
        require_working(setting.device)
    except UnavailableError:
        return OnnxRuntime("cpu", setting.threads)
    return OnnxRuntime(setting.device, setting.threads)


def _only(prices: PriceDatabase) -> Setting:
    settings = list(prices.settings())
    here = [each for each in settings if each.device == "cpu" and each == setting_of(OnnxRuntime("cpu", each.threads))]
    chosen = settings if len(settings) == 1 else here
    if len(chosen) == 1:
        return chosen[0]
    listed = "; ".join(str(each) for each in settings) or "none"
    raise DatabaseError(
        f"{prices.path}: expected the prices of one setting, or of one of this machine, got {listed}. Take one out "
        f"with `rlflow costs export`."
    )


class MeasuredPrices:
    """The costs of one model's graphs: see `Measured.of`.

    Of graphs that are too large to be run (`environment.affordable`) nothing is measured: what is new in them is
    foretold, each time anew, from what its like has cost.

    Args:
      prices: of the runtime's setting.
      replay: nothing is measured: a kernel that was never recorded is an error.
    """

    is_free = True

    def __init__(self, model: OnnxModel, runtime: OnnxRuntime, prices: PriceList, *, replay: bool = False) -> None:
        self._model, self._runtime, self._prices, self._replay = model, runtime, prices, replay
        self._kernels: dict[int, KernelPrices] = {}
        names, rows = prices.appraisals()
        self._priced: tuple[str, Priced] | None = None
        device = prices.setting.device
        foretold_by = foretelling_preset(device)
        self._work = CostModel.roofline(foretold_by)
        self._native = CostModel.learned(f"measured:{device}", foretold_by, self._appraise, names, rows)

    @property
    def native(self) -> CostModel:
        return self._native

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`; the noise is that of the start graph's kernels, most of which all graphs share."""
        graph_hash = state.hash
        if self._priced is None or self._priced[0] != graph_hash:
            self._priced = graph_hash, Priced(state.cost, self.noise)
        return self._priced[1]

    @cached_property
    def noise(self) -> float:
        """Half the width of the 95 % interval of the start graph's time, from those of its kernels' prices.

        In a replay on another machine, whose runtime makes other kernels, of those that were recorded, or of all.
        """
        known = self.kernels(self._model.graph)
        kernels = [each.kernel for each in self.lowered(self._model.graph)]
        if self._replay:
            prices = [price for price in map(known.known, kernels) if price]
            prices = prices or [price for _, price in self._prices.items()]
        else:
            prices = [known.price(kernel) for kernel in kernels]
        total = sum(price.ms for price in prices)
        variance = sum((price.ms * price.standard_error) ** 2 for price in prices)
        return 1.96 * math.sqrt(variance) / total if total > 0 else 0.0

    @cached_property
    def _start_work(self) -> Cost:
        return self._model.graph.cost(self._work)

    def full(self, graph: Graph) -> Totals:
        """What a graph costs as ONNX Runtime runs it."""
        placed = self.lowered(graph)
        ms, moved, launches = self._rows(graph, placed).sum(axis=0).tolist()
        return Totals(ms, moved, round(launches))

    def lowered(self, graph: Graph) -> list[Placed]:
        """The kernels that ONNX Runtime makes of a graph, in their order."""
        return lower(self._model.sketch(graph).model, self._runtime)

    def kernels(self, graph: Graph) -> KernelPrices:
        """Prices of the kernels of a graph."""
        size = graph.weights_mb
        if size not in self._kernels:
            self._kernels[size] = KernelPrices(self._prices, size, None if self._replay else self._runtime)
        return self._kernels[size]

    def _rows(self, graph: Graph, placed: Sequence[Placed]) -> npt.NDArray[np.float64]:
        """[n, 3]: ms, bytes, launches of each kernel, some of a graph's."""
        prices = self.kernels(graph)
        rows = [(prices.price(each.kernel).ms, each.nbytes, 1.0) for each in placed]
        return np.array(rows, np.float64).reshape(-1, 3)

    def _appraise(self, graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        """[n, 3]: ms, bytes, launches of some run-time operators, lowered with what stands around them.

        NaN, 0, 0 where that would need a graph to be run that is too large.
        """
        if not affordable(self._start_work, graph.cost(self._work)):
            return np.full((len(positions), 3), (np.nan, 0.0, 0.0))
        if self._runtime.device != self._prices.setting.device:
            raise DatabaseError(self._unmet(graph, positions))
        sketch = self._model.sketch(graph)
        costs = {position: np.zeros(3) for position in positions}
        wanted = {name for name, position in sketch.computed_by.items() if position in costs}
        part = sketch.model
        if len(positions) < _WHOLE * len(sketch.model.skeleton.graph.node):
            part = neighbourhood(part, wanted, DISTANCE, sketch.types)
        placed = lower(part, self._runtime, sketch.model)
        for each, row in zip(placed, self._rows(graph, placed), strict=True):
            position = sketch.computed_by.get(each.value, -1)
            if position in costs:
                costs[position] += row
        found = np.array([costs[position] for position in positions])
        if not self._replay:
            self._prices.put_appraisals(graph.surroundings()[positions], found)
        return found

    def _unmet(self, graph: Graph, positions: Sequence[int]) -> str:
        running = [node for node in graph.nodes() if not node.weight_only]
        operators = ", ".join(sorted({running[position].op_type for position in positions}))
        device = self._prices.setting.device
        return (
            f"{self._prices.place} has no prices of {operators} where they stand now in the graph, and which kernels "
            f"{device} would run there cannot be found out without it. Record more on a machine that has it: run the "
            f"same command with --costs measured:{device} there, or `rlflow costs record` with more --walks, and then "
            f"`rlflow costs export`."
        )
