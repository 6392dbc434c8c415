"""The real numbers that a graph's results stand for on given float inputs, to tell which side of a rule is inexact.

A kernel may be wrong where float32 ends: √(x·x) is 0 for x = 10⁻³⁰, and an InstanceNormalization of one huge element
loses its bias. A target that is nearer to the real result than the source is no worse, whatever the source computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from taso_ext._core import Graph
from taso_ext.verify.exact.evaluation import element_count, evaluate
from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.finite_field import MOST_LONG_ELEMENTS
from taso_ext.verify.exact.reals import LongArithmetic
from taso_ext.verify.exact.tensor import UnsupportedOperatorError

Floats = npt.NDArray[np.float32]


def real_results(graph: Graph, feeds: Mapping[str, Floats]) -> list[npt.NDArray[np.float64]] | None:
    """Returns the outputs of a graph in real numbers, rounded to float64; NaN where they are undefined.

    Args:
      feeds: the tensors of the leaves, by key; finite ones.
    Returns:
      None if some operator has no definition in real numbers, if something is divided by zero, or if the graph is too
      large to be evaluated with many digits.
    """
    if element_count(graph) > MOST_LONG_ELEMENTS:
        return None
    arithmetic = LongArithmetic.of(0, written=True)
    leaves = {key: arithmetic.floats(tensor) for key, tensor in feeds.items()}
    try:
        outputs = evaluate(graph, leaves, arithmetic)
    except (UnsupportedOperatorError, NotInvertibleError):
        return None
    return [np.asarray(output.parts[0], object).astype(np.float64) for output in outputs]


def not_worse(source: Floats, target: Floats, real: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Returns which elements of the target are finite and at least as near to the real results as the source is."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(target.astype(np.float64) - real) <= np.abs(source.astype(np.float64) - real)
    return np.asarray(near & np.isfinite(target) & np.isfinite(source))
