"""The noise of costs: a price that differs from visit to visit, as a clock would show it, drawn from recorded timings.

`noise=resampled` in the name of a cost model that measures (`measured:cpu:noise=resampled`) lets an agent see noisy
costs without a device. `noise=frozen`, the default, gives a graph the same cost whenever it is met.

- A quantity that was timed at least twice is drawn from its kept single timings, each with the same probability.
- One that was timed once, or whose single timings were not kept, is drawn from a log-normal distribution with the
  spread that its price states for a single timing. One that is predicted is drawn in the same way: its spread is the
  uncertainty of the prediction.

The factors that are drawn have the mean 1, so that drawn costs have the frozen cost as their mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from environment.costs.interface import FROZEN, RESAMPLED, Cost, MeasuredCost, Noise, Priced
from environment.statistics.intervals import NORMAL_HALF_WIDTH

NOISES: tuple[Noise, ...] = (FROZEN, RESAMPLED)


@dataclass(frozen=True)
class Factors:
    """The distribution of a single timing, as a factor of the price of mean 1.

    Attributes:
      timings: the factors of recorded timings; empty if they are log-normal.
      deviation: standard deviation of the factor, or of its logarithm if it is log-normal.
    """

    timings: tuple[float, ...]
    deviation: float

    @classmethod
    def of(cls, timings: Sequence[float], spread: float) -> Factors:
        """Returns the distribution that recorded timings show.

        Args:
          timings: single timings in any unit. Fewer than two show no distribution; then it is log-normal.
          spread: half the width of the 95 % interval of a single timing, as a fraction of it.
        """
        mean = float(np.mean(timings)) if len(timings) > 1 else 0.0
        if not mean:  # too few, or all below the clock's resolution
            return cls((), spread / NORMAL_HALF_WIDTH)
        factors = np.array(timings) / mean
        return cls(tuple(factors.tolist()), float(factors.std()))


def named(name: str, noise: Noise) -> str:
    """Returns the name of a cost model with its noise, as `registry.find` takes it."""
    return name if noise == FROZEN else f"{name}:noise={noise}"


def require_noise(noise: str) -> Noise:
    """Returns the noise of this name.

    Raises:
      ValueError: there is no such noise.
    """
    for known in NOISES:
        if noise == known:
            return known
    raise ValueError(f"the noise of costs is {' or '.join(NOISES)}, got {noise!r}")


def single_spread(spread: float, timings: int) -> float:
    """Returns the spread of a single timing, given that of the mean of so many; 0 stands for a prediction."""
    return spread * math.sqrt(max(timings, 1))


def drawn_price(cost: Cost, noisy: Sum, name: str, rng: np.random.Generator) -> Priced:
    """Returns a drawn cost; see `interface.DrawnCosts.draw`.

    Args:
      cost: the frozen cost.
      noisy: how the run time varies.
      name: name of the graph.
    """
    if not cost.ms:
        return Priced(cost)
    return Priced(MeasuredCost.timed(cost.ms * noisy.draw(rng), cost), {name: noisy.half_width * cost.ms})


class Sum:
    """A sum of independent quantities, such as the kernels of a graph, that are drawn together.

    Args:
      shares: each quantity's part of the expected sum; they add up to 1.
      factors: the distribution of each.
    """

    def __init__(self, shares: Sequence[float], factors: Sequence[Factors]) -> None:
        self._shares = np.array(shares, np.float64)
        self._deviations = np.array([each.deviation for each in factors], np.float64)
        self._counts = np.array([len(each.timings) for each in factors])
        self._starts = np.cumsum(self._counts) - self._counts
        self._timings = np.array([factor for each in factors for factor in each.timings] or [1.0])

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval of a drawn sum, as a fraction of its mean."""
        return NORMAL_HALF_WIDTH * float(np.linalg.norm(self._shares * self._deviations))

    def draw(self, rng: np.random.Generator) -> float:
        """Returns a drawn sum as a fraction of its mean: one draw of each quantity, however often it is in the sum."""
        return float(self._shares @ self._drawn(rng))

    def _drawn(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        count = len(self._shares)
        normal, uniform = rng.standard_normal(count), rng.random(count)
        log_normal = np.exp(self._deviations * normal - self._deviations**2 / 2)
        places = self._starts + (uniform * self._counts).astype(np.intp)
        recorded = self._timings[np.minimum(places, len(self._timings) - 1)]
        return np.where(self._counts > 0, recorded, log_normal)
