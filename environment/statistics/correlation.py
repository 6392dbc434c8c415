"""How two lists of numbers go together: linearly, or in their order only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = Sequence[float] | npt.NDArray[np.floating]

_ROUNDING = 1e-12
"""Numbers that vary by less than this, relative to the largest, do not vary: what is left of them is rounding."""


def pearson(first: Numbers, second: Numbers) -> float:
    """Linear correlation; NaN where all numbers of a side are equal, or as good as."""
    sides = np.stack([np.asarray(side, np.float64) for side in (first, second)])
    centred = sides - sides.mean(axis=1, keepdims=True)
    if (np.abs(centred).max(axis=1) <= _ROUNDING * np.abs(sides).max(axis=1)).any():
        return float("nan")
    return float(centred[0] @ centred[1] / np.sqrt((centred**2).sum(axis=1).prod()))


def spearman(first: Numbers, second: Numbers, *, resolution: float = 0.0) -> float:
    """Correlation of the ranks, equal numbers sharing theirs; NaN where all numbers of a side are equal.

    Args:
      resolution: numbers are rounded to multiples of it first, if it is not 0: else what differs by rounding only, as
        many zeros do, is put in an order that means nothing.
    """
    sides = [np.asarray(side, np.float64) for side in (first, second)]
    return pearson(*(_ranks(np.round(side / resolution) if resolution else side) for side in sides))


def _ranks(values: Numbers) -> npt.NDArray[np.float64]:
    """Ranks from 1, equal numbers sharing their mean."""
    _, place, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[place.ravel()]
    return shared
