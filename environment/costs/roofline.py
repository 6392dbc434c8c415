"""Cost models that are formulas: the engine itself evaluates them, exactly and for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from environment.costs.interface import Priced
from taso_ext import CostModel, OnnxModel, State

ROOFLINE_VERSION = 2
"""Of the formula: results of different versions are not comparable.

1: a Split whose parts lie one behind the other in memory, as with all channel splits at batch 1, cost nothing.
2: it costs the copy that runtimes make.
"""

_FORETOLD_BY = {"cuda": "h200", "tensorrt": "h200"}
_FORETOLD_ELSEWHERE = "xeon"


def foretelling_preset(device: str) -> str:
    """The preset of the roofline that foretells what has not been measured on a device of a runtime."""
    return _FORETOLD_BY.get(device, _FORETOLD_ELSEWHERE)


@dataclass(frozen=True)
class Analytic:
    """A native cost model, the same for every model.

    Attributes:
      native: what evaluates it.
    """

    native: CostModel
    is_free = True

    @property
    def name(self) -> str:
        """`roofline:<device>`."""
        return self.native.name

    def of(self, model: OnnxModel) -> Analytic:
        return self

    def price(self, state: State) -> Priced:
        return Priced(state.cost)
