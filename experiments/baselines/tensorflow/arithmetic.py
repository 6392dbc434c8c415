"""Elementwise operators, which accept any order of axes; matrix products, norms and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import tensorflow as tf
from onnx import helper

from experiments.baselines.tensorflow.values import Inputs, Laid, Node, Operator, aligned, channels_last, required


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
    """Builds Add; a constant for each channel becomes a bias, which TensorFlow can fuse."""
    left, right = required(inputs, 2)
    (x, y), order = aligned([left, right])
    for value, bias, constant in ((x, y, right.is_constant), (y, x, left.is_constant)):
        if constant and len(value.shape) >= 2 and _is_bias(bias.shape, value.shape):
            return [Laid(tf.nn.bias_add(value, tf.reshape(bias, [-1])), order)]
    return [Laid(tf.add(x, y), order)]


def _is_bias(dims: Any, of: Any) -> bool:
    return len(dims) >= 1 and dims[-1] == of[-1] != 1 and math.prod(dims) == dims[-1]


def _div(x: Any, y: Any) -> Any:
    """Divides two tensors; integers are rounded towards zero, as in ONNX."""
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


def _matmul(node: Node, inputs: Inputs) -> list[Laid]:
    left, right = required(inputs, 2)
    a, b = left.plain(), right.plain()
    if left.rank == 1:
        a = tf.expand_dims(a, 0)
    if right.rank == 1:
        b = tf.expand_dims(b, 1)
    if left.rank > 2 and right.rank <= 2:  # one large product instead of a batch of small ones, as in Keras' Dense
        rows = tf.matmul(tf.reshape(a, [-1, left.dims[-1]]), b)
        product = tf.reshape(rows, [*left.dims[:-1], b.shape[-1]])
    else:
        product = tf.matmul(a, b)
    if left.rank == 1:
        product = tf.squeeze(product, -2)
    if right.rank == 1:
        product = tf.squeeze(product, -1)
    return [Laid(product)]


def _gemm(node: Node, inputs: Inputs) -> list[Laid]:
    left, right = required(inputs, 2)
    transposed = {"transpose_a": bool(node.attribute("transA", 0)), "transpose_b": bool(node.attribute("transB", 0))}
    product = tf.matmul(left.plain(), right.plain(), **transposed)
    if (alpha := node.attribute("alpha", 1.0)) != 1.0:
        product = tf.multiply(product, tf.cast(alpha, product.dtype))
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is None:
        return [Laid(product)]
    scaled = (
        bias.plain() if (beta := node.attribute("beta", 1.0)) == 1.0 else bias.plain() * tf.cast(beta, product.dtype)
    )
    if bias.dims[-1:] == product.shape[-1:] and math.prod(bias.dims) == bias.dims[-1]:
        return [Laid(tf.nn.bias_add(product, tf.reshape(scaled, [-1])))]
    return [Laid(tf.add(product, scaled))]


def _layer_normalization(node: Node, inputs: Inputs) -> list[Laid]:
    """Builds LayerNormalization in another form than Keras.

    TensorFlow 2.21 fuses Keras' form into an operator that uses 0.001 whatever the epsilon is.
    """
    if len(node.proto.output) > 1:
        raise node.unsupported("the mean and deviation")
    x, scale = required(inputs, 2)
    bias = inputs[2] if len(inputs) > 2 else None
    data = x.plain()
    axes = list(range(node.attribute("axis", -1) % x.rank, x.rank))
    centred = data - tf.reduce_mean(data, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axes, keepdims=True)
    scaled = centred * tf.math.rsqrt(variance + node.attribute("epsilon", 1e-5)) * scale.plain()
    return [Laid(scaled if bias is None else scaled + bias.plain())]


def _batch_normalization(node: Node, inputs: Inputs) -> list[Laid]:
    if node.attribute("training_mode", 0):
        raise node.unsupported("the training mode")
    x, *rest = required(inputs, 5)
    scale, bias, mean, variance = (value.plain() for value in rest)
    epsilon = node.attribute("epsilon", 1e-5)
    order = channels_last(x.rank)
    data = x.laid(order)
    if x.rank != 4:
        return [Laid(tf.nn.batch_normalization(data, mean, variance, bias, scale, epsilon), order)]
    normalised, *_ = tf.compat.v1.nn.fused_batch_norm(
        data, scale, bias, mean, variance, epsilon, data_format="NHWC", is_training=False
    )
    return [Laid(normalised, order)]


def _along_axis(function: Callable[..., Any]) -> Operator:
    def build(node: Node, inputs: Inputs) -> list[Laid]:
        (x,) = required(inputs)
        return [Laid(function(x.laid(x.order), axis=x.place(node.attribute("axis", -1))), x.order)]

    return build


def _reduction(function: Callable[..., Any]) -> Operator:
    def build(node: Node, inputs: Inputs) -> list[Laid]:
        (x,) = required(inputs)
        given = node.constant(inputs, 1, "axes")
        if node.attribute("noop_with_empty_axes", 0) and (given is None or not given.size):
            raise node.unsupported("reducing nothing")
        axes = node.axes(inputs, 1, x.rank)
        keep = bool(node.attribute("keepdims", 1))
        data = function(x.laid(x.order), axis=x.places(axes), keepdims=keep)
        return [Laid(data, x.order if keep else _without(x, axes))]

    return build


def _without(x: Laid, axes: list[int]) -> tuple[int, ...]:
    """Returns the order of the remaining axes after some axes are removed."""
    left = [axis for axis in range(x.rank) if axis not in axes]
    return tuple(left.index(axis) for axis in x.order if axis not in axes)


def _arg_max(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    if node.attribute("select_last_index", 0):
        raise node.unsupported("the last index of several")
    axis = node.attribute("axis", 0) % x.rank
    found = tf.argmax(x.laid(x.order), axis=x.place(axis), output_type=tf.int64)
    if not node.attribute("keepdims", 1):
        return [Laid(found, _without(x, [axis]))]
    return [Laid(tf.expand_dims(found, x.place(axis)), x.order)]


PRODUCTS: dict[str, Operator] = {
    "ArgMax": _arg_max,
    "BatchNormalization": _batch_normalization,
    "Gemm": _gemm,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _along_axis(tf.nn.log_softmax),
    "MatMul": _matmul,
    "ReduceMax": _reduction(tf.reduce_max),
    "ReduceMean": _reduction(tf.reduce_mean),
    "ReduceMin": _reduction(tf.reduce_min),
    "ReduceProd": _reduction(tf.reduce_prod),
    "ReduceSum": _reduction(tf.reduce_sum),
    "Softmax": _along_axis(tf.nn.softmax),
}
