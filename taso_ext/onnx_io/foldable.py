"""Which nodes can be computed when a model is exported, without turning a few numbers into gigabytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from taso_ext._core import Node, Value
from taso_ext.onnx_io.weights.handles import nbytes

_ALWAYS_FOLDED = 1 << 26
"""Bytes up to which a value is computed whatever it is made of."""
_LARGEST_GROWTH = 16
"""Beyond that, a value may take this many times the bytes of all weights: a 1×1 kernel made 3×3 takes nine."""


def computable_nodes(values: Mapping[int, Value], nodes: Sequence[Node]) -> set[int]:
    """Positions of the nodes that depend on weights alone, where neither they nor what they are made of grow too large.

    What is left out stays in the model: a large constant that is made of a few numbers costs less to make than to keep.
    A size that is not known is taken to be small, as it is in all but contrived models.
    """
    weights = {value: _bytes(view) for value, view in values.items() if view.handle is not None}
    limit = max(_ALWAYS_FOLDED, _LARGEST_GROWTH * sum(filter(None, weights.values())))
    known = set(weights)
    found = set()
    for position, node in enumerate(nodes):
        if node.weight_only and all(value in known or value < 0 for value in node.inputs):
            sizes = [_bytes(values[value]) for value in node.outputs]
            if all(size is None or size <= limit for size in sizes):
                found.add(position)
                known.update(node.outputs)
    return found


def _bytes(value: Value) -> int | None:
    """None where the size is not known; a string counts as its shortest form."""
    if value.dims is None or value.dtype == ir.DataType.UNDEFINED:
        return None
    dtype = ir.DataType.UINT8 if value.dtype == ir.DataType.STRING else ir.DataType(value.dtype)
    return nbytes(dtype, tuple(value.dims))
