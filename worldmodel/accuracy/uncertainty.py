"""The uncertainty of predicted mixtures: the coverage of their intervals, and the share of scales at their floor.

Rewrites are deterministic. So a mixture can only model what the latent does not hold of the graph and what the network
has not learned. If the network has learned everything, the scales fall to their floor, and intervals cover too much.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

LEVELS = (0.5, 0.9)

# The normal distribution function on a grid so fine that linear interpolation is off by 5e-7 at most.
_GRID = np.linspace(-8.0, 8.0, 4001)
_NORMAL = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in _GRID])


class Mixtures(NamedTuple):
    """n mixtures of K diagonal Gaussians over vectors of width Z, in the form of `worldmodel.dynamics.mixture`.

    Attributes:
      logits: [n, K], unnormalised log weights.
      means, log_sigmas: [n, K, Z].
    """

    logits: np.ndarray
    means: np.ndarray
    log_sigmas: np.ndarray

    def at(self, rows: np.ndarray) -> Mixtures:
        """Returns the mixtures of some rows."""
        return Mixtures(*(part[rows] for part in self))

    def weights(self) -> np.ndarray:
        """Returns the weights [n, K]; each row sums to 1."""
        exponentials = np.exp(self.logits - self.logits.max(axis=-1, keepdims=True))
        weights: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return weights


def distribution(x: np.ndarray, mixtures: Mixtures, scale: float | np.ndarray = 1.0) -> np.ndarray:
    """Returns the probability that each coordinate is below `x` under its marginal mixture: [n, Z].

    Args:
      scale: the factor of all σ, one number or [n, 1, 1].
    """
    standardised = (x[:, np.newaxis] - mixtures.means) * np.exp(-mixtures.log_sigmas) / scale
    below = np.interp(standardised, _GRID, _NORMAL)
    probability: np.ndarray = np.einsum("nk,nkz->nz", mixtures.weights(), below)
    return probability


def covered(x: np.ndarray, mixtures: Mixtures, level: float, scale: float | np.ndarray = 1.0) -> np.ndarray:
    """Returns the share of each vector's coordinates in the central interval of probability `level`: float64 [n]."""
    inside = np.abs(2.0 * distribution(x, mixtures, scale) - 1.0) <= level
    shares: np.ndarray = inside.mean(axis=-1)
    return shares


def fit_scale(x: np.ndarray, mixtures: Mixtures) -> float:
    """Fits the factor of all σ with which intervals come closest to the coverages `LEVELS` (least squares).

    Args:
      x: [n, Z], the real vectors, of validation data that the model is neither trained nor judged on.
    """

    def misfit(scale: float) -> float:
        probability = np.abs(2.0 * distribution(x, mixtures, scale) - 1.0)
        return sum(float(np.mean(probability <= level) - level) ** 2 for level in LEVELS)

    logarithms = np.linspace(-4.0, 4.0, 17)
    for _ in range(3):  # each round searches closer around the best value so far, in steps of 0.5, 0.06 and 0.008
        best = logarithms[np.argmin([misfit(math.exp(value)) for value in logarithms])]
        step = logarithms[1] - logarithms[0]
        logarithms = np.linspace(best - step, best + step, 17)
    return math.exp(best)


def at_floor(mixtures: Mixtures, floor: float, tolerance: float) -> np.ndarray:
    """Returns each likeliest component's share of dimensions with log σ within `tolerance` of `floor`: float64 [n]."""
    likeliest = mixtures.logits.argmax(axis=-1)[:, np.newaxis, np.newaxis]
    log_sigmas = np.take_along_axis(mixtures.log_sigmas, likeliest, axis=1)[:, 0]
    shares: np.ndarray = (log_sigmas <= floor + tolerance).mean(axis=-1)
    return shares
