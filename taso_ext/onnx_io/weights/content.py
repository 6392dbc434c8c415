"""The facts that rules may know about the elements of a weight: all are one number, a known pattern, or just finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from taso_ext.onnx_io.weights.handles import read_values, static_dims

Content = float | str
"""The number that all elements equal, the name of one of `PATTERNS`, `NONZERO` or `FINITE`."""

NONZERO, FINITE = "nonzero", "finite"
"""The contents of a weight of which only this is known: its elements are finite, and none or some of them are zero."""

LARGEST_KNOWN = 1 << 16
"""The most elements of a weight that is examined: an identity of 256 channels, or a 3×3 kernel of 80 channels."""
_LARGEST_EXACT = 2**53  # a float holds every integer up to here

_LOOKED_AT = frozenset(
    {
        *(ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE, ir.DataType.BOOL),
        *(ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64),
        *(ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64),
    }
)


def content_of(name: str, tensor: ir.TensorProtocol) -> Content | None:
    """Returns the content of a weight; None if it is large, empty, of another element type, or nothing special.

    Raises:
      ModelError: if the values cannot be read.
    """
    if tensor.dtype not in _LOOKED_AT or not 0 < math.prod(static_dims(tensor)) <= LARGEST_KNOWN:
        return None
    return describe(read_values(name, tensor))


def describe(values: np.ndarray) -> Content | None:
    """Returns the content of a non-empty array of numbers; None if there is nothing special about it."""
    first = float(values.flat[0])
    with np.errstate(invalid="ignore"):  # NaN equals nothing, so it is no content
        uniform = bool((values == values.flat[0]).all())
    if uniform:
        return first if abs(first) <= _LARGEST_EXACT or values.dtype.kind not in "iu" else None
    if values.dtype.kind in "iub":
        return None
    if values.ndim >= 2:
        for name, pattern in PATTERNS.items():
            if _equals(values, pattern(values.shape)):
                return name
    if not np.isfinite(values).all():
        return None
    return NONZERO if (values != 0).all() else FINITE


def known(content: Content | None) -> Content | None:
    """Returns a content that says what the elements are; None for one that says only which numbers they are not."""
    return None if content in (NONZERO, FINITE) else content


def materialise(content: Content, dims: tuple[int, ...]) -> np.ndarray:
    """Returns an array [*dims] of float64 with this content, which says what the elements are (`known`).

    Raises:
      ValueError: no array with this content has these dims.
    """
    if isinstance(content, float):
        return np.full(dims, content)
    values = PATTERNS[content](dims)
    if values is None:
        raise ValueError(f"no tensor of shape {list(dims)} is an {content}")
    return values


def _equals(values: np.ndarray, pattern: np.ndarray | None) -> bool:
    """Returns whether an array equals a pattern that is rounded to the element type of the array."""
    return pattern is not None and bool((values == pattern.astype(values.dtype)).all())


def _identity(dims: tuple[int, ...]) -> np.ndarray | None:
    """Returns identity matrices in the last two dims."""
    if len(dims) < 2 or dims[-1] != dims[-2]:
        return None
    return np.broadcast_to(np.eye(dims[-1]), dims).copy()


def _identity_kernel(dims: tuple[int, ...]) -> np.ndarray | None:
    """Returns a convolution weight [n, n / groups, k...] that copies its input: an odd window with 1 in its centre."""
    if len(dims) < 3 or dims[0] % dims[1] or not all(size % 2 for size in dims[2:]):
        return None
    return _channelwise(dims, tuple(size // 2 for size in dims[2:]), 1.0)


def _averaging_kernel(dims: tuple[int, ...]) -> np.ndarray | None:
    """Returns a convolution weight [n, n / groups, k...] that computes the mean of each channel's window."""
    if len(dims) < 3 or dims[0] % dims[1]:
        return None
    return _channelwise(dims, (slice(None),) * (len(dims) - 2), 1.0 / math.prod(dims[2:]))


def _channelwise(dims: tuple[int, ...], places: tuple[int | slice, ...], value: float) -> np.ndarray:
    """Returns zeros, but `value` at the given places of the windows that lead from a channel to itself."""
    kernel = np.zeros(dims)
    for channel in range(dims[0]):
        kernel[(channel, channel % dims[1], *places)] = value
    return kernel


PATTERNS: dict[str, Callable[[tuple[int, ...]], np.ndarray | None]] = {
    "identity": _identity,
    "identity-kernel": _identity_kernel,
    "averaging-kernel": _averaging_kernel,
}
"""Functions that make an array of given dims (None if these allow none), by content, in the order of the search."""
