"""Comparing what two models return: how far apart, measured in the output's own spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_ROUNDING_STEPS = 16
"""Differences of this many rounding steps of the largest value always pass, however small the spread beside it."""

Outputs = list[object]
"""What a session returns for one input set: arrays, or sequences and maps of them."""


@dataclass(frozen=True)
class Scale:
    """What differences of one output are measured in.

    Attributes:
      spread: standard deviation of its values over ordinary inputs.
      tolerance: the largest difference that counts as equal, in spreads.
    """

    spread: float
    tolerance: float

    def of(self, expected: np.ndarray) -> float:
        """The unit for one result: its own spread if that is larger, and never below rounding."""
        finite = expected[np.isfinite(expected)].astype(np.float64)
        if finite.size == 0:
            return 1.0
        largest = float(np.abs(finite).max())
        resolution = _ROUNDING_STEPS * float(np.finfo(expected.dtype).eps) * largest / self.tolerance
        return max(self.spread, float(finite.std()), resolution) or 1.0


def leaves(value: object) -> Iterator[np.ndarray]:
    """The arrays in an output that may be a sequence or a map."""
    if isinstance(value, dict):
        yield np.asarray(list(value))
        yield np.asarray(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    elif value is not None:
        yield np.asarray(value)


def spread_of(results: Sequence[object]) -> float:
    """Standard deviation of the finite floats of one output over several input sets."""
    arrays = [array.reshape(-1) for value in results for array in leaves(value) if array.dtype.kind == "f"]
    if not arrays:
        return 0.0
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    return float(values.std()) if values.size else 0.0


def difference(expected: object, found: object, scale: Scale, noise: object = None) -> float:
    """Largest difference between two values of one output, in spreads; infinite where they cannot be compared.

    A value that is not finite where the expected one is makes it infinite. Where the expected value is NaN anything
    passes, and where it is infinite a finite value does: a rewrite may compute more than the original, never less.

    Args:
      noise: another result of the original (with other rounding); integers on which the two disagree are not compared.
    """
    first, second = list(leaves(expected)), list(leaves(found))
    third = list(leaves(noise)) if noise is not None else first
    if len(first) != len(second):
        return np.inf
    if len(third) != len(first):
        third = first
    return max((_array_difference(*arrays, scale) for arrays in zip(first, second, third, strict=True)), default=0.0)


def _array_difference(expected: np.ndarray, found: np.ndarray, noise: np.ndarray, scale: Scale) -> float:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return np.inf
    if expected.dtype.kind != "f":
        stable = expected == noise if noise.shape == expected.shape else np.full(expected.shape, True)
        return np.inf if np.any((expected != found) & stable) else 0.0
    compared = np.isfinite(expected)
    if np.any(compared & ~np.isfinite(found)) or np.any(np.isinf(expected) & np.isnan(found)):
        return np.inf
    if np.any(np.isinf(expected) & np.isinf(found) & (expected != found)):
        return np.inf
    gaps = np.abs(expected[compared].astype(np.float64) - found[compared].astype(np.float64))
    return float(gaps.max() / scale.of(expected)) if gaps.size else 0.0
