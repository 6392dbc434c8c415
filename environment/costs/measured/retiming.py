"""Re-timing: kernels are measured again until the difference of two graphs is sure, or the time is used up.

A search finds graphs that are fast, and graphs whose kernels have too low prices. The more graphs it compares, the more
graphs of the second kind it finds. Only timing their kernels again tells the two kinds apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from environment.costs.measured.cost_model import MeasuredPrices
from environment.costs.measured.kernel_prices import split_key
from taso_ext import Graph
from taso_ext.errors import ModelError, UnpricedError

SURE = 0.01
"""A difference is sure when half the width of its 95 % interval is below this fraction of the first graph's cost."""
LEFT = 0.5
"""Fraction of that half width to which the kernels that are not timed again may add up."""


def retime(
    prices: MeasuredPrices,
    first: Graph,
    other: Graph,
    *,
    seconds: float,
    on_timed: Callable[[float], None] = lambda elapsed: None,
) -> int:
    """Times again the kernels that make the difference of two graphs' costs unsure, all of them equally often.

    A kernel that cannot be timed alone keeps its price.

    Args:
      prices: the prices of both graphs' model. Graph costs that it has returned stay as they are; see
        `Measured.forget`.
      seconds: limit of time; a timing that has begun is finished.
      on_timed: called after each timing with the seconds that have passed.
    Returns:
      The number of timings.
    Raises:
      DatabaseError: prices cannot be kept.
    """
    begin, timed, given_up = time.monotonic(), 0, set[str]()
    while doubtful := [kernel for kernel in _doubtful(prices, first, other) if kernel not in given_up]:
        for signature in doubtful:
            weights_mb, kernel = split_key(signature)
            try:
                prices.kernels.price(kernel, weights_mb, anew=True)
            except (ModelError, UnpricedError):
                given_up.add(signature)
                continue
            timed += 1
            elapsed = time.monotonic() - begin
            on_timed(elapsed)
            if elapsed >= seconds:
                return timed
    return timed


def difference(prices: MeasuredPrices, first: Graph, other: Graph) -> tuple[float, float]:
    """Returns the fraction of its cost by which the first graph is dearer than the other, by the present prices.

    Returns:
      (difference, half the width of its 95 % interval).
    """
    errors = _errors(prices, first, other)
    whole = _cost_ms(prices, first)
    return 1 - _cost_ms(prices, other) / whole, math.hypot(*errors.values()) / whole


def _doubtful(prices: MeasuredPrices, first: Graph, other: Graph) -> list[str]:
    """Returns the smallest set of kernels that keeps the difference from being sure, the most doubtful first."""
    errors = _errors(prices, first, other)
    enough = SURE * _cost_ms(prices, first)
    if math.hypot(*errors.values()) <= enough:
        return []
    chosen = sorted(errors, key=lambda kernel: (-errors[kernel], kernel))
    left = 0.0
    while chosen and math.hypot(left, errors[chosen[-1]]) <= LEFT * enough:
        left = math.hypot(left, errors[chosen.pop()])
    return chosen


def _errors(prices: MeasuredPrices, first: Graph, other: Graph) -> dict[str, float]:
    """Returns half the width, in ms, of each kernel's contribution to the difference.

    A kernel that errs makes the whole err that the difference is a fraction of, so that runs cancel out if their number
    falls as the cost does; see `Priced.ratio_noise`.
    """
    before, after = prices.fast_bill(first), prices.fast_bill(other)
    ratio = _cost_ms(prices, other) / _cost_ms(prices, first)
    return {
        kernel: abs(ratio * before[kernel] - after[kernel]) * prices.kernels.of(kernel).error_ms
        for kernel in sorted(before | after)
    }


def _cost_ms(prices: MeasuredPrices, graph: Graph) -> float:
    bill = prices.fast_bill(graph)
    return math.fsum(count * prices.kernels.of(kernel).ms for kernel, count in bill.items())
