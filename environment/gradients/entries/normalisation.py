"""Gradients of norms, softmax and dropout, and what norms and dropout compute in training.

BatchNormalization takes the mean and the variance of the batch, over all axes but the channels. The running mean and
variance move towards them by 1 - `momentum` (Ioffe and Szegedy 2015; the variance is the biased one, as in ONNX).

Dropout sets elements to zero at random, with probability `ratio`, and scales the others by 1 / (1 - ratio) (Srivastava
et al. 2014).
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from environment.gradients.operation import Operation
from environment.gradients.rule import Forward, Gradients, Rule


def batch_norm_forward(op: Operation) -> Forward:
    """Writes y = scale · (x - mean) / √(variance + ε) + shift with the statistics of the batch.

    ONNX Runtime computes BatchNormalization with `training_mode` only in its builds for training.
    """
    x, scale, shift, running_mean, running_variance = op.inputs
    dims = op.dims(x)
    others, by_channel = [0, *range(2, len(dims))], [1, dims[1], *[1] * (len(dims) - 2)]
    mean = op.mean(x, others, keep=True)
    centred = op.write("Sub", x, mean)
    variance = op.mean(op.write("Mul", centred, centred), others, keep=True)
    deviation = op.write("Sqrt", op.write("Add", variance, op.number(op.attribute("epsilon"))))
    inverse = op.write("Reciprocal", deviation)
    normed = op.write("Mul", centred, inverse)
    gain = op.reshaped(scale, by_channel)
    y = op.write("Add", op.write("Mul", normed, gain), op.reshaped(shift, by_channel))
    updated = {
        running_mean: _moved(op, running_mean, op.reshaped(mean, [dims[1]])),
        running_variance: _moved(op, running_variance, op.reshaped(variance, [dims[1]])),
    }
    return Forward([y], {"normed": normed, "inverse": inverse, "gain": gain}, updated)


def _moved(op: Operation, running: str, current: str) -> str:
    momentum = op.attribute("momentum")
    return op.write("Add", op.scaled(running, momentum), op.scaled(current, 1 - momentum))


def batch_norm(op: Operation) -> Gradients:
    """BatchNormalization in training; its running statistics have no gradient.

    Source: Ioffe and Szegedy 2015, section 3, in the form dx = scale / √(v + ε) · (dy - mean(dy) - x̂ · mean(dy · x̂)).
    """
    dims, normed = op.dims(op.x), op.saved["normed"]
    others = [0, *range(2, len(dims))]
    share = len(dims) and dims[1] / math.prod(dims)
    of_shift = op.total(op.cotangent, others, keep=True)
    of_scale = op.total(op.write("Mul", op.cotangent, normed), others, keep=True)
    constant = op.write("Sub", op.cotangent, op.scaled(of_shift, share))
    remaining = op.write("Sub", constant, op.write("Mul", normed, op.scaled(of_scale, share)))
    of_x = op.write("Mul", remaining, op.write("Mul", op.saved["gain"], op.saved["inverse"]))
    return [of_x, op.reshaped(of_scale, [dims[1]]), op.reshaped(of_shift, [dims[1]]), None, None]


def layer_norm_forward(op: Operation) -> Forward:
    """LayerNormalization with its optional outputs, the mean and the inverse of the deviation."""
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in op.node.attribute}
    y, mean, inverse = op.write_several("LayerNormalization", 3, *op.inputs, **attributes)
    kind = onnx.helper.np_dtype_to_tensor_dtype(op.dtype)
    saved = {"mean": mean, "inverse": inverse}
    if op.dtype != np.float32:  # its statistics are float32 for every type
        saved = {key: op.write("Cast", value, to=kind) for key, value in saved.items()}
    return Forward([y, mean, inverse], saved, {})


def layer_norm(op: Operation) -> Gradients:
    """LayerNormalization. Source: Ba et al. 2016, section 3; the derivation is that of a batch norm by rows."""
    dims = op.dims(op.x)
    first = op.attribute("axis") % len(dims)
    normed = op.write("Mul", op.write("Sub", op.x, op.saved["mean"]), op.saved["inverse"])
    scaled = op.write("Mul", op.cotangent, op.inputs[1])
    of_x = _of_normed(op, normed, op.saved["inverse"], scaled, list(range(first, len(dims))))
    of_scale = op.summed_to(op.write("Mul", op.cotangent, normed), dims, op.dims(op.inputs[1]))
    if not op.has(2):
        return [of_x, of_scale]
    return [of_x, of_scale, op.summed_to(op.cotangent, dims, op.dims(op.inputs[2]))]


def _of_normed(op: Operation, normed: str, inverse: str, cotangent: str, axes: list[int]) -> str:
    """Returns the gradient by x of x̂ = (x - mean) / deviation: (g - mean(g) - x̂ · mean(g · x̂)) / deviation."""
    centred = op.write("Sub", cotangent, op.mean(cotangent, axes, keep=True))
    correlation = op.mean(op.write("Mul", cotangent, normed), axes, keep=True)
    return op.write("Mul", op.write("Sub", centred, op.write("Mul", normed, correlation)), inverse)


def instance_norm(op: Operation) -> Gradients:
    """InstanceNormalization, which norms each channel of each element of the batch by itself (Ulyanov et al. 2016)."""
    dims = op.dims(op.x)
    axes, by_channel = list(range(2, len(dims))), [1, dims[1], *[1] * (len(dims) - 2)]
    centred = op.write("Sub", op.x, op.mean(op.x, axes, keep=True))
    variance = op.mean(op.write("Mul", centred, centred), axes, keep=True)
    deviation = op.write("Sqrt", op.write("Add", variance, op.number(op.attribute("epsilon"))))
    inverse = op.write("Reciprocal", deviation)
    normed = op.write("Mul", centred, inverse)
    scaled = op.write("Mul", op.cotangent, op.reshaped(op.inputs[1], by_channel))
    others = [0, *axes]
    of_scale = op.total(op.write("Mul", op.cotangent, normed), others)
    return [_of_normed(op, normed, inverse, scaled, axes), of_scale, op.total(op.cotangent, others)]


def softmax(op: Operation) -> Gradients:
    weighted = op.write("Mul", op.cotangent, op.y)
    axis = op.attribute("axis") % len(op.dims(op.x))
    return [op.write("Sub", weighted, op.write("Mul", op.y, op.total(weighted, [axis], keep=True)))]


def log_softmax(op: Operation) -> Gradients:
    axis = op.attribute("axis") % len(op.dims(op.x))
    whole = op.total(op.cotangent, [axis], keep=True)
    return [op.write("Sub", op.cotangent, op.write("Mul", op.write("Exp", op.y), whole))]


def dropout_forward(op: Operation) -> Forward:
    """Dropout that draws, whatever its training flag says."""
    ratio = op.inputs[1] if op.has(1) else op.writer.constant(0.5, np.float32)
    always = op.writer.constant(True, np.bool_)
    y, kept = op.write_several("Dropout", 2, op.x, ratio, always, seed=op.attribute("seed"))
    return Forward([y, kept], {"kept": kept}, {})


def dropout(op: Operation) -> Gradients:
    """Dropout: what was dropped has no gradient.

    Raises:
      ModelError: its ratio is no constant.
    """
    given = op.constant_input(1)
    ratio = 0.5 if given is None else float(given.reshape(()))
    scaled = op.scaled(op.cotangent, 1 / (1 - ratio)) if ratio < 1 else op.cotangent
    return [op.write("Where", op.saved["kept"], scaled, op.number(0))]


RULES = {
    "BatchNormalization": Rule(batch_norm, forward=batch_norm_forward),
    "LayerNormalization": Rule(layer_norm, forward=layer_norm_forward),
    "InstanceNormalization": Rule(instance_norm),
    "Softmax": Rule(softmax),
    "LogSoftmax": Rule(log_softmax),
    "Dropout": Rule(dropout, forward=dropout_forward),
}
