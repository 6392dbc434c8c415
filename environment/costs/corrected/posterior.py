"""What the timings of a few whole graphs say of the prices of kernels: Bayesian regression. Numbers alone.

The price of a kernel errs by a factor. Its logarithm has a normal prior, as wide as the price states. The time of a
graph is the sum of its kernels, so that the logarithm of its ratio to the start graph is linear in small errors, and a
timing of the ratio moves the errors of all kernels that the two graphs do not share. What is known of one graph is then
also known, as far as they run the same kernels, of graphs that were never timed (Rasmussen and Williams 2006, chapter
2: this is a Gaussian process over graphs with the kernels as its features).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from environment.statistics.intervals import NORMAL_HALF_WIDTH

Values = npt.NDArray[np.float64]
Bill = Mapping[str, int]
"""How often a graph runs each kernel, by the signature of the kernel's price."""

MISFIT = 0.01
"""Standard deviation of a ratio from what the right prices of kernels would say: a graph is not quite their sum."""
_STEPS, _STEP, _CLOSE = 50, 0.5, 1e-6
"""Most steps of Gauss and Newton; their length, since whole ones may swing; the change at which they end."""


@dataclass(frozen=True)
class TimedGraph:
    """A graph that was timed as a whole.

    Attributes:
      hash: hash of the graph.
      bill: its kernels.
      ratio: its time over that of the start graph.
      spread: half the width of the ratio's 95 % interval, as a fraction of it.
    """

    hash: str
    bill: Bill
    ratio: float
    spread: float


@dataclass(frozen=True)
class Prices:
    """Prices of some kernels before any graph was timed.

    Attributes:
      keys: signatures of the prices.
      ms: time of one run [k].
      deviation: standard deviation of the logarithm of their errors [k].
    """

    keys: Sequence[str]
    ms: Values
    deviation: Values

    def parts_ms(self, bills: Sequence[Bill]) -> Values:
        """Returns the time that graphs spend in each kernel [g, k]."""
        place = {key: number for number, key in enumerate(self.keys)}
        runs = np.zeros((len(bills), len(self.keys)))
        for row, bill in zip(runs, bills, strict=True):
            for key, count in bill.items():
                row[place[key]] = count
        return runs * self.ms


class Posterior:
    """The errors of prices after some graphs were timed.

        posterior = Posterior(prices, start, timed)
        posterior.factor                # by which each price is multiplied [k]

    Args:
      prices: the prices of all kernels of the graphs.
      start: the kernels of the start graph.
      timed: the graphs; none leaves the prices as they are.
    Attributes:
      factor: the most probable factor of each price [k].
    """

    def __init__(self, prices: Prices, start: Bill, timed: Sequence[TimedGraph]) -> None:
        self._deviation = prices.deviation
        self.factor: Values = np.ones(len(prices.keys))
        self._shrunk: tuple[Values, Values] = np.zeros((len(prices.keys), 0)), np.zeros(0)
        if not timed:
            return
        first, parts = prices.parts_ms([start])[0], prices.parts_ms([each.bill for each in timed])
        measured = np.log([each.ratio for each in timed])
        noise = np.hypot([each.spread / NORMAL_HALF_WIDTH for each in timed], MISFIT)
        error = np.zeros(len(prices.keys))
        for _ in range(_STEPS):
            known, slopes = _ratios(parts, first, np.exp(error))
            left, single, right = np.linalg.svd(slopes * self._deviation / noise[:, None], full_matrices=False)
            target = (measured - known + slopes @ error) / noise
            step = self._deviation * (right.T @ (single / (1 + single**2) * (left.T @ target))) - error
            error += _STEP * step
            if np.abs(step).max() < _CLOSE:
                break
        self.factor = np.exp(error)
        # The root of the posterior covariance is diag(deviation) (1 - V c Vᵀ), with V and c kept here.
        self._shrunk = right.T, 1 - 1 / np.sqrt(1 + single**2)

    def deviations(self, parts_ms: Values) -> Values:
        """Returns independent contributions to the errors of times: their squares add up to the variances.

        Args:
          parts_ms: the time that graphs spend in each kernel, by corrected prices [g, k].
        Returns:
          Standard deviations with signs [g, k], in ms. Errors that two graphs share have the same place.
        """
        along, shrinking = self._shrunk
        weighed = parts_ms * self._deviation
        return weighed - (weighed @ along * shrinking) @ along.T

    def drawn_ms(self, parts_ms: Values, draws: int, rng: np.random.Generator) -> Values:
        """Returns joint draws of what graphs may really take [g, draws]; graphs share the errors of their kernels.

        Args:
          parts_ms: see `deviations`.
        """
        drawn: Values = self.deviations(parts_ms) @ rng.standard_normal((parts_ms.shape[1], draws))
        return parts_ms.sum(axis=1, keepdims=True) + drawn


def _ratios(parts: Values, first: Values, factor: Values) -> tuple[Values, Values]:
    """Returns the logarithms of ratios of time to the first graph's [g], and their slopes by errors [g, k]."""
    parts, first = parts * factor, first * factor
    whole, start = parts.sum(axis=1), first.sum()
    return np.log(whole / start), parts / whole[:, None] - first / start
