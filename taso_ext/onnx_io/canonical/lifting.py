"""Bringing nodes into normal form: which operators have one, and trying it."""

from __future__ import annotations

from taso_ext.onnx_io.canonical import algebra as normal_algebra
from taso_ext.onnx_io.canonical import layout as normal_layout
from taso_ext.onnx_io.canonical import windows as normal_windows
from taso_ext.onnx_io.canonical.form import NormalForm, RawNode
from taso_ext.onnx_io.shapes import UNKNOWN

_LIFTERS = normal_algebra.LIFTERS | normal_layout.LIFTERS | normal_windows.LIFTERS


def lift(node: RawNode) -> NormalForm | None:
    """The normal form of a node, or None where it has none or cannot surely be brought into it."""
    lifter = _LIFTERS.get(node.op_type)
    return None if lifter is None or UNKNOWN in node.outputs else lifter(node)


def has_normal_form(op_type: str) -> bool:
    """Whether nodes of this operator are normally lifted, so that one that is not must be marked as raw."""
    return op_type in _LIFTERS
