"""Gradients of sums, means, maxima and norms over axes, and of cumulative sums."""

from __future__ import annotations

import math

import onnx

from environment.gradients.operation import Operation
from environment.gradients.rule import Gradients, Rule


def _axes(op: Operation) -> list[int]:
    """Returns the axes that an operator reduces, from 0."""
    rank, given = len(op.dims(op.x)), op.constant_input(1)
    if given is None or not given.size:
        return [] if op.attribute("noop_with_empty_axes") else list(range(rank))
    return sorted(int(axis) % rank for axis in given.reshape(-1))


def _kept(op: Operation, value: str) -> str:
    """Returns a value of the result's shape with the reduced axes of size 1."""
    if op.attribute("keepdims"):
        return value
    axes = _axes(op)
    return op.reshaped(value, [1 if axis in axes else size for axis, size in enumerate(op.dims(op.x))])


def reduce_sum(op: Operation) -> Gradients:
    return [op.expanded(_kept(op, op.cotangent), op.dims(op.x))]


def reduce_mean(op: Operation) -> Gradients:
    count = math.prod(op.dims(op.x)[axis] for axis in _axes(op))
    return [op.expanded(op.scaled(_kept(op, op.cotangent), 1 / count), op.dims(op.x))]


def reduce_extremum(op: Operation) -> Gradients:
    """ReduceMax and ReduceMin; as in TensorFlow, equal elements share the gradient evenly."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(op.dtype)
    equal = op.write("Cast", op.write("Equal", op.x, _kept(op, op.y)), to=kind)
    share = op.write("Div", _kept(op, op.cotangent), op.total(equal, _axes(op), keep=True))
    return [op.write("Mul", equal, share)]


def reduce_sum_square(op: Operation) -> Gradients:
    return [op.write("Mul", op.scaled(op.x, 2), _kept(op, op.cotangent))]


def reduce_l2(op: Operation) -> Gradients:
    return [op.write("Mul", op.x, op.write("Div", _kept(op, op.cotangent), _kept(op, op.y)))]


def reduce_log_sum_exp(op: Operation) -> Gradients:
    shares = op.write("Exp", op.write("Sub", op.x, _kept(op, op.y)))
    return [op.write("Mul", shares, _kept(op, op.cotangent))]


def cumulative_sum(op: Operation) -> Gradients:
    """CumSum, whose gradient is the sum from the other end."""
    reverse, exclusive = 1 - op.attribute("reverse"), op.attribute("exclusive")
    return [op.write("CumSum", op.cotangent, op.inputs[1], reverse=reverse, exclusive=exclusive)]


RULES = {
    "ReduceSum": Rule(reduce_sum),
    "ReduceMean": Rule(reduce_mean),
    "ReduceMax": Rule(reduce_extremum),
    "ReduceMin": Rule(reduce_extremum),
    "ReduceSumSquare": Rule(reduce_sum_square),
    "ReduceL2": Rule(reduce_l2),
    "ReduceLogSumExp": Rule(reduce_log_sum_exp),
    "CumSum": Rule(cumulative_sum),
}
