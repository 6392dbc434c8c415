"""The interface of cost models, which price the graphs of a model exactly or by measuring them.

    costs = cost_models.find("endtoend:cpu")
    prices = costs.of(model)                                 # for the rewrites of one model
    state = State(model.graph, rules, prices.native)         # `native` predicts the costs of candidates
    priced = prices.price(state)                             # the cost of the state's own graph
    print(f"{priced.cost.ms:.3f} ms ±{100 * priced.noise:.1f} %")

A new cost model is a class with the members of `Costs` and a line in `environment.costs.registry`. Its `of` returns an
object with the members of `ModelCosts`, which may be the same object. `GraphSubstitutionEnv` also takes a cost model
that is not registered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

import numpy as np

import taso_ext
from taso_ext import OnnxModel, State

Noise = Literal["frozen", "resampled"]
FROZEN: Noise = "frozen"
"""A graph costs the same whenever it is met."""
RESAMPLED: Noise = "resampled"
"""Rewards are made of costs that are drawn from recorded timings."""

LEAST_PART = 1e-9
"""The least part of a start graph's cost that logarithms count; a graph that computes nothing costs 0."""


def counted_ms(ms: float, initial_ms: float) -> float:
    """Returns a cost as logarithms count it: at least `LEAST_PART` of the start graph's."""
    return max(ms, LEAST_PART * initial_ms)


class Cost(Protocol):
    """The cost of one inference of a graph; `taso_ext.Cost` and `MeasuredCost` have this interface."""

    @property
    def ms(self) -> float:
        """Run time in milliseconds."""

    @property
    def flops(self) -> float:
        """Floating-point operations."""

    @property
    def memory_bytes(self) -> float:
        """Bytes that all kernels read and write."""

    @property
    def kernel_launches(self) -> int:
        """Number of kernels that are started."""


@dataclass(frozen=True)
class MeasuredCost:
    """A cost whose run time does not come from the native model.

    Attributes:
      ms, flops, memory_bytes, kernel_launches: see `Cost`.
    """

    ms: float
    flops: float
    memory_bytes: float
    kernel_launches: int

    @classmethod
    def timed(cls, ms: float, counted: Cost) -> MeasuredCost:
        """Combines a run time with the counts of another cost of the same graph."""
        return cls(ms, counted.flops, counted.memory_bytes, counted.kernel_launches)


@dataclass(frozen=True)
class Priced:
    """The cost of a graph, and its uncertainty.

        Priced(cost)                                    # nothing was measured
        Priced(cost, {state.hash: 0.02 * cost.ms})      # this graph was measured, to ±2 %

    Attributes:
      cost: the cost of one inference.
      errors: half the width, in ms, of the 95 % interval of each contribution to `cost.ms`, by the name of the
        independent measurement that it rests on. Graphs that rest on the same measurement share its error.
    """

    cost: Cost
    errors: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def error_ms(self) -> float:
        """Half the width of the 95 % interval of `cost.ms`; 0 if nothing was measured."""
        return math.hypot(*self.errors.values())

    @property
    def noise(self) -> float:
        """`error_ms` as a fraction of `cost.ms`."""
        return self.error_ms / self.cost.ms if self.error_ms else 0.0

    def ratio_noise(self, first: Priced) -> float:
        """Returns half the width of the 95 % interval of `cost.ms / first.cost.ms`.

        What both costs rest on cancels out as far as it weighs the same in both.
        """
        if not (self.errors or first.errors):
            return 0.0
        ratio = self.cost.ms / first.cost.ms
        names = {**self.errors, **first.errors}
        left = (self.errors.get(name, 0.0) - ratio * first.errors.get(name, 0.0) for name in names)
        return math.hypot(*left) / first.cost.ms


@runtime_checkable
class ModelCosts(Protocol):
    """A cost model for the graphs that rewriting makes of one model.

    A class declares `sums_nodes = True` if the cost of a graph is the sum of what `native` says of its nodes. A model
    that learns from observations can then rely on this sum, because nodes show their times.

    A class declares `may_lack_prices = True` if `price` can fail with an `UnpricedError` for a state that the engine
    has reached. The environment then asks for the price before it makes a rewrite, and leaves the rewrite alone if
    there is none.
    """

    @property
    def is_free(self) -> bool:
        """Whether `price` takes next to no time; the environment then prices every step, even if no reward needs it."""

    @property
    def native(self) -> taso_ext.CostModel:
        """The engine's cost model for states; it predicts the costs of rewrites for look-aheads and searches."""

    def price(self, state: State) -> Priced:
        """Returns the cost of a state's graph.

        Args:
          state: a state that carries `native`, of the model's graph or of a rewritten one.
        Returns:
          The price. Equal graphs get the same object, so that they do not differ even by noise, unless very many other
          graphs were priced in between.
        Raises:
          ModelError: the graph cannot be run; the message names the operator.
          taso_ext.UnpricedError: the cost cannot be determined.
        """


@runtime_checkable
class DrawnCosts(ModelCosts, Protocol):
    """A cost model that can also draw what a clock might have shown (`environment.costs.resampling`)."""

    @property
    def noise(self) -> Noise:
        """Whether rewards are made of drawn costs (`resampled`), or of the costs themselves (`frozen`)."""

    def draw(self, state: State, rng: np.random.Generator) -> Priced:
        """Returns a drawn cost of a state's graph, whose mean is the cost that `price` gives.

        Args:
          state: see `price`.
          rng: the only source of chance.
        Returns:
          The drawn cost. Its `errors` are those of the draw: half the width of the 95 % interval of drawn costs.
        Raises:
          See `price`.
        """


def drawing(prices: ModelCosts) -> DrawnCosts | None:
    """Returns a cost model as one that draws costs; None if its costs are frozen."""
    return prices if isinstance(prices, DrawnCosts) and prices.noise == RESAMPLED else None


@runtime_checkable
class Costs(Protocol):
    """A cost model before it is bound to a model."""

    @property
    def name(self) -> str:
        """The name that `environment.costs.registry.find` takes, for example `roofline:rtx2070` or `endtoend:cpu`."""

    def of(self, model: OnnxModel) -> ModelCosts:
        """Binds the cost model to a model; earlier measurements of the model are kept.

        Raises:
          UnavailableError: the device that measures cannot be used.
          ModelError: the model cannot be run there.
        """
