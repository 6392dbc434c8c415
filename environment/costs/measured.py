"""`measured:<device>`: graphs cost what the kernels cost that ONNX Runtime makes of them, each timed once.

The full model lowers the whole graph. The fast one, for the many graphs that a search or an agent meets, takes what an
operator costs from the first graph in which it stood among the same neighbours; only what is new is lowered, with the
operators around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from environment.costs.kernel_prices import KernelPrices
from environment.costs.lowering import Placed, lower
from environment.costs.neighbourhood import neighbourhood
from environment.costs.price_database import PriceList
from environment.runtimes import OnnxRuntime
from taso_ext import CostModel, Graph, OnnxModel

MOST_WEIGHTS_MB = 64
"""Kernels of models with more weights are timed among this many: beyond any cache."""
DISTANCE = 5
"""Nodes around a new operator that are lowered with it: as far as fusions and layouts reach."""
_WHOLE = 0.5
"""The whole graph is lowered if more of its operators than this are new."""
_FORETOLD = {"cpu": "xeon", "cuda": "h200", "tensorrt": "h200"}
"""Whose roofline foretells operators of a kind that has never been measured."""


class Totals(NamedTuple):
    """Of a graph: run time, memory traffic and kernels."""

    ms: float
    memory_bytes: float
    kernel_launches: int


class MeasuredCosts:
    """The costs of one model's graphs.

    Args:
      prices: of the runtime's setting.
      replay: nothing is measured: a kernel that was never recorded is an error.
    """

    def __init__(self, model: OnnxModel, runtime: OnnxRuntime, prices: PriceList, *, replay: bool = False) -> None:
        self._model, self._runtime, self._prices = model, runtime, prices
        start = lower(model.sketch(model.graph).model, runtime)
        self.weights_mb = _bucket(sum({name: size for each in start for name, size in each.weights.items()}.values()))
        self._kernels = KernelPrices(prices, self.weights_mb, None if replay else runtime)
        names, rows = prices.appraisals(self.weights_mb)
        foretold = _FORETOLD.get(runtime.device, "xeon")
        self.native = CostModel.learned(f"measured:{runtime.device}", foretold, self._appraise, names, rows)

    def full(self, graph: Graph) -> Totals:
        """What a graph costs as ONNX Runtime runs it."""
        placed = lower(self._model.sketch(graph).model, self._runtime)
        ms, moved, launches = self._rows(placed).sum(axis=0).tolist()
        return Totals(ms, moved, round(launches))

    def _rows(self, placed: Sequence[Placed]) -> npt.NDArray[np.float64]:
        """[n, 3]: ms, bytes, launches of each kernel."""
        rows = [(self._kernels.price(each.kernel).ms, each.nbytes, 1.0) for each in placed]
        return np.array(rows, np.float64).reshape(-1, 3)

    def _appraise(self, graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        """[n, 3]: ms, bytes, launches of some run-time operators, lowered with what stands around them."""
        sketch = self._model.sketch(graph)
        costs = {position: np.zeros(3) for position in positions}
        wanted = {name for name, position in sketch.computed_by.items() if position in costs}
        part = sketch.model
        if len(positions) < _WHOLE * len(sketch.model.skeleton.graph.node):
            part = neighbourhood(part, wanted, DISTANCE, sketch.types)
        placed = lower(part, self._runtime, sketch.model)
        for each, row in zip(placed, self._rows(placed), strict=True):
            position = sketch.computed_by.get(each.value, -1)
            if position in costs:
                costs[position] += row
        found = np.array([costs[position] for position in positions])
        self._prices.put_appraisals(self.weights_mb, graph.surroundings()[positions], found)
        return found


def _bucket(nbytes: int) -> int:
    """Megabytes, as a power of two."""
    return min(2 ** max(math.ceil(math.log2(max(nbytes, 1) / 1e6)), 0), MOST_WEIGHTS_MB)
