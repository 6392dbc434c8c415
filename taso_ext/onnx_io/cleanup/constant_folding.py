"""Folding constants and static shapes, within limits on what is computed."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnxscript import optimizer

LARGEST_FOLDED = 1 << 18
"""Elements up to which a constant is computed at load; larger ones are only computed when the model is exported."""

_SIZED_BY_VALUES = frozenset(
    {
        "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "ConvTranspose", "Expand",
        "HammingWindow", "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "Tile",
        "Upsample",
    }
)  # fmt: skip
"""Operators that make something large of a few numbers."""


def fold_constants(model: ir.Model) -> bool:
    """Folds what depends on constants alone; whether anything changed."""
    return bool(optimizer.fold_constants_ir(model, should_fold=_should_fold).modified)


def _should_fold(node: ir.Node) -> bool | None:
    """No where the result might be larger than anything is worth, else None: as the library thinks best."""
    return None if all(_is_small(value, node) for value in node.outputs) else False


def _is_small(value: ir.Value, node: ir.Node) -> bool:
    """Whether a result stays below the limit; one of unknown shape does, unless its operator can blow up its inputs."""
    if value.shape is not None and value.shape.is_static():
        return math.prod(value.shape.numpy()) <= LARGEST_FOLDED
    return _is_short_range(node) if node.op_type == "Range" else node.op_type not in _SIZED_BY_VALUES


def _is_short_range(node: ir.Node) -> bool:
    """Shape inference wants scalars, where runtimes also take [1]; so the length of a range may be unknown to it."""
    bounds = [ir.convenience.get_const_tensor(value) for value in node.inputs if value is not None]
    if len(bounds) != 3 or any(tensor is None or tensor.size != 1 for tensor in bounds):
        return False
    start, limit, delta = (float(tensor.numpy().item()) for tensor in bounds if tensor is not None)
    return abs(limit - start) <= LARGEST_FOLDED * abs(delta)
