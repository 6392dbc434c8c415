"""`measured:<device>`: graphs cost what the kernels cost that ONNX Runtime makes of them, each timed once.

The full model lowers the whole graph. The fast one, for the many graphs that a search or an agent meets, takes what an
operator costs from the first graph in which it stood among the same neighbours; only what is new is lowered, with the
operators around it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from environment.costs.interface import Priced
from environment.costs.limits import NoisyClock, Recent
from environment.costs.measured.kernel_prices import KernelPrices, price_key
from environment.costs.measured.operator_costs import OperatorCosts
from environment.costs.measured.ort_kernels import Placed, lower
from environment.costs.prices.database import PriceDatabase, default_database
from environment.costs.prices.price_list import PriceList
from environment.costs.prices.settings import Setting, setting_of
from environment.costs.prices.sqlite_file import DatabaseError
from environment.costs.roofline import foretelling_preset
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.onnx_runtime import require_kernels, require_working
from taso_ext import CostModel, Graph, OnnxModel, State
from taso_ext.onnx_io.session import Level

_MOST_MODELS = 8
"""Whose prices are kept, and with them the models: what is forgotten is soon read again."""
_MOST_PRICES = 1 << 10
"""Graphs of a model whose prices are kept, some kilobytes each: more than an episode meets."""


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

    Where a price is not sure to `kernel_prices.NOISY`, the first one comes with a `NoisyClockWarning`.

    Args:
      device: one of `environment.runtimes.onnx_runtime.kernel_devices()`.
      threads: of one operator.
      level: of ONNX Runtime's optimisation, which makes the kernels.
      database: file of the prices; None: the user's own.
    Raises:
      UnavailableError: no such device here, or one that does not show its kernels; the message lists those that are
        here and how to install others.
      DatabaseError: from `of`: the database cannot be used.
    """

    def __init__(
        self, device: str = "cpu", *, threads: int = 1, level: Level = "all", database: Path | None = None
    ) -> None:
        require_kernels(device)
        self.runtime = OnnxRuntime(device, threads, level)
        self._database = database
        self.clock = NoisyClock(self.name)
        self._models: Recent[MeasuredPrices] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """`measured:<device>`."""
        return f"measured:{self.runtime.device}"

    @cached_property
    def prices(self) -> PriceList:
        """In the database, which is opened now."""
        require_working(self.runtime.device)
        return PriceDatabase(self._database or default_database()).setting(setting_of(self.runtime))

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`. Models with one start graph share their prices."""
        return self._models.get(model.graph.hash, partial(self._new, model))

    def forget(self, model: OnnxModel) -> None:
        """What `of` returns next for a model follows its kernels' prices as they are by then.

        What it returned before keeps to the prices that it has met: graphs do not change their costs by themselves.
        """
        self._models.forget(model.graph.hash)

    def _new(self, model: OnnxModel) -> MeasuredPrices:
        return MeasuredPrices(model, self.runtime, self.prices, clock=self.clock)

    def __getstate__(self) -> dict[str, Any]:
        return _settings_alone(self.__dict__)


class Recorded:
    """The same from a database alone: nothing is measured, and the file is not written to, unless it is of an older
    version, which is brought to the present one.

    Where the device is, graphs that were never met are priced too, as long as their kernels are known. Elsewhere nobody
    can tell which kernels they would have: only operators whose surroundings were met are priced.

    Args:
      database: with the prices of one setting, or of one that is this machine's.
    Raises:
      DatabaseError: no such file, or one that cannot be used; and, from pricing, `UnrecordedError`: what has no price.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        with PriceDatabase(database, create=False) as prices:
            self.setting = _only(prices)
        self._models: Recent[MeasuredPrices] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """The file's."""
        return str(self._database)

    @cached_property
    def digest(self) -> str:
        """Of the prices, whatever else is in the file."""
        said = hashlib.sha256(str(self.setting).encode())
        for signature, price in self.prices.items():
            said.update(f"{signature} {price}".encode())
        return said.hexdigest()[:16]

    @cached_property
    def prices(self) -> PriceList:
        """In the database, which is opened now."""
        return PriceDatabase(self._database, create=False).setting(self.setting)

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`."""
        return self._models.get(model.graph.hash, partial(self._new, model))

    def _new(self, model: OnnxModel) -> MeasuredPrices:
        return MeasuredPrices(model, runtime_here(self.setting), self.prices, replay=True)

    def __getstate__(self) -> dict[str, Any]:
        return _settings_alone(self.__dict__)


def _settings_alone(state: dict[str, Any]) -> dict[str, Any]:
    """What another process is sent: neither a database that is open nor what was read from it."""
    return {name: value for name, value in state.items() if name != "prices"} | {"_models": Recent(_MOST_MODELS)}


def runtime_here(setting: Setting) -> OnnxRuntime | None:
    """That of a setting; None where its device cannot be used."""
    try:
        require_working(setting.device)
    except UnavailableError:
        return None
    return OnnxRuntime(setting.device, setting.threads, setting.level)


def _only(prices: PriceDatabase) -> Setting:
    settings = list(prices.settings())
    chosen = settings if len(settings) == 1 else [each for each in settings if _is_of_this_cpu(each)]
    if len(chosen) == 1:
        return chosen[0]
    listed = "; ".join(str(each) for each in settings) or "none"
    raise DatabaseError(
        f"{prices.path}: expected the prices of one setting, or of one of this machine, got {listed}. Take one out "
        f"with `rlflow costs export`."
    )


def _is_of_this_cpu(setting: Setting) -> bool:
    return setting.device == "cpu" and setting == setting_of(OnnxRuntime("cpu", setting.threads, setting.level))


class MeasuredPrices:
    """The costs of one model's graphs: see `Measured.of`.

    Graphs that are too large to be run (`environment.costs.limits`) have no price, unless all in them was met before.

    Args:
      runtime: what makes kernels of the graphs; None where its device is not.
      prices: of the runtime's setting.
      replay: nothing is measured: a kernel that was never recorded is an error.
      clock: what warns of prices that are not sure.
    """

    is_free = True

    def __init__(
        self,
        model: OnnxModel,
        runtime: OnnxRuntime | None,
        prices: PriceList,
        *,
        replay: bool = False,
        clock: NoisyClock | None = None,
    ) -> None:
        self._model, self._runtime, self._device = model, runtime, prices.setting.device
        self.kernels = KernelPrices(prices, None if replay else runtime, clock)
        self._operator_costs = OperatorCosts(model, runtime, self.kernels)
        self._priced: Recent[Priced] = Recent(_MOST_PRICES)
        # What the engine holds must not hold this object: nobody could tell when both may go.
        foretold_by, known = foretelling_preset(self._device), self._operator_costs.known()
        self._native = CostModel.learned(
            f"measured:{self._device}", foretold_by, self._operator_costs, *known, opset=model.opset
        )

    @property
    def native(self) -> CostModel:
        return self._native

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`."""
        return self._priced.get(state.hash, lambda: Priced(state.cost, self._operator_costs.errors(state.graph)))

    def full(self, graph: Graph) -> Totals:
        """What a graph costs as ONNX Runtime runs it.

        Raises:
          UnavailableError: the device is not here.
          UnrecordedError: a kernel has no price, in a replay.
        """
        placed, weights_mb = self.lowered(graph), graph.weights_mb
        ms = math.fsum(self.kernels.price(each.kernel, weights_mb).ms for each in placed)
        return Totals(ms, float(sum(each.nbytes for each in placed)), len(placed))

    def fast_bill(self, graph: Graph) -> Counter[str]:
        """How often the fast model takes a graph to run each kernel, by the signatures of their prices.

        Raises:
          See `price`.
        """
        graph.cost(self._native)
        return self._operator_costs.bill(graph)

    def full_bill(self, graph: Graph) -> Counter[str]:
        """How often ONNX Runtime runs each, by the same signatures.

        Raises:
          UnavailableError: the device is not here.
        """
        weights_mb = graph.weights_mb
        return Counter(price_key(each.kernel, weights_mb) for each in self.lowered(graph))

    def lowered(self, graph: Graph) -> list[Placed]:
        """The kernels that ONNX Runtime makes of a graph, in their order.

        Raises:
          UnavailableError: the device is not here.
        """
        if self._runtime is None:
            raise UnavailableError(
                f"Which kernels {self._device} runs for a graph cannot be found out here: the device is missing."
            )
        return lower(self._model.sketch(graph).model, self._runtime)
