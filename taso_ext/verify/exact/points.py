"""How many random points tell two graphs apart: the degrees of their polynomials, and the signs that they decide by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taso_ext._core import Graph, Node
from taso_ext.verify.exact.fields import PRIMES
from taso_ext.verify.exact.functions import COMPARISONS, EXTREMA
from taso_ext.verify.exact.linear import LINEAR_KERNELS
from taso_ext.verify.valued_operands import domains_of, has_choices

ERROR_BITS = 60
"""A wrong pair of graphs shall pass with probability below 2⁻⁶⁰."""
MOST_POINTS = 128
"""The most points in each field; graphs that decide by many signs reach it."""
THOROUGH_POINTS = 2048
"""The most points in each field for the first graphs of a rule: some rules fit only graphs of few elements, each of
which depends on many signs."""
FEWEST_SHAPES = 4
"""The fewest distinct instances; a rule with fewer is hardly tested."""
VALUED_POINTS = 12
"""The points at which operands whose elements lie in a domain (valued_operands.py) take different ones of these."""


def points_needed(source: Graph, target: Graph, most: int = MOST_POINTS) -> int:
    """Returns the number of points in each field.

    All elements at all points together miss a given combination of `decided` signs with probability 2⁻⁶⁰. If that takes
    more points than `most`, which is at least MOST_POINTS, then MOST_POINTS have to do.
    """
    decided = decisions(source, target)
    least = VALUED_POINTS if has_choices([*domains_of(source).values()]) else 1
    if decided == 0:
        return least
    elements = _elements(source)
    needed = ERROR_BITS * np.log(2) * 2.0 ** min(decided, 16) / (elements * len(PRIMES))
    return max(least, math.ceil(needed) if needed <= most else MOST_POINTS)


def error_bits(source: Graph, target: Graph, points: int) -> float:
    """Returns −log₂ of the chance that different graphs agree at all points."""
    degree = degree_bound(source) + degree_bound(target)
    bits = sum(points * (math.log2(prime) - math.log2(max(degree, 1))) for prime in PRIMES)
    decided = decisions(source, target)
    if decided == 0:
        return float(max(bits, 0.0))
    unseen = np.log2(1 - 2.0 ** -min(decided, 50)) * points * len(PRIMES) * _elements(source)
    return float(max(min(bits, -unseen), 0.0))


def _elements(graph: Graph) -> int:
    """Returns the number of elements of the smallest output; each element depends on signs of its own."""
    values = graph.values()
    return max(1, min(math.prod(values[id_].dims or ()) for id_ in graph.outputs))


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
"""The degrees of numerator and denominator."""


def degree_bound(graph: Graph) -> int:
    """Returns a bound on the degree of numerator and denominator together, over all outputs.

    Inputs and weights have degree 1. Results of random functions, roots and exponentials count as fresh variables where
    they are read. For norms, softmax and other composites, the factors of their definitions count.
    """
    values, degrees = graph.values(), dict[int, Degree]()
    for node in graph.nodes():
        operands = [degrees.get(id_, (1, 0)) for id_ in node.inputs if id_ >= 0] or [(0, 0)]
        terms = max([math.prod(values[id_].dims or ()) for id_ in node.inputs if id_ >= 0], default=1)
        degree = _degree(node, operands, max(terms, 1))
        degrees.update(dict.fromkeys(node.outputs, degree))
    return max(sum(degrees.get(id_, (1, 0))) for id_ in graph.outputs)


def _degree(node: Node, operands: Sequence[Degree], terms: int) -> Degree:
    """Returns the degree of an operator's results.

    Args:
      terms: the most terms that a sum over elements can have; their denominators multiply.
    """
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
    # A random function's result is one variable; composites multiply a few such results with their affine operands.
    return 4 * (1 + above) + terms * below, terms * (1 + below)


def decisions(*graphs: Graph) -> float:
    """Returns how many signs an output element can depend on, in all graphs together.

    A choice of one element among n counts as log₂ n signs.
    """
    return sum(_longest(graph) for graph in graphs)


def _longest(graph: Graph) -> float:
    """Returns the most signs on a path from an input to an output."""
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
    whole, chosen = (math.prod(values[id_].dims or ()) for id_ in (node.inputs[0], node.outputs[0]))
    window = node.attributes.get("kernel_shape")
    candidates = math.prod(map(int, window)) if isinstance(window, list) else whole // max(chosen, 1)
    return math.log2(max(candidates, 1))
