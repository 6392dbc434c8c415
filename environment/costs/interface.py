"""What a cost model is: something that prices the rewrites of a model, exactly or by measuring them.

    costs = cost_models.find("endtoend:cpu")
    prices = costs.of(model)                                 # for the rewrites of one model
    state = State(model.graph, rules, prices.native)         # candidates are foretold by `native`
    priced = prices.price(state)                             # what the state's own graph costs
    print(f"{priced.cost.ms:.3f} ms ±{100 * priced.noise:.1f} %")

A new cost model is a class with the members of `Costs`, whose `of` returns one with those of `ModelCosts`, which may
be the same object, and a line in `environment.costs.registry`. One of your own is handed to `GraphSubstitutionEnv` as
it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import taso_ext
from taso_ext import OnnxModel, State


class Cost(Protocol):
    """What one inference of a graph costs. `taso_ext.Cost` is one, `MeasuredCost` is another."""

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
        """Kernels that are started."""


@dataclass(frozen=True)
class MeasuredCost:
    """A cost whose run time comes from somewhere else than the native model.

    Attributes:
      ms, flops, memory_bytes, kernel_launches: see `Cost`.
    """

    ms: float
    flops: float
    memory_bytes: float
    kernel_launches: int

    @classmethod
    def timed(cls, ms: float, counted: Cost) -> MeasuredCost:
        """A run time with the counts of another cost of the same graph."""
        return cls(ms, counted.flops, counted.memory_bytes, counted.kernel_launches)


@dataclass(frozen=True)
class Priced:
    """What a graph costs, and how sure that is.

        Priced(cost)                                    # nothing was measured
        Priced(cost, {state.hash: 0.02 * cost.ms})      # this graph was measured, to ±2 %

    Attributes:
      cost: of one inference.
      errors: of the independent measurements that `cost.ms` rests on, by a name for each: half the width of the 95 %
        interval of what it contributes, in ms. Graphs that rest on the same measurement have it wrong together.
    """

    cost: Cost
    errors: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def error_ms(self) -> float:
        """Half the width of the 95 % interval of `cost.ms`; 0 where nothing was measured."""
        return math.hypot(*self.errors.values())

    @property
    def noise(self) -> float:
        """The same, as a part of `cost.ms`."""
        return self.error_ms / self.cost.ms if self.error_ms else 0.0


@runtime_checkable
class ModelCosts(Protocol):
    """A cost model for the graphs that rewriting makes of one model."""

    @property
    def is_free(self) -> bool:
        """Whether `price` takes next to no time: then the environment asks at every step, even if no reward looks."""

    @property
    def native(self) -> taso_ext.CostModel:
        """What states of the engine carry: it foretells what rewrites would cost, for look-aheads and searches."""

    def price(self, state: State) -> Priced:
        """What the graph of a state costs.

        Args:
          state: a state of the model's graph, or of what rewriting made of it, that carries `native`.
        Returns:
          The same object as before if the graph is the same, unless very many came since: equal graphs differ by
          nothing, not even by noise.
        Raises:
          ModelError: the graph cannot be run; the message names the operator.
          taso_ext.UnpricedError: what it costs cannot be found out.
        """


@runtime_checkable
class Costs(Protocol):
    """A cost model, not yet of any model."""

    @property
    def name(self) -> str:
        """As `environment.costs.registry.find` takes it, for example `roofline:rtx2070` or `endtoend:cpu`."""

    def of(self, model: OnnxModel) -> ModelCosts:
        """Prices for the rewrites of a model; what was measured of it before is kept.

        Raises:
          UnavailableError: the device that it measures on cannot be used.
          ModelError: the model cannot be run there.
        """
