"""Whether predicted mixtures know how far they may be off: coverage of their intervals, and scales at their floor.

Rewrites are deterministic. What a mixture can model is only what the latent has forgotten of the graph and what the
network has not learned; where it has learned all, its scales fall to their floor, and intervals cover too much.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LEVELS = (0.5, 0.9)

# The normal distribution function at points so near each other that a line between two of them is off by 5e-7 at most.
_GRID = np.linspace(-8.0, 8.0, 4001)
_NORMAL = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in _GRID])


class Mixtures(NamedTuple):
    """n mixtures of K diagonal Gaussians over vectors of width Z, as `worldmodel.dynamics.mixture` has them.

    Attributes:
      logits: [n, K], unnormalised log weights.
      means, log_sigmas: [n, K, Z].
    """

    logits: np.ndarray
    means: np.ndarray
    log_sigmas: np.ndarray

    def at(self, rows: np.ndarray) -> Mixtures:
        """Some of them."""
        return Mixtures(*(part[rows] for part in self))

    def weights(self) -> np.ndarray:
        """[n, K], of sum 1."""
        exponentials = np.exp(self.logits - self.logits.max(axis=-1, keepdims=True))
        weights: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return weights


def distribution(x: np.ndarray, mixtures: Mixtures, scale: float | np.ndarray = 1.0) -> np.ndarray:
    """Probability that each coordinate is below `x` under its marginal mixture, all σ times `scale`: [n, Z].

    Args:
      scale: for all, or [n, 1, 1].
    """
    standardised = (x[:, np.newaxis] - mixtures.means) * np.exp(-mixtures.log_sigmas) / scale
    below = np.interp(standardised, _GRID, _NORMAL)
    probability: np.ndarray = np.einsum("nk,nkz->nz", mixtures.weights(), below)
    return probability


def covered(x: np.ndarray, mixtures: Mixtures, level: float, scale: float | np.ndarray = 1.0) -> np.ndarray:
    """Share of each vector's coordinates that lie in the central interval of probability `level`: float64 [n]."""
    inside = np.abs(2.0 * distribution(x, mixtures, scale) - 1.0) <= level
    shares: np.ndarray = inside.mean(axis=-1)
    return shares


def fit_scale(x: np.ndarray, mixtures: Mixtures) -> float:
    """The factor of all σ under which the intervals of `LEVELS` cover best what they say (least squares).

    Args:
      x: [n, Z], what came; of validation data, neither trained nor judged on.
    """

    def misfit(scale: float) -> float:
        probability = np.abs(2.0 * distribution(x, mixtures, scale) - 1.0)
        return sum(float(np.mean(probability <= level) - level) ** 2 for level in LEVELS)

    logarithms = np.linspace(-4.0, 4.0, 17)
    for _ in range(3):  # each round looks ever nearer around the best so far: a step of 0.5, 0.06, 0.008 in the end
        best = logarithms[np.argmin([misfit(math.exp(value)) for value in logarithms])]
        step = logarithms[1] - logarithms[0]
        logarithms = np.linspace(best - step, best + step, 17)
    return math.exp(best)


def at_floor(mixtures: Mixtures, floor: float, tolerance: float) -> np.ndarray:
    """Share of each likeliest component's dimensions whose log σ is within `tolerance` of `floor`: float64 [n]."""
    likeliest = mixtures.logits.argmax(axis=-1)[:, np.newaxis, np.newaxis]
    log_sigmas = np.take_along_axis(mixtures.log_sigmas, likeliest, axis=1)[:, 0]
    shares: np.ndarray = (log_sigmas <= floor + tolerance).mean(axis=-1)
    return shares
