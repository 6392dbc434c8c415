"""Operators that work element by element, in whatever order the axes lie."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf
from onnx import helper

from experiments.baselines.tensorflow.laid_out import Laid, aligned
from experiments.baselines.tensorflow.node import Inputs, Node, Operator, required


def _unary(function: Callable[[Any], Any]) -> Operator:
    def build(node: Node, inputs: Inputs) -> list[Laid]:
        (x,) = required(inputs)
        return [Laid(function(x.laid(x.order)), x.order)]

    return build


def _nary(function: Callable[..., Any]) -> Operator:
    def build(node: Node, inputs: Inputs) -> list[Laid]:
        values, order = aligned(required(inputs, len(inputs)))
        return [Laid(function(*values), order)]

    return build


def _folded(function: Callable[[Any, Any], Any]) -> Operator:
    return _nary(lambda *values: reduce(function, values))


def _add(node: Node, inputs: Inputs) -> list[Laid]:
    """A constant for each channel is a bias to TensorFlow, which fuses those."""
    left, right = required(inputs, 2)
    (x, y), order = aligned([left, right])
    for value, bias, constant in ((x, y, right.is_constant), (y, x, left.is_constant)):
        if constant and len(value.shape) >= 2 and _is_bias(bias.shape, value.shape):
            return [Laid(tf.nn.bias_add(value, tf.reshape(bias, [-1])), order)]
    return [Laid(tf.add(x, y), order)]


def _is_bias(dims: Any, of: Any) -> bool:
    return len(dims) >= 1 and dims[-1] == of[-1] != 1 and int(np.prod(dims)) == dims[-1]


def _div(x: Any, y: Any) -> Any:
    """ONNX's division of integers rounds towards zero."""
    return tf.truncatediv(x, y) if tf.as_dtype(x.dtype).is_integer else tf.divide(x, y)


def _pow(x: Any, y: Any) -> Any:
    return tf.pow(x, tf.cast(y, x.dtype))


def _clip(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    low, high = (node.constant(inputs, index, name) for index, name in ((1, "min"), (2, "max")))
    data = x.laid(x.order)
    dtype = tf.as_dtype(data.dtype).as_numpy_dtype
    if low == 0 and high == 6:
        return [Laid(tf.nn.relu6(data), x.order)]
    if low is not None:
        data = tf.maximum(data, low.astype(dtype))
    if high is not None:
        data = tf.minimum(data, high.astype(dtype))
    return [Laid(data, x.order)]


def _cast(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    return [Laid(tf.cast(x.laid(x.order), helper.tensor_dtype_to_np_dtype(node.attribute("to"))), x.order)]


def _gelu(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    return [Laid(tf.nn.gelu(x.laid(x.order), approximate=node.attribute("approximate") == "tanh"), x.order)]


def _leaky_relu(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    return [Laid(tf.nn.leaky_relu(x.laid(x.order), node.attribute("alpha", 0.01)), x.order)]


ELEMENTWISE: dict[str, Operator] = {
    "Abs": _unary(tf.abs),
    "Add": _add,
    "And": _nary(tf.logical_and),
    "Cast": _cast,
    "Ceil": _unary(tf.math.ceil),
    "Clip": _clip,
    "Div": _nary(_div),
    "Equal": _nary(tf.equal),
    "Erf": _unary(tf.math.erf),
    "Exp": _unary(tf.exp),
    "Floor": _unary(tf.floor),
    "Gelu": _gelu,
    "Greater": _nary(tf.greater),
    "GreaterOrEqual": _nary(tf.greater_equal),
    "Identity": _unary(tf.identity),
    "LeakyRelu": _leaky_relu,
    "Less": _nary(tf.less),
    "LessOrEqual": _nary(tf.less_equal),
    "Log": _unary(tf.math.log),
    "Max": _folded(tf.maximum),
    "Min": _folded(tf.minimum),
    "Mul": _nary(tf.multiply),
    "Neg": _unary(tf.negative),
    "Not": _unary(tf.logical_not),
    "Or": _nary(tf.logical_or),
    "Pow": _nary(_pow),
    "Reciprocal": _unary(tf.math.reciprocal),
    "Relu": _unary(tf.nn.relu),
    "Sigmoid": _unary(tf.sigmoid),
    "Softplus": _unary(tf.math.softplus),
    "Sqrt": _unary(tf.sqrt),
    "Sub": _nary(tf.subtract),
    "Sum": _folded(tf.add),
    "Tanh": _unary(tf.tanh),
    "Where": _nary(tf.where),
}
