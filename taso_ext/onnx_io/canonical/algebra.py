"""Normal forms of operators that compute: products, norms, softmax, reductions and pointwise operators."""

from __future__ import annotations

import numpy as np

from taso_ext.onnx_io.canonical.form import Attribute, Lifter, NormalForm, RawNode, axes_of, axis_of

REDUCTIONS = frozenset(
    f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
)


def _float32(value: float) -> float:
    """Returns the number that an ONNX attribute holds: for the 0.01 of a schema, it is the nearest float32."""
    return float(np.float32(value))


_POINTWISE_DEFAULTS: dict[str, dict[str, Attribute]] = {
    "LeakyRelu": {"alpha": _float32(0.01)},
    "Elu": {"alpha": 1.0},
    "Celu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "Selu": {"alpha": _float32(1.67326319217681884765625), "gamma": _float32(1.05070102214813232421875)},
    "HardSigmoid": {"alpha": _float32(0.2), "beta": 0.5},
    "Gelu": {"approximate": "none"},
}
"""Schema defaults of pointwise operators with attributes, the same at every opset from 7 on."""
_DEFAULT_EPSILON = _float32(1e-5)


def reduction_axes_are_input(op_type: str, opset: int) -> bool:
    """Returns whether an operator of the Reduce family takes its axes as its second input at this opset."""
    return opset >= (13 if op_type == "ReduceSum" else 18)


def _gemm(node: RawNode) -> NormalForm | None:
    attributes: dict[str, Attribute] = {
        "alpha": float(node.attributes.get("alpha", 1.0)),  # type: ignore[arg-type]
        "beta": float(node.attributes.get("beta", 1.0)),  # type: ignore[arg-type]
        "transA": int(node.integer("transA", 0) != 0),
        "transB": int(node.integer("transB", 0) != 0),
    }
    return NormalForm("Gemm", attributes, (0, 1, 2) if node.given(2) else (0, 1))


def _reduce(node: RawNode) -> NormalForm | None:
    if not node.dims:
        return None
    rank = len(node.dims)
    if reduction_axes_are_input(node.op_type, node.opset):
        given = node.integers_at(1) if node.given(1) else []
    else:
        given = node.integers("axes") or []
    if given is None or (not given and node.integer("noop_with_empty_axes", 0)):
        return None
    axes = axes_of(given or list(range(rank)), rank)
    if axes is None:
        return None
    return NormalForm(node.op_type, {"axes": sorted(axes), "keepdims": int(node.integer("keepdims", 1) != 0)}, (0,))


def _softmax(node: RawNode) -> NormalForm | None:
    """Lifts a softmax over one axis.

    Before opset 13, softmax runs over all axes from `axis` on. This is the same if only one of them is longer than 1.
    """
    if not node.dims:
        return None
    axis = axis_of(node.integer("axis", -1 if node.opset >= 13 else 1), len(node.dims))
    if axis is None:
        return None
    if node.opset < 13:
        long = [i for i in range(axis, len(node.dims)) if node.dims[i] != 1]
        if len(long) > 1:
            return None
        axis = long[0] if long else axis
    return NormalForm(node.op_type, {"axis": axis}, (0,))


def _batch_normalization(node: RawNode) -> NormalForm | None:
    trains = node.integer("training_mode", 0) or not node.integer("spatial", 1)
    if trains or len(node.outputs) != 1 or len(node.inputs) != 5:
        return None
    return NormalForm("BatchNormalization", {"epsilon": _epsilon(node)}, (0, 1, 2, 3, 4))


def _layer_normalization(node: RawNode) -> NormalForm | None:
    if not node.dims or len(node.outputs) != 1 or node.integer("stash_type", 1) != 1:
        return None
    axis = axis_of(node.integer("axis", -1), len(node.dims))
    if axis is None:
        return None
    attributes: dict[str, Attribute] = {"axis": axis, "epsilon": _epsilon(node)}
    return NormalForm("LayerNormalization", attributes, (0, 1, 2) if node.given(2) else (0, 1))


def _rms_normalization(node: RawNode) -> NormalForm | None:
    if not node.dims or len(node.outputs) != 1 or node.integer("stash_type", 1) != 1:
        return None
    axis = axis_of(node.integer("axis", -1), len(node.dims))
    return None if axis is None else NormalForm("RMSNormalization", {"axis": axis, "epsilon": _epsilon(node)}, (0, 1))


def _rotary_embedding(node: RawNode) -> NormalForm | None:
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    positions = (0, 1, 2, 3) if node.given(3) else (0, 1, 2)
    return NormalForm("RotaryEmbedding", {name: node.integer(name, 0) for name in names}, positions)


def _attention(node: RawNode) -> NormalForm | None:
    """Lifts Attention if it has neither a cache nor further outputs.

    The normal form always gives the scale; it gives the numbers of heads only if the shapes do not contain them.
    """
    unusual = node.integer("qk_matmul_output_mode", 0) or "softmax_precision" in node.attributes
    if len(node.outputs) != 1 or unusual or not node.dims or max(node.present) > 3:
        return None
    heads = {name: node.integer(name, 0) for name in ("q_num_heads", "kv_num_heads") if len(node.dims) == 3}
    if len(node.dims) not in (3, 4) or not all(heads.values()):
        return None
    size = node.dims[3] if len(node.dims) == 4 else node.dims[2] // heads["q_num_heads"]
    scale, softcap = node.attributes.get("scale", size**-0.5 if size else 1.0), node.attributes.get("softcap", 0.0)
    if not isinstance(scale, (int, float)) or not isinstance(softcap, (int, float)):
        return None
    attributes: dict[str, Attribute] = {
        "is_causal": int(node.integer("is_causal", 0) != 0),
        "scale": _float32(scale),
        "softcap": float(softcap),
        **heads,
    }
    return NormalForm("Attention", attributes, (0, 1, 2, 3) if node.given(3) else (0, 1, 2))


def _epsilon(node: RawNode) -> float:
    value = node.attributes.get("epsilon", _DEFAULT_EPSILON)
    return float(value) if isinstance(value, (int, float)) else _DEFAULT_EPSILON


def _pointwise(node: RawNode) -> NormalForm | None:
    defaults = _POINTWISE_DEFAULTS[node.op_type]
    if not set(node.attributes) <= set(defaults):
        return None
    return NormalForm(node.op_type, defaults | dict(node.attributes), (0,))


LIFTERS: dict[str, Lifter] = {
    "Gemm": _gemm,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "RotaryEmbedding": _rotary_embedding,
    "Attention": _attention,
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(_POINTWISE_DEFAULTS, _pointwise),
}
