"""The float comparison accepts rounding, and rejects narrowed domains, hidden errors and wrong numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from onnx import TensorProto

from taso_ext._core import Graph, GraphBuilder
from taso_ext.verify.exact.finite_field import find_difference
from taso_ext.verify.numeric.differential import compare_floats
from taso_ext.verify.rule_file import Rounding

Attribute = int | float | str | list[int]


class Writer:
    """A builder of small float graphs; every tensor is [4, 6] unless `dims` says otherwise."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def input(self, name: str, dims: Sequence[int] = (4, 6)) -> int:
        return self.builder.input(name, TensorProto.FLOAT, list(dims))

    def weight(self, name: str, dims: Sequence[int] = (4, 6)) -> int:
        return self.builder.weight(name, name, TensorProto.FLOAT, list(dims))

    def __call__(self, op_type: str, *operands: int, dims: Sequence[int] = (4, 6), **attributes: Attribute) -> int:
        return self.builder.node("", op_type, attributes, list(operands), [("", TensorProto.FLOAT, list(dims))])[0]

    def graph(self, output: int) -> Graph:
        self.builder.output(output)
        return self.builder.build()


Body = Callable[[Writer, int], int]


def graph_of(body: Body) -> Graph:
    """Returns the graph of `body` applied to an input x."""
    writer = Writer()
    return writer.graph(body(writer, writer.input("x")))


def softmax_with_maximum(op: Writer, x: int) -> int:
    return naive_softmax(op, op("Sub", x, op("ReduceMax", x, dims=(4, 1), axes=[1], keepdims=1)))


def naive_softmax(op: Writer, x: int) -> int:
    powers = op("Exp", x)
    return op("Div", powers, op("ReduceSum", powers, dims=(4, 1), axes=[1], keepdims=1))


def zero(op: Writer) -> int:
    return op("Sub", op.weight("w"), op.weight("w"))


def times_zero(op: Writer, x: int) -> int:
    return op("Mul", x, zero(op))


def just_zero(op: Writer, x: int) -> int:
    return zero(op)


def square_then_root(op: Writer, x: int) -> int:
    return op("Sqrt", op("Mul", x, x))


def absolute(op: Writer, x: int) -> int:
    return op("Abs", x)


def product_of_three(op: Writer, x: int) -> int:
    left, right = op.weight("a", (6, 5)), op.weight("b", (5, 6))
    return op("MatMul", op("MatMul", x, left, dims=(4, 5)), right)


def product_of_three_regrouped(op: Writer, x: int) -> int:
    left, right = op.weight("a", (6, 5)), op.weight("b", (5, 6))
    return op("MatMul", x, op("MatMul", left, right, dims=(6, 6)))


def cancelling_sum(op: Writer, x: int) -> int:
    return op("Sub", op("Add", x, op.weight("w")), x)


def cancelled_sum(op: Writer, x: int) -> int:
    return op("Add", op("Sub", x, x), op.weight("w"))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (product_of_three, product_of_three_regrouped),
        (product_of_three_regrouped, product_of_three),
        (cancelling_sum, cancelled_sum),
        (naive_softmax, softmax_with_maximum),
    ],
)
def test_rounding_and_widening_are_accepted(source: Body, target: Body) -> None:
    """Regrouped sums differ by rounding or absorption alone; a stable softmax is finite where the naive one is not."""
    assert compare_floats(graph_of(source), graph_of(target)).mismatch is None


@pytest.mark.parametrize(
    ("source", "target", "case"),
    [(softmax_with_maximum, naive_softmax, "offset"), (absolute, square_then_root, "1e30 in 'x'")],
)
def test_a_narrowed_domain_is_rejected(source: Body, target: Body, case: str) -> None:
    mismatch = compare_floats(graph_of(source), graph_of(target)).mismatch
    assert mismatch is not None
    assert mismatch.case == case


def test_a_hidden_infinity_is_rejected_although_the_field_accepts_it() -> None:
    """x·0 → 0 holds in every field; in floating point it would turn ∞·0 = NaN into 0."""
    source, target = graph_of(times_zero), graph_of(just_zero)
    assert find_difference(source, target) is None
    mismatch = compare_floats(source, target).mismatch
    assert mismatch is not None
    assert "infinity" in mismatch.case


def test_zero_padded_kernels_are_reported_to_spread_infinities() -> None:
    def convolution(kernel: int) -> Graph:
        op, pad = Writer(), kernel // 2
        x, weight = op.input("x", (1, 2, 5, 5)), op.weight("w", (3, 2, 1, 1))
        if pad:
            padding = {"pads": [0, 0, pad, pad] * 2, "mode": "constant", "value": 0.0}
            weight = op("Pad", weight, dims=(3, 2, kernel, kernel), **padding)
        window = {"kernel_shape": [kernel] * 2, "strides": [1, 1], "pads": [pad] * 4, "dilations": [1, 1]}
        return op.graph(op("Conv", x, weight, dims=(1, 3, 5, 5), **window, group=1))

    comparison = compare_floats(convolution(1), convolution(3))
    assert comparison.mismatch is None
    assert comparison.spreads_nonfinite
    assert not compare_floats(convolution(3), convolution(3)).spreads_nonfinite


@pytest.mark.parametrize("error", [1e-4, -1e-4])
def test_small_wrong_factors_are_noticed(error: float) -> None:
    """A factor of 1 ± 0.0001 is far beyond rounding, in every element and whatever its size."""

    def scaled(factor: float) -> Graph:
        op = Writer()
        return op.graph(op("Elu", op("Relu", op.input("x")), alpha=1.0) if factor == 1 else leaky(op, factor))

    def leaky(op: Writer, factor: float) -> int:
        x = op("Relu", op.input("x"))
        return op("Neg", op("LeakyRelu", op("Neg", x), alpha=factor))

    assert compare_floats(scaled(1), scaled(1 + error)).mismatch is not None


def through_the_sum(op: Writer, x: int) -> int:
    """Returns (x + s) − s with the sum s of all elements: exact for reals, but small elements take on errors of s."""
    total = op("ReduceSum", x, dims=(1, 1), axes=[0, 1], keepdims=1)
    return op("Sub", op("Add", x, total), total)


def the_same(op: Writer, x: int) -> int:
    return op("Identity", x)


def slightly_more(op: Writer, x: int) -> int:
    return op("Add", x, op("Mul", x, op("Mul", x, x)))


def test_rounding_relative_to_the_largest_result_has_to_be_declared() -> None:
    graphs = graph_of(the_same), graph_of(through_the_sum)
    assert compare_floats(*graphs).mismatch is not None
    assert compare_floats(*graphs, rounding=Rounding.REAL).mismatch is None


@pytest.mark.parametrize(
    ("source", "target"), [(the_same, slightly_more), (square_then_root, through_the_sum), (times_zero, just_zero)]
)
def test_what_may_round_more_is_still_rejected_where_it_is_wrong(source: Body, target: Body) -> None:
    assert compare_floats(graph_of(source), graph_of(target), rounding=Rounding.REAL).mismatch is not None
