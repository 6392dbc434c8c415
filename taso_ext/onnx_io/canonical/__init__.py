"""Normal forms of operators: which operators have one, and bringing nodes into it."""

from __future__ import annotations

from taso_ext.onnx_io.canonical import algebra, layout, windows
from taso_ext.onnx_io.canonical.form import NormalForm, RawNode
from taso_ext.onnx_io.checked_model import UNKNOWN

_LIFTERS = algebra.LIFTERS | layout.LIFTERS | windows.LIFTERS


def lift(node: RawNode) -> NormalForm | None:
    """The normal form of a node, or None where it has none or cannot surely be brought into it."""
    lifter = _LIFTERS.get(node.op_type)
    return None if lifter is None or UNKNOWN in node.outputs else lifter(node)


def has_normal_form(op_type: str) -> bool:
    """Whether nodes of this operator are normally lifted, so that one that is not must be marked as raw."""
    return op_type in _LIFTERS
