"""Differences between two results of a model, in units of the spread of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from environment.inputs import BFLOAT16, is_floating

_ROUNDING_STEPS = 16
"""Differences of this many rounding steps of the largest value always pass, however small the spread is."""

Outputs = list[object]
"""The results of a model for one input set: arrays, or sequences and maps of arrays."""


@dataclass(frozen=True)
class Scale:
    """The unit in which differences of one output are measured.

    Attributes:
      spread: standard deviation of the output's values over ordinary inputs.
      tolerance: the largest difference that counts as equal, in spreads.
    """

    spread: float
    tolerance: float

    def of(self, expected: np.ndarray) -> float:
        """Returns the unit for one result: its own spread if that is larger, and never below rounding."""
        finite = expected[np.isfinite(expected)].astype(np.float64)
        if finite.size == 0:
            return 1.0
        largest = float(np.abs(finite).max())
        resolution = _ROUNDING_STEPS * _rounding_step(expected.dtype) * largest / self.tolerance
        return max(self.spread, float(finite.std()), resolution) or 1.0


def _rounding_step(dtype: np.dtype) -> float:
    """Returns the distance of 1 from the next larger number."""
    return 2.0**-7 if dtype == BFLOAT16 else float(np.finfo(dtype).eps)


def leaves(value: object) -> Iterator[np.ndarray]:
    """Yields the arrays in an output that may be a sequence or a map."""
    if isinstance(value, dict):
        yield np.asarray(list(value))
        yield np.asarray(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    elif value is not None:
        yield np.asarray(value)


def spread_of(results: Sequence[object]) -> float:
    """Returns the standard deviation of the finite floats of one output over several input sets."""
    arrays = [array.reshape(-1) for value in results for array in leaves(value) if is_floating(array.dtype)]
    if not arrays:
        return 0.0
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    return float(values.std()) if values.size else 0.0


def rounded_like(exact: object, computed: object) -> object:
    """Returns an exact result in the element types of a computed one, and the latter where it is not finite.

    The computed result is returned as it is if the two have not the same form.
    """
    if not isinstance(computed, np.ndarray):
        return computed
    result = np.asarray(exact)
    if result.shape != computed.shape or is_floating(result.dtype) != is_floating(computed.dtype):
        return computed
    with np.errstate(over="ignore", invalid="ignore"):
        result = result.astype(computed.dtype)
    if not is_floating(computed.dtype):
        return result
    return np.where(np.isfinite(computed) & np.isfinite(result), result, computed)


def difference(expected: object, found: object, scale: Scale, others: Sequence[object] = ()) -> float:
    """Returns the largest difference of two values of an output, in spreads; infinite if they cannot be compared.

    The difference is infinite if a value is not finite although the expected value is. If the expected value is NaN,
    any value passes. If it is infinite, the same infinity and finite values pass: a rewrite may compute more than the
    original, never less.

    Args:
      others: other results of the original, with other rounding. Integers on which they and `expected` disagree are not
        compared.
    """
    first, second = list(leaves(expected)), list(leaves(found))
    if len(first) != len(second):
        return np.inf
    alike = [arrays for other in others if len(arrays := list(leaves(other))) == len(first)]
    return max(
        (
            _array_difference(*pair, [arrays[i] for arrays in alike], scale)
            for i, pair in enumerate(zip(first, second, strict=True))
        ),
        default=0.0,
    )


def _array_difference(expected: np.ndarray, found: np.ndarray, others: Sequence[np.ndarray], scale: Scale) -> float:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return np.inf
    if not is_floating(expected.dtype):
        differs = expected != found
        for other in others:
            differs &= (expected == other) if other.shape == expected.shape else True
        return np.inf if np.any(differs) else 0.0
    compared = np.isfinite(expected)
    if np.any(compared & ~np.isfinite(found)) or np.any(np.isinf(expected) & np.isnan(found)):
        return np.inf
    if np.any(np.isinf(expected) & np.isinf(found) & (expected != found)):
        return np.inf
    gaps = np.abs(expected[compared].astype(np.float64) - found[compared].astype(np.float64))
    return float(gaps.max() / scale.of(expected)) if gaps.size else 0.0
