"""Exact kernels of normalisations, softmax and attention, from their definitions in ONNX's schemas."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from taso_ext.verify.exact.functions import extremum_along, power
from taso_ext.verify.exact.linear import reduced_axes
from taso_ext.verify.exact.tensor import Call, FieldTensor, Kernel, Part, UnsupportedOperatorError

_EPSILON = 1e-5


def softmax(x: FieldTensor, axis: int, allowed: Part | None = None) -> FieldTensor:
    """Returns eˣ / Σ eˣ; a shift by the maximum would cancel. Elements where `allowed` is 0 count as e^−∞ = 0."""
    powers = x.exp()
    if allowed is not None:
        powers = powers.times_sign(allowed)
    return powers / powers.sum((axis,))


def _softmax(call: Call) -> list[FieldTensor]:
    return [softmax(call.operand(0), call.attributes.get("axis", -1))]


def _log_softmax(call: Call) -> list[FieldTensor]:
    """Computes (x − max x) − log Σ e^(x − max x)."""
    x, axis = call.operand(0), call.attributes.get("axis", -1) % call.operand(0).rank
    greatest = extremum_along("max", x, (axis,)).moved(lambda part: np.expand_dims(part, axis))
    shifted = x - greatest
    return [shifted - shifted.exp().sum((axis,)).keyed("Log")]


def _log_sum_exp(call: Call) -> list[FieldTensor]:
    return [call.operand(0).exp().sum(reduced_axes(call)).keyed("Log").reshape(call.output_dims[0])]


def _normalised(x: FieldTensor, axes: tuple[int, ...], epsilon: FieldTensor) -> tuple[FieldTensor, ...]:
    """Returns (x − mean) / √(variance + ε), the mean, and 1 / √(variance + ε)."""
    mean = x.mean(axes)
    centred = x - mean
    inverse = x.arithmetic.constant(1) / ((centred * centred).mean(axes) + epsilon).sqrt()
    return centred * inverse, mean, inverse


def _affine(x: FieldTensor, scale: FieldTensor | None, bias: FieldTensor | None) -> FieldTensor:
    x = x if scale is None else x * scale
    return x if bias is None else x + bias


def _layer_norm(call: Call) -> list[FieldTensor]:
    return layer_norm(call, call.operand(0), call.optional(1), call.optional(2))[: len(call.output_dims)]


def layer_norm(call: Call, x: FieldTensor, scale: FieldTensor | None, bias: FieldTensor | None) -> list[FieldTensor]:
    """Returns the three results of LayerNormalization, over the axes from `axis` on."""
    axis = call.attributes.get("axis", -1) % x.rank
    normal, mean, inverse = _normalised(x, tuple(range(axis, x.rank)), call.number("epsilon", _EPSILON))
    return [_affine(normal, scale, bias), mean, inverse]


def rms_norm(x: FieldTensor, axes: tuple[int, ...], epsilon: FieldTensor) -> FieldTensor:
    """Returns x / √(mean x² + ε)."""
    return x / ((x * x).mean(axes) + epsilon).sqrt()


def _rms_norm(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    axis = call.attributes.get("axis", -1) % x.rank
    return [rms_norm(x, tuple(range(axis, x.rank)), call.number("epsilon", _EPSILON)) * call.operand(1)]


def _skip_layer_norm(call: Call) -> list[FieldTensor]:
    """Computes com.microsoft.SkipLayerNormalization(input, skip, gamma, beta, bias); the fourth result is the sum."""
    if len(call.output_dims) not in (1, 4):
        raise UnsupportedOperatorError("SkipLayerNormalization with mean or deviation outputs is not evaluated")
    total = _affine(call.operand(0), None, call.operand(1))
    total = _affine(total, None, call.optional(4))
    normal, mean, inverse = _normalised(total, (total.rank - 1,), call.number("epsilon", 1e-12))
    results = [_affine(normal, call.operand(2), call.optional(3)), mean, inverse, total]
    return results[: len(call.output_dims)]


def _lrn(call: Call) -> list[FieldTensor]:
    """Computes x / (bias + alpha / size · Σ x²)^beta, with a sum over the `size` channels around each."""
    x, size, beta = call.operand(0), int(call.attributes["size"]), float(call.attributes.get("beta", 0.75))
    around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.rank - 2)]
    squares = (x * x).moved(lambda part: np.pad(part, around))

    def shifted(by: int) -> FieldTensor:
        return squares.moved(lambda part: part[:, by : by + x.dims[1]])

    total = reduce(FieldTensor.__add__, map(shifted, range(size)))
    base = call.number("bias", 1.0) + call.number("alpha", 1e-4) / call.arithmetic.constant(size) * total
    return [x / power(base, call.arithmetic.constant(beta), beta)]


def _per_channel(tensor: FieldTensor, rank: int) -> FieldTensor:
    return tensor.reshape((-1, *[1] * (rank - 2)))


def _batch_norm(call: Call) -> list[FieldTensor]:
    x, *parameters = call.operands()
    scale, bias, mean, variance = (_per_channel(each, x.rank) for each in parameters)
    deviation = (variance + call.number("epsilon", _EPSILON)).sqrt()
    return [(x - mean) / deviation * scale + bias]


def _instance_norm(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    normal = _normalised(x, tuple(range(2, x.rank)), call.number("epsilon", _EPSILON))[0]
    return [_affine(normal, _per_channel(call.operand(1), x.rank), _per_channel(call.operand(2), x.rank))]


def _group_norm(call: Call) -> list[FieldTensor]:
    """Computes GroupNormalization with scale and bias per channel (opset 21) or per group (opset 18)."""
    x, groups = call.operand(0), call.attributes["num_groups"]
    grouped = x.reshape((x.dims[0], groups, -1))
    normal = _normalised(grouped, (2,), call.number("epsilon", _EPSILON))[0].reshape(x.dims)
    parameters = []
    for tensor in (call.operand(1), call.operand(2)):
        parameters.append(_per_channel(_repeated(tensor, x.dims[1] // tensor.dims[0], axis=0), x.rank))
    return [_affine(normal, *parameters)]


def _repeated(x: FieldTensor, repeats: int, axis: int) -> FieldTensor:
    return x.moved(lambda part: np.repeat(part, repeats, axis=axis))


def _mean_variance(call: Call) -> list[FieldTensor]:
    """Computes (x − mean) / (√variance + 1e-9), as the function body of the schema does."""
    x, axes = call.operand(0), tuple(call.attributes.get("axes", (0, 2, 3)))
    constant = call.arithmetic.constant
    deviation = ((x * x).mean(axes) - x.mean(axes) * x.mean(axes)).sqrt()
    return [(x - x.mean(axes)) / (deviation + constant(1e-9))]


def _l1(call: Call) -> list[FieldTensor]:
    return [call.operand(0).absolute().sum(reduced_axes(call)).reshape(call.output_dims[0])]


def _l2(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [(x * x).sum(reduced_axes(call)).sqrt().reshape(call.output_dims[0])]


def _log_sum(call: Call) -> list[FieldTensor]:
    return [call.operand(0).sum(reduced_axes(call)).keyed("Log").reshape(call.output_dims[0])]


def _lp_norm(call: Call) -> list[FieldTensor]:
    x, axis = call.operand(0), call.attributes.get("axis", -1)
    norm = x.absolute().sum((axis,)) if call.attributes.get("p", 2) == 1 else (x * x).sum((axis,)).sqrt()
    return [x / norm]


def _heads(x: FieldTensor, heads: int | None) -> FieldTensor:
    """Returns [batch, time, heads · depth] as [batch, heads, time, depth]; a tensor of rank 4 stays as it is."""
    if x.rank == 4:
        return x
    if not heads:
        raise UnsupportedOperatorError("attention over three axes needs the number of heads")
    batch, time, _ = x.dims
    return x.reshape((batch, time, heads, -1)).transpose((0, 2, 1, 3))


def _attention(call: Call) -> list[FieldTensor]:
    """Computes the first result of Attention (opset 23), without past keys and values."""
    call.require("qk_matmul_output_mode", 0)
    if len(call.inputs) > 4 or len(call.output_dims) > 1:
        raise UnsupportedOperatorError("Attention with past keys and values, or several results, is not evaluated")
    heads = call.attributes.get("q_num_heads")
    kv_heads = call.attributes.get("kv_num_heads")
    query = _heads(call.operand(0), heads)
    key, value = (_heads(call.operand(index), kv_heads) for index in (1, 2))
    repeats = query.dims[1] // key.dims[1]
    key, value = (_repeated(x, repeats, axis=1) for x in (key, value))
    scale = call.number("scale", 1 / float(np.sqrt(query.dims[-1])))
    scores, mask = (query @ key.transpose((0, 1, 3, 2))) * scale, call.optional(3)
    cap = float(call.attributes.get("softcap", 0.0))
    if cap:
        bound = call.number("softcap", 0.0)
        scores = (scores / bound).keyed_odd("Tanh") * bound
    allowed = None
    if call.attributes.get("is_causal", 0):
        allowed = np.tril(np.ones(scores.dims[-2:], np.int64))
    missing = 0 if mask is None or mask.rank == 0 else scores.dims[-1] - mask.dims[-1]
    if mask is not None and missing:  # a mask for some of the keys leaves out those behind them
        widths = [(0, 0)] * (mask.rank - 1) + [(0, missing)]
        mask = mask.moved(lambda part: np.pad(part, widths))
        shown = (np.arange(scores.dims[-1]) < scores.dims[-1] - missing).astype(np.int64)
        allowed = shown if allowed is None else allowed * shown
    result = softmax(scores if mask is None else scores + mask, -1, allowed) @ value
    if call.operand(0).rank == 3:
        result = result.transpose((0, 2, 1, 3))
    return [result.reshape(call.output_dims[0])]


def _multi_head(call: Call) -> list[FieldTensor]:
    """Computes com.microsoft.MultiHeadAttention of queries, keys and values alone, with as many heads of each."""
    heads = call.attributes["num_heads"]
    attributes = {name: call.attributes[name] for name in ("scale",) if name in call.attributes}
    attributes |= {"q_num_heads": heads, "kv_num_heads": heads}
    call.require("unidirectional", 0)
    if len(call.inputs) > 3:
        raise UnsupportedOperatorError("MultiHeadAttention with a bias, a mask or past keys is not evaluated")
    return _attention(replace(call, attributes=attributes))


def _cut(x: FieldTensor, cut: slice) -> FieldTensor:
    return x.moved(lambda part: part[..., cut])


def _rotary(call: Call) -> list[FieldTensor]:
    """Computes RotaryEmbedding (opset 23) with caches [batch, time, half], which already follow the positions."""
    if call.optional(3) is not None:
        raise UnsupportedOperatorError("RotaryEmbedding with position_ids is not evaluated; gathered caches are")
    x = call.operand(0)
    heads = _heads(x, call.attributes.get("num_heads"))
    width = call.attributes.get("rotary_embedding_dim", 0) or heads.dims[-1]
    cosine, sine = (call.operand(i).moved(lambda part: part[:, None]) for i in (1, 2))
    turned, rest = (_cut(heads, cut) for cut in (slice(width), slice(width, None)))
    interleaved = call.attributes.get("interleaved", 0)
    cuts = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(width // 2), slice(width // 2, None))
    first, second = (_cut(turned, cut) for cut in cuts)
    pair = first * cosine - second * sine, first * sine + second * cosine

    def join(a: Part, b: Part) -> Part:
        return np.stack([a, b], -1).reshape(turned.dims) if interleaved else np.concatenate([a, b], -1)

    joined = pair[0].each(lambda field, a, b, c: np.concatenate([join(a, b), c], -1), pair[1], rest)
    if x.rank == 3:
        joined = joined.transpose((0, 2, 1, 3))
    return [joined.reshape(x.dims)]


NORM_KERNELS: dict[str, Kernel] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceLogSum": _log_sum,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "LpNormalization": _lp_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "com.microsoft::SkipLayerNormalization": _skip_layer_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "MeanVarianceNormalization": _mean_variance,
    "Attention": _attention,
    "com.microsoft::MultiHeadAttention": _multi_head,
    "RotaryEmbedding": _rotary,
}
