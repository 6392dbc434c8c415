"""Equality of two graphs as functions, by evaluation at random points of prime fields.

Two graphs of linear and rational operators compute the same function for given shapes exactly when their outputs agree
as rational functions of all input and weight elements. If they do not, they still agree at a uniformly random point of
the field of p elements with probability at most d/p, where d is the degree of the difference (Schwartz 1980; Zippel
1979). One point in each of two fields with p ≈ 2⁶¹ makes that (d/p)²: under 2⁻⁶⁰ per shape and attribute instance for
every degree below 2³¹; `FieldAgreement.error_bits` has the figure of the graphs at hand.

Roots and exponentials have counterparts in the field, and random functions stand for other functions (fields.py):
distinct arguments give independent values, which count as fresh variables in this bound. Operators without a kernel
are opaque: every element of a result is a random function of all operands together. Graphs that differ here because a
function is random are compared in real numbers (reals.py). Real numbers decide what is positive and what is greatest.
One point shows only one branch of such a decision, so graphs that decide are compared at more points. This test does
*not* cover float rounding, overflow and the special values; numeric/differential.py does.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from taso_ext._core import Graph, Node, Value
from taso_ext.onnx_io.operators import RANDOM_OPERATORS
from taso_ext.onnx_io.weights.content import known, materialise
from taso_ext.verify.exact.fields import EXPONENT_PRIMES, PRIMES, NotInvertibleError
from taso_ext.verify.exact.functions import COMPARISONS, EXPONENTIALS, EXTREMA, FUNCTION_KERNELS
from taso_ext.verify.exact.linear import LAYOUT_KERNELS, LINEAR_KERNELS
from taso_ext.verify.exact.norms import NORM_KERNELS
from taso_ext.verify.exact.reals import LongArithmetic, LongMismatch, first_difference, movements
from taso_ext.verify.exact.tensor import Arithmetic, Call, FieldTensor, Kernel, UnsupportedOperatorError

KERNELS: dict[str, Kernel] = {**LINEAR_KERNELS, **LAYOUT_KERNELS, **FUNCTION_KERNELS, **NORM_KERNELS}


def evaluate_call(call: Call) -> list[FieldTensor]:
    """Returns the outputs of one operator.

    Raises:
      UnsupportedOperatorError: if the operator is random or has a form that is not evaluated.
      NotInvertibleError: if a divisor is zero in this field.
    """
    if call.op_type in RANDOM_OPERATORS:
        raise UnsupportedOperatorError(f"{call.op_type} is random: equality of graphs that contain it is not defined")
    try:
        results = KERNELS.get(call.op_type, _opaque)(call)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # attributes or shapes that no valid operator has
        if isinstance(error, UnsupportedOperatorError):
            raise
        raise UnsupportedOperatorError(f"{call.op_type} has a form that is not evaluated: {error!r}") from error
    return results


def _opaque(call: Call) -> list[FieldTensor]:
    if isinstance(call.arithmetic, LongArithmetic):
        raise UnsupportedOperatorError(f"{call.op_type} has no definition in real numbers")
    operands = [None if value is None else value.parts[0] for value in call.inputs]
    results = []
    for port, dims in enumerate(call.output_dims):
        images = [f.opaque(f"{call.key()}/{port}", operands, dims) for f in call.arithmetic.functions]
        results.append(call.arithmetic.hashed(images))
    return results


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
        terms = max([int(np.prod(values[id_].dims or ())) for id_ in node.inputs if id_ >= 0], default=1)
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
    whole, chosen = (int(np.prod(values[id_].dims or ())) for id_ in (node.inputs[0], node.outputs[0]))
    window = node.attributes.get("kernel_shape")
    candidates = int(np.prod(window)) if isinstance(window, list) else whole // max(chosen, 1)  # type: ignore[arg-type]
    return math.log2(max(candidates, 1))


ERROR_BITS = 60
"""A wrong pair of graphs shall pass with probability below 2⁻⁶⁰."""
MOST_POINTS = 128
"""The most points in each field; graphs that decide by many signs reach it."""
_ATTEMPTS = 8  # a random divisor is zero with probability about elements / 2⁶¹: one retry is already rare


@dataclass(frozen=True)
class FieldMismatch:
    """The place where two graphs differ (output and element), and what each graph computes there modulo `prime`.

    `target` is None if the target divides by zero at every point at which the source does not.
    """

    output: int
    index: tuple[int, ...]
    source: int
    target: int | None
    prime: int

    def __str__(self) -> str:
        if self.target is None:
            return f"the target divides by zero where the source does not, at all random points modulo {self.prime}"
        return (
            f"output {self.output} at {list(self.index)} is {self.source} in the source and {self.target} in the "
            f"target, modulo {self.prime}"
        )


@dataclass(frozen=True)
class FieldAgreement:
    """The outcome of comparing two graphs.

    Attributes:
      mismatch: the first difference, or None.
      points: how many points were compared in each field.
      in_reals: whether the graphs differ in the fields, where functions are random, and agree in real numbers.
      error_bits: different graphs would agree at all points with probability below 2^−error_bits; 0 after a mismatch.
    """

    mismatch: FieldMismatch | LongMismatch | None
    points: int
    error_bits: float
    in_reals: bool = False


def evaluate(graph: Graph, leaves: Mapping[str, FieldTensor], arithmetic: Arithmetic) -> list[FieldTensor]:
    """Returns the outputs of `graph`, in order.

    Args:
      leaves: exact numbers for every graph input and every weight, by `leaf_key`.
      arithmetic: the arithmetic of the leaves.
    Raises:
      UnsupportedOperatorError: if the graph contains a random operator or a form that is not evaluated.
      NotInvertibleError: if a division meets zero.
    """
    values = graph.values()
    computed = {id_: leaves[leaf_key(value)] for id_, value in values.items() if leaf_key(value) in leaves}
    literals = {id_: number for id_, value in values.items() if (number := literal_of(value)) is not None}
    for node in graph.nodes():
        call = Call(
            op_type=qualified(node.domain, node.op_type),
            attributes=node.attributes,
            inputs=[None if id_ < 0 else computed[id_] for id_ in node.inputs],
            output_dims=[tuple(values[id_].dims or ()) for id_ in node.outputs],
            literals={at: literals[id_] for at, id_ in enumerate(node.inputs) if id_ in literals},
            arithmetic=arithmetic,
        )
        computed.update(zip(node.outputs, evaluate_call(call), strict=True))
    return [computed[id_] for id_ in graph.outputs]


def qualified(domain: str, op_type: str) -> str:
    """Returns the operator's name, with its domain if that is not ONNX's own."""
    return f"{domain}::{op_type}" if domain else op_type


def find_difference(source: Graph, target: Graph, *, seed: int = 0) -> FieldMismatch | None:
    """Returns the first difference of two graphs that a random point of the fields shows, or None."""
    mismatch = compare_exactly(source, target, seed=seed, in_reals=False).mismatch
    assert not isinstance(mismatch, LongMismatch)
    return mismatch


def compare_exactly(
    source: Graph, target: Graph, *, seed: int = 0, most_points: int = MOST_POINTS, in_reals: bool = True
) -> FieldAgreement:
    """Compares two graphs at random points: as many as their signs need, but at most `most_points` in each field.

    Args:
      in_reals: whether graphs that differ in the fields, where some functions are random, are compared as functions of
        real numbers (reals.py).
    Raises:
      TooLargeError: if the graphs differ in the fields and are too large to be compared in real numbers.
      UnsupportedOperatorError: as in `evaluate`.
      NotInvertibleError: if the source divides by zero at every point that is tried.
    """
    operators = [qualified(node.domain, node.op_type) for graph in (source, target) for node in graph.nodes()]
    exponents = bool(EXPONENTIALS.intersection(operators))
    points = min(most_points, _points(decisions(source, target), _elements(source)))
    for point in range(points):
        for prime, exponent_prime in zip(PRIMES, EXPONENT_PRIMES, strict=True):
            primes = (prime, exponent_prime) if exponents else (prime,)
            mismatch = _differ_at_point(source, target, primes, f"{seed}/{point}")
            if mismatch is not None:
                if in_reals:
                    return _compare_reals(source, target, seed, points, mismatch)
                return FieldAgreement(mismatch, points, 0.0)
    return FieldAgreement(None, points, _error_bits(source, target, points))


REAL_POINTS = 16
"""The most points in real numbers."""
INTEGER_POINTS = 3
"""The number of further points, at small integers."""
MOST_LONG_ELEMENTS = 20_000
"""The most elements of all values of two graphs, at all points, that are evaluated in real numbers."""
_ERRORS = 3  # evaluations with errors of the constants


class TooLargeError(ValueError):
    """Two graphs differ in the fields and are too large for real numbers, so that nothing is known."""


def _compare_reals(source: Graph, target: Graph, seed: int, points: int, mismatch: FieldMismatch) -> FieldAgreement:
    """Compares graphs that differ in the fields as real functions, if all their operators have a definition there.

    Raises:
      TooLargeError: if the graphs have too many elements.
      NotInvertibleError: if the source is undefined at every point that is tried.
    """
    points, compared = min(points, REAL_POINTS), 0
    elements = sum(math.prod(value.dims or ()) for graph in (source, target) for value in graph.values().values())
    if points * elements > MOST_LONG_ELEMENTS:
        raise TooLargeError("the graphs differ in prime fields and are too large to be compared in real numbers")
    for point in range(points * _ATTEMPTS):
        try:
            difference = _differ_in_reals(source, target, seed, point)
        except UnsupportedOperatorError:
            return FieldAgreement(mismatch, points, 0.0)
        except NotInvertibleError:
            continue
        if difference is not None:
            return FieldAgreement(difference, points, 0.0)
        compared += 1
        if compared == points:
            difference = _differ_at_integers(source, target, seed)
            if difference is not None:
                return FieldAgreement(difference, points, 0.0)
            return FieldAgreement(None, points, _error_bits(source, target, points), in_reals=True)
    raise NotInvertibleError(f"the source is undefined at most of {points * _ATTEMPTS} real points")


def _differ_at_integers(source: Graph, target: Graph, seed: int) -> LongMismatch | None:
    """Returns a difference of results at small integers; points at which either side divides by zero say nothing."""
    for point in range(-INTEGER_POINTS, 0):
        try:
            difference = _differ_in_reals(source, target, seed, point)
        except NotInvertibleError:
            continue
        if difference is not None:
            return difference
    return None


def _differ_in_reals(source: Graph, target: Graph, seed: int, point: int) -> LongMismatch | None:
    """Returns the first difference of results.

    Raises:
      NotInvertibleError: if the source is undefined, or if the target divides by zero at integers (`point` < 0).
    """

    def results(graph: Graph, arithmetic: LongArithmetic) -> list[FieldTensor]:
        return evaluate(graph, draw_leaves([source, target], arithmetic, _seed(f"real {seed}/{point}")), arithmetic)

    exact = LongArithmetic.of(point)
    expected = results(source, exact)
    try:
        got = results(target, exact)
        inexact = [LongArithmetic.of(point, errors) for errors in range(_ERRORS if exact.uncertain else 0)]
        of_source, of_target = ([results(graph, arithmetic) for arithmetic in inexact] for graph in (source, target))
    except NotInvertibleError:
        if point < 0:
            raise
        return LongMismatch(0, (), 0.0, math.inf)
    allowed = [
        np.asarray(a + b, object)
        for a, b in zip(movements(expected, of_source), movements(got, of_target), strict=True)
    ]
    return first_difference(expected, got, allowed)


def _differ_at_point(source: Graph, target: Graph, primes: Sequence[int], point: str) -> FieldMismatch | None:
    undefined: FieldMismatch | None = None
    for attempt in range(_ATTEMPTS):
        seed = _seed(f"{point}/{attempt}")
        arithmetic = Arithmetic.at(primes, seed)
        leaves = draw_leaves([source, target], arithmetic, seed)
        try:
            expected = evaluate(source, leaves, arithmetic)
        except NotInvertibleError:
            continue
        try:
            return _compare(expected, evaluate(target, leaves, arithmetic), primes[0])
        except NotInvertibleError:
            undefined = FieldMismatch(0, (), 0, None, primes[0])
    if undefined is not None:
        return undefined
    raise NotInvertibleError(f"a divisor is zero modulo {primes[0]} at all of {_ATTEMPTS} random points")


def _points(decided: float, elements: int) -> int:
    """Returns the number of points in each field, at most MOST_POINTS.

    Without this limit, all elements at all points together would miss a given combination of `decided` signs with
    probability 2⁻⁶⁰.
    """
    if decided == 0:
        return 1
    needed = ERROR_BITS * np.log(2) * 2.0 ** min(decided, 16) / (elements * len(PRIMES))
    return int(min(MOST_POINTS, np.ceil(needed)))


def _error_bits(source: Graph, target: Graph, points: int) -> float:
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
    return max(1, min(int(np.prod(values[id_].dims or ())) for id_ in graph.outputs))


def draw_leaves(graphs: Sequence[Graph], arithmetic: Arithmetic, seed: int) -> dict[str, FieldTensor]:
    """Returns exact numbers for all inputs and weights, by `leaf_key`; they are random if no content is known.

    A leaf that several graphs share is drawn once.
    """
    leaves: dict[str, FieldTensor] = {}
    for graph in graphs:
        produced = {id_ for node in graph.nodes() for id_ in node.outputs}
        for id_, value in graph.values().items():
            if id_ not in produced and leaf_key(value) not in leaves:
                leaves[leaf_key(value)] = _draw(value, arithmetic, seed)
    return leaves


def leaf_key(value: Value) -> str:
    """Returns the key of a leaf: equal for weights with equal handles, and for inputs with equal names."""
    return value.name if value.handle is None else f"weight:{value.handle}"


def literal_of(value: Value) -> float | None:
    """Returns the number that all elements of a constant are known to have, or None."""
    return value.content if isinstance(value.content, float) else None


def _draw(value: Value, arithmetic: Arithmetic, seed: int) -> FieldTensor:
    dims = tuple(value.dims or ())
    content = known(value.content)
    if content is not None:
        return arithmetic.constants(materialise(content, dims))
    generator = np.random.default_rng(_seed(f"{seed}/{leaf_key(value)}"))
    if value.dtype == TensorProto.BOOL:
        return arithmetic.integers(generator.integers(0, 2, dims))
    return arithmetic.draw(generator, dims)


def _compare(source: Sequence[FieldTensor], target: Sequence[FieldTensor], prime: int) -> FieldMismatch | None:
    for output, (expected, got) in enumerate(zip(source, target, strict=True)):
        if expected.dims != got.dims:
            return FieldMismatch(output, (), expected.parts[0].size, got.parts[0].size, prime)
        a, b = expected.parts[0], got.parts[0]
        differing = np.argwhere(a != b)
        if len(differing):  # the index of a scalar's only element is empty
            index = tuple(int(i) for i in differing[0])
            return FieldMismatch(output, index, int(a[index]), int(b[index]), prime)
    return None


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
