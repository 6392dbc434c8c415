"""`roofline:<device>`: cost models that are formulas, which the engine itself evaluates exactly."""

from __future__ import annotations

from dataclasses import dataclass

from environment.costs.interface import Priced
from taso_ext import CostModel, OnnxModel, State

ROOFLINE_VERSION = 2
"""Version of the formula: results of different versions are not comparable.

In version 1 a Split cost nothing if its parts are contiguous in memory, as in channel splits at batch 1. Version 2
counts the copy that runtimes make.
"""

_PREDICTED_BY = {"cuda": "h200", "tensorrt": "h200"}
_PREDICTED_ELSEWHERE = "xeon"


def predicting_preset(device: str) -> str:
    """Returns the roofline preset that predicts the costs of a runtime's device before they are measured."""
    return _PREDICTED_BY.get(device, _PREDICTED_ELSEWHERE)


@dataclass(frozen=True)
class Analytic:
    """A cost model that is a formula of the engine, the same for every model.

    Attributes:
      native: the engine's cost model.
    """

    native: CostModel
    is_free = True
    sums_nodes = True

    @property
    def name(self) -> str:
        """`roofline:<device>`."""
        return self.native.name

    def of(self, model: OnnxModel) -> Analytic:
        return self

    def price(self, state: State) -> Priced:
        return Priced(state.cost)
