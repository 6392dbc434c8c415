"""Exact kernels of operators that read elements at places which other operands tell: Gather and Resize.

Gather reads whole numbers. Resize reads, along each axis, the element nearest to a coordinate, or the two around it
with rational weights. The coordinates are those of ONNX's specification, in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.tensor import Call, Field, FieldTensor, Kernel, Part, UnsupportedOperatorError, recognise

_LARGEST_INDEX = 2.0**31
_HALF = Fraction(1, 2)


class OutOfRangeError(NotInvertibleError):
    """An index lies beyond the axis that it counts, so that the graph has no result there."""


def whole_numbers(x: FieldTensor, reader: str) -> npt.NDArray[np.int64]:
    """Returns the integers that a tensor holds.

    Raises:
      UnsupportedOperatorError: if it holds other numbers, or residues that stand for no real number.
    """
    whole = np.rint(np.nan_to_num(x.real, nan=np.inf))
    if (np.abs(whole) < _LARGEST_INDEX).all():
        integers = whole.astype(np.int64)
        if (x.arithmetic.integers(integers).parts[0] == x.parts[0]).all():
            return integers
    raise UnsupportedOperatorError(f"{reader} reads numbers that are not evaluated as integers")


def _gather(call: Call) -> list[FieldTensor]:
    x, indices = call.operand(0), whole_numbers(call.operand(1), "Gather")
    axis = call.attributes.get("axis", 0) % max(x.rank, 1)
    extent = x.dims[axis]
    if ((indices < -extent) | (indices >= extent)).any():
        raise OutOfRangeError(f"an index of Gather lies outside of an axis of {extent} elements")
    return [x.moved(lambda part: np.take(part, indices % extent, axis=axis))]


def _resize(call: Call) -> list[FieldTensor]:
    for name, usual in (("antialias", 0), ("exclude_outside", 0), ("keep_aspect_ratio_policy", "stretch")):
        call.require(name, usual)
    mode = call.attributes.get("mode", "nearest")
    if mode not in ("nearest", "linear") or call.attributes.get("axes"):
        raise UnsupportedOperatorError(f"Resize in mode {mode!r}, or of given axes, is not evaluated")
    coordinate = _COORDINATES.get(call.attributes.get("coordinate_transformation_mode", "half_pixel"))
    if coordinate is None:
        raise UnsupportedOperatorError("Resize with these coordinates is not evaluated")
    x = call.operand(0)
    for axis, (extent, resized, scale) in enumerate(zip(x.dims, call.output_dims[0], _scales(call), strict=True)):
        if extent == resized and scale == 1:
            continue
        places = [coordinate(Fraction(at), scale, extent, resized) for at in range(resized)]
        if mode == "nearest":
            x = _taken(x, axis, [_nearest(call)(place) for place in places])
        else:
            x = _interpolated(x, axis, places)
    return [x]


def _scales(call: Call) -> list[Fraction]:
    """Returns the factor of each axis: the quotient of the extents if sizes are given, else the scale itself."""
    x, scales = call.operand(0), call.optional(2)
    if call.optional(3) is not None:
        return [Fraction(out, extent) for out, extent in zip(call.output_dims[0], x.dims, strict=True)]
    if scales is None or scales.dims != (x.rank,):
        raise UnsupportedOperatorError("Resize without sizes needs a scale for each axis")
    literals = [(recognise(float(each)), float(each)) for each in scales.real]
    return [Fraction(number) if literal.roots or literal.pi_power else literal.fraction for literal, number in literals]


def _nearest(call: Call) -> Callable[[Fraction], int]:
    rounding = call.attributes.get("nearest_mode", "round_prefer_floor")
    if rounding not in _ROUNDINGS:
        raise UnsupportedOperatorError(f"Resize with nearest_mode={rounding!r} is not evaluated")
    return _ROUNDINGS[rounding]


def _taken(x: FieldTensor, axis: int, places: Sequence[int]) -> FieldTensor:
    """Returns the elements at places along an axis; the first and the last element also stand for those beyond."""
    within = np.clip(np.asarray(places), 0, x.dims[axis] - 1)
    return x.moved(lambda part: np.take(part, within, axis=axis))


def _interpolated(x: FieldTensor, axis: int, places: Sequence[Fraction]) -> FieldTensor:
    below = [math.floor(place) for place in places]
    shares = [place - floor for place, floor in zip(places, below, strict=True)]

    def weighted(weights: Sequence[Fraction]) -> Callable[[Field, Part], Part]:
        def part(field: Field, values: Part) -> Part:
            column = np.asarray([field.constant(weight) for weight in weights])
            return np.asarray(field.mul(values, column.reshape(-1, *[1] * (values.ndim - axis - 1))))

        return part

    lower = _taken(x, axis, below).each(weighted([1 - share for share in shares]))
    return lower + _taken(x, axis, [floor + 1 for floor in below]).each(weighted(shares))


Coordinate = Callable[[Fraction, Fraction, int, int], Fraction]
"""The coordinate in the operand of a place in the result; given the scale, the extent and the resized extent."""

_COORDINATES: Mapping[str, Coordinate] = {
    "half_pixel": lambda at, scale, extent, resized: (at + _HALF) / scale - _HALF,
    "pytorch_half_pixel": lambda at, scale, extent, resized: (at + _HALF) / scale - _HALF if resized > 1 else _HALF * 0,
    "asymmetric": lambda at, scale, extent, resized: at / scale,
    "align_corners": lambda at, scale, extent, resized: at * Fraction(extent - 1, resized - 1) if resized > 1 else at,
}
_ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda place: math.ceil(place - _HALF),
    "round_prefer_ceil": lambda place: math.floor(place + _HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}

SAMPLING_KERNELS: dict[str, Kernel] = {"Gather": _gather, "Resize": _resize}
