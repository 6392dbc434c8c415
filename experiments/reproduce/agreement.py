"""How well predicted run times agree with measured ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from environment.correlation import Numbers


def signs_right(predicted: Numbers, measured: Numbers, beyond: float) -> tuple[int, int]:
    """Of the measured ratios that differ from 1 by more than `beyond`: (on the predicted side of 1, all).

    A prediction of exactly 1 is on neither side.
    """
    foretold, found = np.sign(np.asarray(predicted) - 1), np.asarray(measured) - 1
    counts = np.abs(found) > beyond
    return int(np.sum(foretold[counts] == np.sign(found[counts]))), int(counts.sum())


def left_out_scales(predicted: Numbers, measured: Numbers) -> npt.NDArray[np.float64]:
    """[n] factors for predictions, each the geometric mean of measured over predicted of all others."""
    logarithms = np.log(np.asarray(measured) / np.asarray(predicted))
    others = (logarithms.sum() - logarithms) / max(len(logarithms) - 1, 1)
    scales: npt.NDArray[np.float64] = np.exp(others)
    return scales
