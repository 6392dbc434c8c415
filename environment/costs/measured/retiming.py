"""Times kernels again until it is sure what two graphs differ by, or the time for it is used up.

Of the graphs that a search compares, it finds those that are fast and those whose kernels are priced too low; and the
more it compares, the more of the latter. Nothing in its result tells the two apart, but timing those kernels once more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from environment.costs.measured.cost_model import MeasuredPrices
from environment.costs.measured.kernel_prices import split_key
from taso_ext import Graph

SURE = 0.01
"""Half the width of the 95 % interval of a difference that is sure enough, as a part of the first graph's cost."""
_LEFT = 0.5
"""Part of that which all kernels together may contribute that are not timed again."""


def retime(
    prices: MeasuredPrices,
    first: Graph,
    other: Graph,
    *,
    seconds: float,
    on_timed: Callable[[float], None] = lambda elapsed: None,
) -> int:
    """Times again the kernels that make the difference of two graphs' costs unsure, each as often as all others.

    Args:
      prices: of the model that both are graphs of. It keeps to what it has met: see `Measured.forget`.
      seconds: for all; the timing that it ends in is finished.
      on_timed: told after each timing how many of them have passed.
    Returns:
      How many timings were made.
    Raises:
      As `MeasuredPrices.price`.
    """
    begin, timed = time.monotonic(), 0
    while doubtful := _doubtful(prices, first, other):
        for signature in doubtful:
            weights_mb, kernel = split_key(signature)
            prices.kernels.price(kernel, weights_mb, anew=True)
            timed += 1
            elapsed = time.monotonic() - begin
            on_timed(elapsed)
            if elapsed >= seconds:
                return timed
    return timed


def difference(prices: MeasuredPrices, first: Graph, other: Graph) -> tuple[float, float]:
    """By which part of its cost the first graph costs more than the other, by prices as they are now.

    Returns:
      That, and half the width of its 95 % interval.
    """
    errors = _errors(prices, first, other)
    whole = _cost_ms(prices, first)
    return 1 - _cost_ms(prices, other) / whole, math.hypot(*errors.values()) / whole


def _doubtful(prices: MeasuredPrices, first: Graph, other: Graph) -> list[str]:
    """The fewest kernels but for which the difference would be sure, most doubtful first."""
    errors = _errors(prices, first, other)
    enough = SURE * _cost_ms(prices, first)
    if math.hypot(*errors.values()) <= enough:
        return []
    chosen = sorted(errors, key=lambda kernel: (-errors[kernel], kernel))
    left = 0.0
    while chosen and math.hypot(left, errors[chosen[-1]]) <= _LEFT * enough:
        left = math.hypot(left, errors[chosen.pop()])
    return chosen


def _errors(prices: MeasuredPrices, first: Graph, other: Graph) -> dict[str, float]:
    """Half the widths, in ms, of what kernels contribute to the difference; what both graphs run alike cancels out."""
    before, after = prices.fast_bill(first), prices.fast_bill(other)
    return {
        kernel: abs(before[kernel] - after[kernel]) * prices.kernels.prices[kernel].error_ms
        for kernel in sorted(before | after)
    }


def _cost_ms(prices: MeasuredPrices, graph: Graph) -> float:
    bill = prices.fast_bill(graph)
    return math.fsum(count * prices.kernels.prices[kernel].ms for kernel, count in bill.items())
