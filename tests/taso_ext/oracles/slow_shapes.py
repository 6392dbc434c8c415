"""A second implementation of shape inference, for the tests: operators in normal form that rules create."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

Dims = tuple[int, ...]
Attributes = Mapping[str, Any]

UNARY = frozenset(  # those that the shipped rules move
    ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Gelu", "Exp", "Sqrt", "Neg", "Abs", "HardSwish", "Elu")
)
BINARY = frozenset(("Add", "Sub", "Mul", "Div"))
COMMUTATIVE = frozenset(("Add", "Mul", "Sum", "Max", "Min", "And", "Or", "Equal"))


CONSTANTS = frozenset(("Constant", "ConstantOfShape", "EyeLike"))  # operators without operands


class TensorType(NamedTuple):
    """An `onnx.TensorProto.DataType` and static dims."""

    dtype: int
    dims: Dims


class MisfitError(Exception):
    """The operator does not accept its operands or attributes."""


def result_types(
    op_type: str, attributes: Attributes, operands: Sequence[TensorType | None]
) -> tuple[TensorType, ...] | None:
    """Returns the types of the results, or None if the operands do not fit.

    Like the engine, it is stricter than ONNX in one place: it does not create a MatMul of a vector.
    """
    if op_type in CONSTANTS:
        return _constant(op_type, attributes)
    if not operands or None in operands or len({each.dtype for each in operands if each}) != 1:
        return None
    types = [each for each in operands if each]
    try:
        shapes = _shapes(op_type)(attributes, [each.dims for each in types])
    except MisfitError:
        return None
    return tuple(TensorType(types[0].dtype, shape) for shape in shapes)


def _constant(op_type: str, attributes: Attributes) -> tuple[TensorType, ...] | None:
    shape = (attributes["size"],) * 2 if op_type == "EyeLike" else tuple(attributes["shape"])
    wrong = op_type == "Constant" and len(attributes["values"]) != prod(shape)
    return None if wrong or not attributes["dtype"] else (TensorType(attributes["dtype"], shape),)


def _shapes(op_type: str) -> Callable[[Attributes, list[Dims]], list[Dims]]:
    if op_type in UNARY:
        return lambda attributes, dims: [dims[0]]
    return _broadcast if op_type in BINARY else _SHAPES[op_type]


def _need(condition: bool) -> None:
    if not condition:
        raise MisfitError


def _together(*shapes: Dims) -> Dims:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise MisfitError from error


def _broadcast(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    return [_together(*dims)]


def _matmul(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    a, b = dims
    _need(len(a) >= 2 and len(b) >= 2 and a[-1] == b[-2])
    return [(*_together(a[:-2], b[:-2]), a[-2], b[-1])]


def _conv(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    x, w, *bias = dims
    _need(len(x) == len(w) >= 3 and all(each == w[:1] for each in bias))
    group, spatial = attributes["group"], len(x) - 2
    _need(x[1] == w[1] * group and w[0] % group == 0 and tuple(attributes["kernel_shape"]) == w[2:])
    lists = [attributes[name] for name in ("pads", "strides", "dilations")]
    _need([len(each) for each in lists] == [2 * spatial, spatial, spatial])
    pads, strides, dilations = lists
    sizes = []
    for i in range(spatial):
        room = x[i + 2] + pads[i] + pads[i + spatial] - dilations[i] * (w[i + 2] - 1) - 1
        _need(room >= 0)
        sizes.append(room // strides[i] + 1)
    return [(x[0], w[0], *sizes)]


def _concat(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    axis, first = attributes["axis"], dims[0]
    _need(0 <= axis < len(first))
    _need(len({(len(each), each[:axis], each[axis + 1 :]) for each in dims}) == 1)
    return [(*first[:axis], sum(each[axis] for each in dims), *first[axis + 1 :])]


def _split(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    (x,), axis, sizes = dims, attributes["axis"], attributes["split"]
    _need(0 <= axis < len(x) and sum(sizes) == x[axis] and min(sizes) >= 0)
    return [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]


def _transpose(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    (x,), perm = dims, attributes["perm"]
    _need(sorted(perm) == list(range(len(x))))
    return [tuple(x[axis] for axis in perm)]


def _reshape(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    (x,), shape = dims, attributes["shape"]
    _need(min(shape, default=0) >= 0 and prod(shape) == prod(x))
    return [tuple(shape)]


def _pad(attributes: Attributes, dims: list[Dims]) -> list[Dims]:
    (x,), pads = dims, attributes["pads"]
    _need(len(pads) == 2 * len(x) and min(pads, default=0) >= 0)
    return [tuple(size + pads[i] + pads[i + len(x)] for i, size in enumerate(x))]


_SHAPES: dict[str, Callable[[Attributes, list[Dims]], list[Dims]]] = {
    "MatMul": _matmul,
    "Conv": _conv,
    "Concat": _concat,
    "Split": _split,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Pad": _pad,
}
