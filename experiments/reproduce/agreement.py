"""How well predicted run times agree with measured ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = Sequence[float] | npt.NDArray[np.float64]


def pearson(first: Numbers, second: Numbers) -> float:
    """Linear correlation; NaN where all numbers of a side are equal, or as good as."""
    sides = np.stack([np.asarray(side, np.float64) for side in (first, second)])
    centred = sides - sides.mean(axis=1, keepdims=True)
    if (np.abs(centred).max(axis=1) <= 1e-12 * np.abs(sides).max(axis=1)).any():
        return float("nan")
    return float(centred[0] @ centred[1] / np.sqrt((centred**2).sum(axis=1).prod()))


def spearman(predicted: Numbers, measured: Numbers) -> float:
    """Correlation of the ranks, equal numbers sharing theirs; NaN where all numbers of a side are equal."""
    ranks = np.stack([_ranks(np.asarray(side, np.float64)) for side in (predicted, measured)])
    if (np.ptp(ranks, axis=1) == 0).any():
        return float("nan")
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    return float(centred[0] @ centred[1] / np.sqrt((centred**2).sum(axis=1).prod()))


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return shared


def signs_right(predicted: Numbers, measured: Numbers, beyond: float) -> tuple[int, int]:
    """Of the measured ratios that differ from 1 by more than `beyond`: (on the predicted side of 1, all)."""
    foretold, found = np.asarray(predicted), np.asarray(measured)
    counts = np.abs(found - 1) > beyond
    return int(np.sum((foretold - 1 > 0)[counts] == (found - 1 > 0)[counts])), int(counts.sum())


def left_out_scales(predicted: Numbers, measured: Numbers) -> npt.NDArray[np.float64]:
    """[n] factors for predictions, each the geometric mean of measured over predicted of all others."""
    logarithms = np.log(np.asarray(measured) / np.asarray(predicted))
    others = (logarithms.sum() - logarithms) / max(len(logarithms) - 1, 1)
    scales: npt.NDArray[np.float64] = np.exp(others)
    return scales
