"""Matrix products, norms and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.baselines.tensorflow.laid_out import Laid, channels_last
from experiments.baselines.tensorflow.node import Inputs, Node, Operator, required


def _matmul(node: Node, inputs: Inputs) -> list[Laid]:
    left, right = required(inputs, 2)
    a, b = left.plain(), right.plain()
    if left.rank > 2 and right.rank == 2:  # one large product instead of a batch of small ones, as Keras' Dense
        rows = tf.matmul(tf.reshape(a, [-1, left.dims[-1]]), b)
        return [Laid(tf.reshape(rows, [*left.dims[:-1], right.dims[-1]]))]
    if left.rank == 1:
        a = tf.expand_dims(a, 0)
    if right.rank == 1:
        b = tf.expand_dims(b, 1)
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
    if bias.dims[-1:] == product.shape[-1:] and int(np.prod(bias.dims)) == bias.dims[-1]:
        return [Laid(tf.nn.bias_add(product, tf.reshape(scaled, [-1])))]
    return [Laid(tf.add(product, scaled))]


def _layer_normalization(node: Node, inputs: Inputs) -> list[Laid]:
    """Not as Keras writes it: TensorFlow 2.21 fuses that form into an operator that takes any epsilon for 0.001."""
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
        axes = node.axes(inputs, 1, x.rank)
        if node.attribute("noop_with_empty_axes", 0) and len(axes) == x.rank:
            raise node.unsupported("reducing nothing")
        keep = bool(node.attribute("keepdims", 1))
        data = function(x.laid(x.order), axis=x.places(axes), keepdims=keep)
        return [Laid(data, x.order if keep else _without(x, axes))]

    return build


def _without(x: Laid, axes: list[int]) -> tuple[int, ...]:
    """The order of what is left when axes are gone."""
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
