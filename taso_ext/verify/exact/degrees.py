"""How large the degree of a graph's outputs can be, and by how many signs it decides: what the error bound needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taso_ext._core import Graph, Node
from taso_ext.verify.exact.functions import COMPARISONS, EXTREMA
from taso_ext.verify.exact.linear import LINEAR_KERNELS

_PRODUCTS = frozenset(["Mul", "MatMul", "Gemm", "com.microsoft::FusedMatMul", "Conv", "ConvTranspose", "Einsum"])
_SUMS = frozenset(
    ["Add", "Sub", "Sum", "Mean", "Neg", "Pad", "AveragePool", "GlobalAveragePool", "ReduceSum", "ReduceMean"]
)
_MOVES = frozenset(
    [
        *("Identity", "Dropout", "Concat", "Split", "Slice", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"),
        *("Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Cast", "CastLike"),
    ]
)
_LITERALS = frozenset(["Constant", "ConstantOfShape", "EyeLike"])

Degree = tuple[int, int]
"""Of numerator and denominator."""


def degree_bound(graph: Graph) -> int:
    """A bound on the degree of numerator and denominator together, over all outputs.

    Inputs and weights have degree 1. Results of random functions, roots and exponentials are fresh variables to
    whatever reads them; norms, softmax and other composites are counted by their definitions' factors.
    """
    values, degrees = graph.values(), dict[int, Degree]()
    for node in graph.nodes():
        operands = [degrees.get(id_, (1, 0)) for id_ in node.inputs if id_ >= 0] or [(0, 0)]
        terms = max([int(np.prod(values[id_].dims or ())) for id_ in node.inputs if id_ >= 0], default=1)
        degree = _degree(node, operands, max(terms, 1))
        degrees.update(dict.fromkeys(node.outputs, degree))
    return max(sum(degrees.get(id_, (1, 0))) for id_ in graph.outputs)


def _degree(node: Node, operands: Sequence[Degree], terms: int) -> Degree:
    """`terms`: most numbers that a sum over elements can have; their denominators multiply."""
    name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    if not node.inputs and name in _LITERALS:
        return 0, 0
    above, below = max(a for a, _ in operands), max(b for _, b in operands)
    if name in _MOVES:
        return above, below
    if name == "Div" and operands[1] == (0, 0):
        return operands[0]
    if name in ("Div", "Reciprocal"):
        return sum(map(sum, operands)), sum(map(sum, operands))
    if name in _PRODUCTS or name in ("ReduceSumSquare", "ReduceProd", "Pow"):
        factors = [*operands, *operands[-1:]] if len(operands) < 3 else [*operands]
        above, below = sum(a for a, _ in factors), sum(b for _, b in factors)
        if name == "ReduceProd":
            above, below = above * terms, below * terms
        elif name == "Pow":
            above, below = 8 * above, 8 * below
        return (above + terms * below, terms * below) if below else (above, 0)
    if name in _SUMS:
        return (above + terms * below, terms * below) if below else (above, 0)
    if name in LINEAR_KERNELS:
        return terms * (above + below), terms * below
    # A random function's result is one variable; composites multiply a few such with their affine operands.
    return 4 * (1 + above) + terms * below, terms * (1 + below)


def decisions(*graphs: Graph) -> float:
    """Signs that an output element can depend on, in all graphs together; a choice of one of n is log₂ n of them."""
    return sum(_longest(graph) for graph in graphs)


def _longest(graph: Graph) -> float:
    """The most on a path from an input to an output."""
    so_far: dict[int, float] = {}
    for node in graph.nodes():
        count = _decisions(graph, node) + max((so_far.get(id_, 0.0) for id_ in node.inputs), default=0.0)
        so_far.update(dict.fromkeys(node.outputs, count))
    return max(so_far.get(id_, 0.0) for id_ in graph.outputs)


def _decisions(graph: Graph, node: Node) -> float:
    if node.domain:
        return 0.0
    if node.op_type in COMPARISONS:
        return 1.0
    if node.op_type not in EXTREMA:
        return 0.0
    values = graph.values()
    whole, chosen = (int(np.prod(values[id_].dims or ())) for id_ in (node.inputs[0], node.outputs[0]))
    window = node.attributes.get("kernel_shape")
    candidates = int(np.prod(window)) if isinstance(window, list) else whole // max(chosen, 1)  # type: ignore[arg-type]
    return math.log2(max(candidates, 1))
