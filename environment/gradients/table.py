"""The table of gradients: for each operator of ONNX, how to write the product of a cotangent and its Jacobian."""

from __future__ import annotations

import difflib

import onnx

from environment.gradients.entries import (
    convolution,
    linear_algebra,
    normalisation,
    pointwise,
    reductions,
    resizing,
    shape_operators,
)
from environment.gradients.rule import Rule
from taso_ext.errors import ModelError
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, RANDOM_OPERATORS

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **reductions.RULES,
    **linear_algebra.RULES,
    **convolution.RULES,
    **shape_operators.RULES,
    **normalisation.RULES,
    **resizing.RULES,
}
"""The rules by operator."""

FLAT = RANDOM_OPERATORS | {
    *("Ceil", "Floor", "Round", "Sign", "ConstantOfShape", "EyeLike", "OneHot", "Shape", "Size", "IsInf", "IsNaN"),
    *("ArgMax", "ArgMin", "NonZero", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
}
"""Operators whose result does not change with their operands' elements, or only in steps: their gradient is zero."""


def has_gradient(node: onnx.NodeProto) -> bool:
    """Returns whether cotangents pass through an operator: false if its gradient is zero everywhere."""
    return not (node.domain in DEFAULT_DOMAINS and node.op_type in FLAT)


def rule_of(node: onnx.NodeProto) -> Rule:
    """Returns the rule of a node's operator.

    Raises:
      ModelError: the table has none.
    """
    if node.domain in DEFAULT_DOMAINS and node.op_type in RULES:
        return RULES[node.op_type]
    kind = node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}"
    near = difflib.get_close_matches(node.op_type, RULES, 1, cutoff=0.8)
    raise ModelError(
        f"the gradient of the operator {kind} of the node '{node.name or node.output[0]}' is not known"
        f"{f' (that of {near[0]} is)' if near else ''}. Export the model with other operators, or train only weights "
        "behind this node (--train PATTERN)."
    )
