"""The losses of training graphs, with their derivatives by the outputs of the model.

| loss | of an output y | reads |
|---|---|---|
| `mean-square` | the mean over all elements of (y - target)² | `y.target`, of the shape and type of y |
| `cross-entropy` | the mean of -log softmax(y) at the label, along `axis` | `y.labels`, int64, as y without `axis` |
| `sum` | the sum over all elements of y; y itself if the model computes a scalar loss | nothing |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from environment.gradients.expressions import Expressions


@dataclass(frozen=True)
class Loss:
    """A loss of one output.

    Attributes:
      value: the loss, a scalar.
      seed: its derivative by the output, of the shape of the output.
      inputs: the inputs that it adds to the graph.
    """

    value: str
    seed: str
    inputs: Sequence[onnx.ValueInfoProto] = ()


MakeLoss = Callable[[Expressions, str, Sequence[int], str, int], Loss]
"""A function that writes a loss.

It takes an output of the model, its shape, its name for the user, and the axis of classes.
"""


def mean_square(at: Expressions, output: str, dims: Sequence[int], name: str, axis: int) -> Loss:
    target = at.writer.fresh(f"{name}.target")
    error = at.write("Sub", output, target)
    value = at.mean(at.write("Mul", error, error), list(range(len(dims))))
    seed = at.scaled(error, 2 / math.prod(dims))
    kind = helper.np_dtype_to_tensor_dtype(at.dtype)
    return Loss(value, seed, [helper.make_tensor_value_info(target, kind, dims)])


def cross_entropy(at: Expressions, output: str, dims: Sequence[int], name: str, axis: int) -> Loss:
    """Returns the mean cross entropy; its derivative by the logits is (softmax - one-hot labels) / count.

    Raises:
      ValueError: the output has no such axis.
    """
    if not -len(dims) <= axis < len(dims):
        raise ValueError(f"the output '{name}' has the shape {list(dims)}, and no axis {axis} of classes")
    axis %= len(dims)
    others = [size for place, size in enumerate(dims) if place != axis]
    labels = at.writer.fresh(f"{name}.labels")
    logs = at.write("LogSoftmax", output, axis=axis)
    zero_and_one = at.writer.constant([0, 1], at.dtype)
    chosen = at.write("OneHot", labels, at.writer.constant(dims[axis], "int64"), zero_and_one, axis=axis)
    total = at.total(at.write("Mul", logs, chosen), list(range(len(dims))))
    count = max(math.prod(others), 1)
    seed = at.scaled(at.write("Sub", at.write("Exp", logs), chosen), 1 / count)
    given = helper.make_tensor_value_info(labels, onnx.TensorProto.INT64, others)
    return Loss(at.scaled(total, -1 / count), seed, [given])


def total(at: Expressions, output: str, dims: Sequence[int], name: str, axis: int) -> Loss:
    return Loss(at.total(output, list(range(len(dims)))), at.filled(1, dims))


LOSSES: Mapping[str, MakeLoss] = {
    "mean-square": mean_square,
    "cross-entropy": cross_entropy,
    "sum": total,
}
"""The losses by name."""
