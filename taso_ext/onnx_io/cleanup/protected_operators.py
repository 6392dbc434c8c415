"""Operators that onnxscript's passes mistreat, hidden from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from taso_ext.onnx_io.cleanup.ir_form import nodes
from taso_ext.onnx_io.operators import is_random

_HIDDEN_DOMAIN = "rlflow.hidden"


@contextmanager
def hidden(model: ir.Model) -> Iterator[None]:
    """Hides mistreated operators, each under a domain of its own, so that none is taken for another's equal."""
    opset = model.opset_imports.get("", 0)
    found = [node for node in nodes(model) if _is_mistreated(node, opset)]
    for index, node in enumerate(found):
        node.domain = f"{_HIDDEN_DOMAIN}.{index}"
    yield
    for node in found:
        node.domain = ""


def _is_mistreated(node: ir.Node, opset: int) -> bool:
    """Whether onnxscript 0.7 would fold, merge, misread or crash on an operator."""
    if node.domain != "":
        return False
    if is_random(node.op_type, node.domain, len(node.inputs)):
        return True  # it merges two equal Bernoulli, or Dropout while training
    if node.op_type in ("Clip", "Min", "Max", "Pad"):
        return opset < 11  # it looks for bounds and pads among the inputs, where older opsets have attributes
    if node.op_type == "CastLike":
        return len(node.attributes) > 0  # the Cast it becomes lacks them: saturate, round_mode
    if node.op_type == "ConcatFromSequence":
        return opset < 13  # it writes Unsqueeze as opset 13 does
    if node.op_type == "SplitToSequence":
        return opset < 13 or not _is_constant(node.inputs[1:])  # the same for Split; it fails where sizes are computed
    return False


def _is_constant(values: Sequence[ir.Value | None]) -> bool:
    return all(ir.convenience.get_const_tensor(value) is not None for value in values if value is not None)
