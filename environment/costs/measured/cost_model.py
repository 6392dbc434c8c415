"""`measured:<device>` and `learned:<device>`: the cost of a graph is the sum of its kernels' prices.

The price of a kernel is measured once. Until then it is predicted from other kernels.

ONNX Runtime decides which kernels a graph has. The full model lowers the whole graph. The fast model serves the many
graphs that a search or an agent meets: it takes the cost of an operator from the first graph in which the operator had
the same neighbours, and lowers only what is new, with the operators around it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from environment.costs.interface import FROZEN, Noise, Priced
from environment.costs.learned.adaptation import Predictions
from environment.costs.limits import NoisyClock, Recent, most_work
from environment.costs.measured.kernel_prices import KernelPrices, Predicts, price_key
from environment.costs.measured.operator_costs import OperatorCosts
from environment.costs.measured.ort_kernels import Placed, lower
from environment.costs.prices.database import PriceDatabase, default_database
from environment.costs.prices.price_list import PriceList
from environment.costs.prices.settings import Setting, setting_of
from environment.costs.resampling import Sum, drawn_price, named
from environment.costs.roofline import predicting_preset
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.onnx_runtime import require_kernels, require_working
from taso_ext import CostModel, Graph, OnnxModel, State
from taso_ext.onnx_io.session import Level

_MOST_MODELS = 8
"""Largest number of models whose prices stay in memory; others are soon read again from the database."""
_MOST_PRICES = 1 << 10
"""Largest number of kept prices of a model, some kilobytes each: more than the graphs of an episode."""


class Totals(NamedTuple):
    """Run time, memory traffic and number of kernels of a graph."""

    ms: float
    memory_bytes: float
    kernel_launches: int


class Measured:
    """A cost model that prices a graph by the sum of its kernels' measured times.

        costs = Measured("cpu")
        env = GraphSubstitutionEnv("bert-base", costs=costs)

    The price of a kernel is predicted until something depends on it (`environment.costs.measured.retiming`); then the
    kernel is timed, and its price is kept in a database that several processes may share. The object pickles to its
    settings: a process that receives it opens the database itself, and so agrees with the others.

    The first price that is less sure than `kernel_prices.NOISY` comes with a `NoisyClockWarning`.

    Args:
      device: one of `environment.runtimes.onnx_runtime.kernel_devices()`.
      threads: threads of one operator.
      level: level of ONNX Runtime's optimisation, which makes the kernels.
      database: file of the prices; None means the user's own.
      predict: whether prices are predicted; if not, each kernel is timed when it is first met.
      noise: whether rewards are made of costs that are drawn from recorded timings (`environment.costs.resampling`).
    Attributes:
      kind: the kind in its name.
      times: whether kernels are timed on which a decision depends.
    Raises:
      UnavailableError: the device is not here or does not show its kernels; the message lists the devices that do and
        how to install others.
      DatabaseError: from `of`, if the database cannot be used.
    """

    kind, times = "measured", True

    def __init__(
        self,
        device: str = "cpu",
        *,
        threads: int = 1,
        level: Level = "all",
        database: Path | None = None,
        predict: bool = True,
        noise: Noise = FROZEN,
    ) -> None:
        require_kernels(device)
        self.runtime = OnnxRuntime(device, threads, level)
        self._database, self._predict, self.noise = database, predict, noise
        self.clock = NoisyClock(self.name)
        self._models: Recent[MeasuredPrices] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """`measured:<device>`, with the noise unless it is frozen."""
        return named(f"{self.kind}:{self.runtime.device}", self.noise)

    @cached_property
    def prices(self) -> PriceList:
        """The price list of the runtime's setting; the first access opens the database."""
        require_working(self.runtime.device)
        return PriceDatabase(self._database or default_database()).setting(setting_of(self.runtime))

    @cached_property
    def predictions(self) -> Predictions | None:
        """Predicts the prices of the setting from all that it has when the first of them is asked for."""
        return Predictions(self.prices, self.runtime, self.clock) if self._predict else None

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`. Models with one start graph share their prices."""
        return self._models.get(model.graph.hash, partial(self._new, model))

    def forget(self, model: OnnxModel) -> None:
        """Makes the next `of` of a model follow the prices that the database has by then.

        Objects that `of` has returned before keep the prices that they have met, so that no graph changes its cost.
        """
        self._models.forget(model.graph.hash)
        self.__dict__.pop("predictions", None)  # what has been timed since improves the predictions too

    def _new(self, model: OnnxModel) -> MeasuredPrices:
        return MeasuredPrices(
            model, self.runtime, self.prices, clock=self.clock, predictor=self.predictions, noise=self.noise
        )

    def __getstate__(self) -> dict[str, Any]:
        return _settings_alone(self.__dict__)


class Learned(Measured):
    """A cost model like `Measured` that predicts all prices that are not recorded, and never times a kernel for them.

    On a machine that is new to it, it times at most `environment.costs.learned.adaptation.REFERENCES` kernels once.
    """

    kind, times = "learned", False


class Recorded:
    """A cost model like `Measured` that reads all prices from a database and measures nothing.

    The file is not written to, unless it has to be brought from an older version to the present one.

    If the device is present, new graphs are priced too as long as the prices of their kernels are known. If not, their
    kernels cannot be found out, and only operators with a known neighbourhood signature have a price.

    Args:
      database: a file with the prices of one setting, or of one that is this machine's.
      noise: see `Measured`.
    Raises:
      DatabaseError: the file is missing or cannot be used.
      UnrecordedError: from pricing, if a price is missing.
    """

    def __init__(self, database: Path, noise: Noise = FROZEN) -> None:
        self._database, self.noise = database, noise
        with PriceDatabase(database, create=False) as prices:
            self.setting = prices.only_setting()
        self._models: Recent[MeasuredPrices] = Recent(_MOST_MODELS)

    @property
    def name(self) -> str:
        """The path of the file, with the noise unless it is frozen."""
        return named(str(self._database), self.noise)

    @cached_property
    def digest(self) -> str:
        """Hash of the setting and its prices, and of single timings if costs are drawn from them."""
        said = hashlib.sha256(str(self.setting).encode())
        for signature, price in self.prices.items():
            said.update(f"{signature} {price}".encode())
        if self.noise != FROZEN:
            said.update(repr(self.prices.all_timings()).encode())
        return said.hexdigest()[:16]

    @cached_property
    def prices(self) -> PriceList:
        """The price list of the setting; the first access opens the database."""
        return PriceDatabase(self._database, create=False).setting(self.setting)

    def of(self, model: OnnxModel) -> MeasuredPrices:
        """See `Costs.of`."""
        return self._models.get(model.graph.hash, partial(self._new, model))

    def _new(self, model: OnnxModel) -> MeasuredPrices:
        return MeasuredPrices(model, runtime_here(self.setting), self.prices, replay=True, noise=self.noise)

    def __getstate__(self) -> dict[str, Any]:
        return _settings_alone(self.__dict__)


def _settings_alone(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state to pickle, without the open database and what was read from it."""
    return {name: value for name, value in state.items() if name not in _OPENED} | {"_models": Recent(_MOST_MODELS)}


_OPENED = ("prices", "predictions")


def runtime_here(setting: Setting) -> OnnxRuntime | None:
    """Returns the runtime of a setting; None if its device cannot be used."""
    try:
        require_working(setting.device)
    except UnavailableError:
        return None
    return OnnxRuntime(setting.device, setting.threads, setting.level)


class MeasuredPrices:
    """The costs of one model's graphs: see `Measured.of`.

    A graph that is too large to be run (`environment.costs.limits`) has no price, unless all its operators are known.

    Args:
      model: the model whose graphs are priced.
      runtime: the runtime that makes kernels of the graphs; None if its device is missing.
      prices: the price list of the runtime's setting.
      replay: whether nothing is measured, so that a kernel without a recorded price is an error.
      clock: the warning of imprecise prices.
      predictor: predicts prices; None: kernels are timed when they are first met, or are an error.
      noise: see `Measured`.
      factors: see `KernelPrices`.
    """

    is_free = True
    sums_nodes = True

    def __init__(
        self,
        model: OnnxModel,
        runtime: OnnxRuntime | None,
        prices: PriceList,
        *,
        replay: bool = False,
        clock: NoisyClock | None = None,
        predictor: Predicts | None = None,
        noise: Noise = FROZEN,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.noise = noise
        self._model, self._runtime, self._device = model, runtime, prices.setting.device
        self.kernels = KernelPrices(prices, None if replay else runtime, clock, predictor, factors)
        self._operator_costs = OperatorCosts(model, runtime, self.kernels)
        self._priced: Recent[Priced] = Recent(_MOST_PRICES)
        self._noisy: Recent[Sum] = Recent(_MOST_PRICES)
        # The engine holds the operator costs. They must not refer to this object, since the cycle would never be freed.
        predicted_by, known = predicting_preset(self._device), self._operator_costs.known()
        self._native = CostModel.learned(
            f"measured:{self._device}",
            predicted_by,
            self._operator_costs,
            *known,
            opset=model.opset,
            most=most_work(model.graph.cost(CostModel.roofline(predicted_by))),
        )

    @property
    def native(self) -> CostModel:
        return self._native

    @property
    def lowerings(self) -> int:
        """How often graphs or parts of them were lowered to find out the kernels of operators."""
        return self._operator_costs.lowerings

    def price(self, state: State) -> Priced:
        """See `ModelCosts.price`."""
        return self._priced.get(state.hash, lambda: Priced(state.cost, self._operator_costs.errors(state.graph)))

    def draw(self, state: State, rng: np.random.Generator) -> Priced:
        """See `DrawnCosts.draw`. All runs of one kernel take equally long in a draw."""
        noisy = self._noisy.get(state.hash, lambda: self._operator_costs.noisy_sum(state.graph))
        return drawn_price(self.price(state).cost, noisy, state.hash, rng)

    def full(self, graph: Graph) -> Totals:
        """Returns the cost of a graph by the full model, as ONNX Runtime runs it.

        Raises:
          UnavailableError: the device is not here.
          UnrecordedError: a kernel has no price, and this is a replay.
        """
        placed, weights_mb = self.lowered(graph), graph.weights_mb
        self.kernels.foresee([price_key(each.kernel, weights_mb) for each in placed])
        ms = math.fsum(self.kernels.price(each.kernel, weights_mb).ms for each in placed)
        return Totals(ms, float(sum(each.nbytes for each in placed)), len(placed))

    def fast_bill(self, graph: Graph) -> Counter[str]:
        """Returns how often each kernel runs in a graph by the fast model, by the signature of its price.

        Raises:
          See `price`.
        """
        graph.cost(self._native)
        return self._operator_costs.bill(graph)

    def full_bill(self, graph: Graph) -> Counter[str]:
        """Returns how often each kernel runs in a graph by the full model, by the signature of its price.

        Raises:
          UnavailableError: the device is not here.
        """
        weights_mb = graph.weights_mb
        return Counter(price_key(each.kernel, weights_mb) for each in self.lowered(graph))

    def lowered(self, graph: Graph) -> list[Placed]:
        """Returns the kernels that ONNX Runtime makes of a graph, in their order.

        Raises:
          UnavailableError: the device is not here.
        """
        if self._runtime is None:
            raise UnavailableError(
                f"Which kernels {self._device} runs for a graph cannot be found out here: the device is missing."
            )
        return lower(self._model.sketch(graph).model, self._runtime)
