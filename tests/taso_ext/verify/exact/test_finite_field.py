"""The finite-field evaluator computes what ONNX Runtime computes, and its random functions have only declared laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from taso_ext._core import Graph, GraphBuilder
from taso_ext.verify.exact.evaluation import draw_leaves, evaluate
from taso_ext.verify.exact.fields import (
    EXPONENT_PRIMES,
    PRIMES,
    SMALL_SQUARES,
    Array,
    NotInvertibleError,
    PrimeField,
)
from taso_ext.verify.exact.finite_field import compare_exactly, find_difference
from taso_ext.verify.exact.functions import extremum
from taso_ext.verify.exact.points import ERROR_BITS
from taso_ext.verify.exact.tensor import Arithmetic, FieldTensor, UnsupportedOperatorError
from taso_ext.verify.numeric.float_session import FloatSession

Dims = Sequence[int]
FIELD = PrimeField(PRIMES[0])


def arithmetic(seed: int = 0) -> Arithmetic:
    """Returns the arithmetic of the first pair of fields, one for values and one for exponents."""
    return Arithmetic.at((PRIMES[0], EXPONENT_PRIMES[0]), seed)


def values_of(graph: Graph, integers: dict[str, Array], seed: int = 0) -> list[Array]:
    """Returns the residues of all outputs at integer inputs."""
    numbers = arithmetic(seed)
    leaves = {name: numbers.integers(value) for name, value in integers.items()}
    return [output.parts[0] for output in evaluate(graph, leaves, numbers)]


def graph_of(op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], outputs: Sequence[Dims]) -> Graph:
    """Returns a graph of one operator on inputs x0, x1, …"""
    builder = GraphBuilder()
    operands = [builder.input(f"x{i}", TensorProto.FLOAT, list(dims)) for i, dims in enumerate(inputs)]
    results = [(f"y{i}", TensorProto.FLOAT, list(dims)) for i, dims in enumerate(outputs)]
    for value in builder.node("", op_type, attributes, operands, results):
        builder.output(value)
    return builder.build()


def conv(kernel: Dims, *, strides: Dims, pads: Dims, dilations: Dims, group: int = 1) -> dict[str, Any]:
    spatial = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    return {name: list(value) for name, value in spatial.items()} | {"group": group}


def pool(kernel: Dims, *, strides: Dims, pads: Dims, ceil_mode: int = 0, **extra: int) -> dict[str, Any]:
    spatial = {"kernel_shape": list(kernel), "strides": list(strides), "pads": list(pads)}
    return spatial | {"dilations": [1] * len(kernel), "ceil_mode": ceil_mode} | extra


def gemm(trans_a: int = 0, trans_b: int = 0, *, alpha: float = 1.0, beta: float = 1.0) -> dict[str, Any]:
    return {"alpha": alpha, "beta": beta, "transA": trans_a, "transB": trans_b}


# Operator, attributes in normal form, input shapes and output shapes of each case. The cases have odd strides, unequal
# pads, dilations, groups, broadcasts and ranks 1 to 5.
EXACT = [
    ("Add", {}, [(2, 3), (3,)], [(2, 3)]),
    ("Sub", {}, [(3, 1), (1, 4)], [(3, 4)]),
    ("Mul", {}, [(2, 1, 3), (4, 1)], [(2, 4, 3)]),
    ("Sum", {}, [(2, 3), (3,), (1, 1)], [(2, 3)]),
    ("Neg", {}, [(5,)], [(5,)]),
    ("MatMul", {}, [(3, 4), (4, 2)], [(3, 2)]),
    ("MatMul", {}, [(2, 1, 3, 4), (5, 4, 2)], [(2, 5, 3, 2)]),
    ("Gemm", gemm(), [(3, 4), (4, 2)], [(3, 2)]),
    ("Gemm", gemm(1, 0, alpha=2.0, beta=-3.0), [(4, 3), (4, 2), (2,)], [(3, 2)]),
    ("Gemm", gemm(0, 1, alpha=0.5, beta=0.25), [(3, 4), (2, 4), (3, 1)], [(3, 2)]),
    ("Conv", conv([3], strides=[2], pads=[1, 0], dilations=[2]), [(2, 3, 9), (4, 3, 3)], [(2, 4, 3)]),
    (
        "Conv",
        conv([3, 2], strides=[1, 3], pads=[0, 2, 1, 1], dilations=[1, 2]),
        [(2, 3, 6, 7), (4, 3, 3, 2), (4,)],
        [(2, 4, 5, 3)],
    ),
    (
        "Conv",
        conv([1, 3], strides=[2, 1], pads=[0, 1, 0, 1], dilations=[1, 1], group=3),
        [(1, 6, 5, 4), (9, 2, 1, 3)],
        [(1, 9, 3, 4)],
    ),
    (
        "Conv",
        conv([2, 1, 2], strides=[1, 1, 2], pads=[1, 0, 0, 0, 0, 1], dilations=[1, 1, 1], group=2),
        [(1, 2, 3, 2, 4), (2, 1, 2, 1, 2), (2,)],
        [(1, 2, 3, 2, 2)],
    ),
    (
        "AveragePool",
        pool([2, 3], strides=[1, 2], pads=[0, 1, 1, 1], count_include_pad=0),
        [(1, 2, 4, 5)],
        [(1, 2, 4, 3)],
    ),
    (
        "AveragePool",
        pool([2, 3], strides=[1, 2], pads=[0, 1, 1, 1], count_include_pad=1),
        [(1, 2, 4, 5)],
        [(1, 2, 4, 3)],
    ),
    (
        "AveragePool",
        pool([2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=1, count_include_pad=0),
        [(1, 2, 5, 3)],
        [(1, 2, 3, 2)],
    ),
    ("GlobalAveragePool", {}, [(2, 3, 4, 3)], [(2, 3, 1, 1)]),
    ("ReduceSum", {"axes": [0, 2], "keepdims": 0}, [(2, 3, 4)], [(3,)]),
    ("ReduceMean", {"axes": [1], "keepdims": 1}, [(2, 3, 4)], [(2, 1, 4)]),
    ("ReduceProd", {"axes": [1, 2], "keepdims": 0}, [(2, 3, 2)], [(2,)]),
    ("Concat", {"axis": 1}, [(2, 3), (2, 1), (2, 4)], [(2, 8)]),
    ("Split", {"axis": 1, "split": [1, 4, 2]}, [(2, 7)], [(2, 1), (2, 4), (2, 2)]),
    ("Slice", {"starts": [1, 0], "ends": [6, 3], "axes": [2, 0], "steps": [2, 1]}, [(3, 2, 7)], [(3, 2, 3)]),
    ("Transpose", {"perm": [2, 0, 1]}, [(2, 3, 4)], [(4, 2, 3)]),
    ("Reshape", {"shape": [4, 1, 6]}, [(2, 3, 4)], [(4, 1, 6)]),
    ("Pad", {"pads": [0, 1, 2, 0], "mode": "constant", "value": 0.0}, [(2, 3)], [(4, 4)]),
    ("Pad", {"pads": [1, 0], "mode": "constant", "value": -3.0}, [(4,)], [(5,)]),
]


def case_name(case: object) -> str:
    return case if isinstance(case, str) else ""


@pytest.mark.parametrize(("op_type", "attributes", "inputs", "outputs"), EXACT, ids=case_name)
def test_exact_operators_agree_with_onnx_runtime_on_integers(
    op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], outputs: Sequence[Dims]
) -> None:
    """Small integers are exact in float32; averages become integers after multiplying by all possible divisors."""
    graph = graph_of(op_type, attributes, inputs, outputs)
    generator = np.random.default_rng(len(op_type))
    integers = {f"x{i}": generator.integers(-4, 5, dims) for i, dims in enumerate(inputs)}
    session = FloatSession(graph)
    floats = session.run({name: value.astype(np.float32) for name, value in integers.items()})
    residues = values_of(graph, integers)
    common = math.lcm(*range(1, 13))
    for expected, got in zip(floats, residues, strict=True):
        assert expected.shape == got.shape
        scaled = np.rint(expected.astype(np.float64) * common).astype(np.int64)
        np.testing.assert_array_equal(FIELD.mul(got, common), FIELD.reduce(scaled))


RANDOM_FUNCTIONS = [
    ("Tanh", {}, [(7,)], [(7,)]),
    ("Gelu", {"approximate": "none"}, [(2, 3)], [(2, 3)]),
    ("Pow", {}, [(2, 3), (3,)], [(2, 3)]),
    ("Softmax", {"axis": 1}, [(2, 5, 3)], [(2, 5, 3)]),
]


@pytest.mark.parametrize(("op_type", "attributes", "inputs", "outputs"), RANDOM_FUNCTIONS, ids=case_name)
def test_random_functions_are_functions(
    op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], outputs: Sequence[Dims]
) -> None:
    """Equal inputs give equal outputs of the inferred shape; another seed gives another function."""
    graph = graph_of(op_type, attributes, inputs, outputs)
    leaves = {name: leaf.parts[0] for name, leaf in draw_leaves([graph], arithmetic(), seed=1).items()}
    first, again, other = (values_of(graph, leaves, seed)[0] for seed in (0, 0, 1))
    assert first.shape == tuple(outputs[0])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_is_greatest_is_decided_by_the_real_numbers() -> None:
    """The real parts decide which element is the maximum or minimum, and its residues are the result."""
    numbers = arithmetic()
    x = FieldTensor(numbers, (np.array([5, 9, 7]), np.array([5, 9, 7]), np.array([0.5, -2.0, 0.25])))
    rows, present = x.reshape((1, 3)), np.ones((1, 3), np.bool_)
    assert extremum("max", rows, present).parts[0] == 5
    assert extremum("min", rows, present).parts[0] == 9
    present[0, 0] = False
    assert extremum("max", rows, present).parts[0] == 7
    assert list(x.sign()) == [1, -1, 1]
    assert list(x.absolute().parts[0]) == [5, PRIMES[0] - 9, 7]


@pytest.mark.parametrize("op_type", ["Relu", "Tanh", "Erf", "Gelu", "Sqrt"])
def test_declared_functions_fix_zero(op_type: str) -> None:
    attributes = {"approximate": "none"} if op_type == "Gelu" else {}
    graph = graph_of(op_type, attributes, [(2,)], [(2,)])
    (image,) = values_of(graph, {"x0": np.array([0, 5])})
    assert image[0] == 0
    assert image[1] != 0


@pytest.mark.parametrize("op_type", ["Sigmoid", "Exp", "Cos", "Softplus"])
def test_other_functions_do_not_fix_zero(op_type: str) -> None:
    (image,) = values_of(graph_of(op_type, {}, [(1,)], [(1,)]), {"x0": np.array([0])})
    assert image[0] != 0


elements = st.integers(0, PRIMES[1] - 1)
matrices = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4)).flatmap(
    lambda dims: st.tuples(
        hnp.arrays(np.int64, dims[:2], elements=elements), hnp.arrays(np.int64, dims[1:], elements=elements)
    )
)


@given(matrices)
@settings(max_examples=50, deadline=None)
def test_products_do_not_overflow(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Products of matrices with elements up to p − 1 are compared with Python's integers."""
    a, b = pair
    exact = [
        [sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % PRIMES[1] for column in b.T] for row in a
    ]
    np.testing.assert_array_equal(PrimeField(PRIMES[1]).matmul(a, b), exact)


@pytest.mark.parametrize("prime", PRIMES)
def test_field_division_inverts_multiplication(prime: int) -> None:
    field = PrimeField(prime)
    a, b = np.random.default_rng(0).integers(1, prime, (2, 100))
    np.testing.assert_array_equal(field.mul(field.div(a, b), b), a)
    assert field.constant(-0.375) * 8 % prime == prime - 3


def is_prime(number: int) -> bool:
    """Returns whether a number below 2⁶⁴ is prime: Miller and Rabin's test (bases of Sorenson & Webster 2015)."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, odd << i, number) for i in range(twos)]
        if powers[0] != 1 and number - 1 not in powers:
            return False
    return True


def test_fields_are_as_said() -> None:
    """p has 61 bits, p and q = (p − 1) / 2 are prime, −1 is no square modulo either, and small primes are squares."""
    for prime, exponent_prime in zip(PRIMES, EXPONENT_PRIMES, strict=True):
        assert 2**60 < prime < 2**61
        assert prime == 2 * exponent_prime + 1
        for order in (prime, exponent_prime):
            assert is_prime(order)
            field = PrimeField(order)
            assert field.sign(np.array(order - 1)) == -1
            assert all(field.sign(np.array(small)) == 1 for small in SMALL_SQUARES)
    assert not is_prime(PRIMES[0] * PRIMES[1])


@pytest.mark.parametrize("prime", [*PRIMES, *EXPONENT_PRIMES])
def test_signs_and_roots_follow_the_laws_of_real_numbers(prime: int) -> None:
    field = PrimeField(prime)
    a, b = np.random.default_rng(0).integers(1, prime, (2, 100))
    np.testing.assert_array_equal(field.sign(field.mul(a, b)), field.sign(a) * field.sign(b))
    np.testing.assert_array_equal(field.sign(field.reduce(-a)), -field.sign(a))
    np.testing.assert_array_equal(field.sqrt(field.mul(a, a)), field.reduce(a * field.sign(a)))
    np.testing.assert_array_equal(field.sqrt(field.mul(a, b)), field.mul(field.sqrt(a), field.sqrt(b)))
    assert (field.sqrt(field.add(a, b)) != field.add(field.sqrt(a), field.sqrt(b))).any()


def test_exponentials_turn_sums_into_products() -> None:
    numbers = arithmetic()
    x, y = numbers.integers(np.arange(5)), numbers.integers(np.arange(7, 12))
    both, product = (x + y).exp(), x.exp() * y.exp()
    np.testing.assert_array_equal(both.parts[0], product.parts[0])
    assert (FIELD.sign(both.parts[0]) == 1).all()
    assert ((x * y).exp().parts[0] != product.parts[0]).all()


def test_an_opaque_operator_has_no_laws() -> None:
    """The same operator with another attribute is another function."""
    plain = graph_of("LRN", {"size": 3}, [(2, 3)], [(2, 3)])
    assert find_difference(plain, plain) is None
    assert find_difference(plain, graph_of("LRN", {"size": 5}, [(2, 3)], [(2, 3)])) is not None


def test_the_bound_is_that_of_the_degree() -> None:
    """x·a·b has degree 3 on both sides, so the bound is (6 / 2⁶¹)², to less than half a bit."""
    graph = chain(("a", (4, 4)), ("b", (4, 4)), last="Neg")
    agreement = compare_exactly(graph, graph)
    assert agreement.mismatch is None
    assert agreement.points == 1
    assert ERROR_BITS < agreement.error_bits <= 2 * (61 - math.log2(6))


def test_more_points_are_taken_where_signs_decide() -> None:
    """Each point shows only one side of a ReLU, so graphs with a ReLU are compared at several points."""
    graph = chain(("a", (4, 4)), ("b", (4, 4)), last="Relu")
    agreement = compare_exactly(graph, graph)
    assert agreement.points > 1
    assert agreement.error_bits >= ERROR_BITS


def test_division_by_zero_is_reported() -> None:
    graph = graph_of("Reciprocal", {}, [(3,)], [(3,)])
    with pytest.raises(NotInvertibleError, match="division by zero"):
        values_of(graph, {"x0": np.array([4, 0, 2])})


def test_random_operators_are_refused() -> None:
    graph = graph_of("RandomNormalLike", {}, [(3,)], [(3,)])
    with pytest.raises(UnsupportedOperatorError, match="RandomNormalLike is random"):
        find_difference(graph, graph)


def chain(*matrices: tuple[str, Dims], last: str) -> Graph:
    """Returns a graph that multiplies x [2, 4] by the weights in turn and applies the pointwise operator `last`."""
    builder = GraphBuilder()
    value, rows = builder.input("x", TensorProto.FLOAT, [2, 4]), 2
    for handle, dims in matrices:
        weight = builder.weight(handle, handle, TensorProto.FLOAT, list(dims))
        (value,) = builder.node("", "MatMul", {}, [value, weight], [("", TensorProto.FLOAT, [rows, dims[1]])])
    (value,) = builder.node("", last, {}, [value], [("y", TensorProto.FLOAT, [rows, matrices[-1][1][1]])])
    builder.output(value)
    return builder.build()


def test_weights_are_equal_exactly_if_their_handles_are() -> None:
    first, second = ("a1", (4, 4)), ("b2", (4, 4))
    assert find_difference(chain(first, second, last="Relu"), chain(first, second, last="Relu")) is None
    assert find_difference(chain(first, second, last="Relu"), chain(second, first, last="Relu")) is not None
    assert find_difference(chain(first, second, last="Relu"), chain(first, second, last="Tanh")) is not None


def test_scalars_are_compared_too() -> None:
    def graph_of(op_type: str) -> Graph:
        builder = GraphBuilder()
        x = builder.input("x", TensorProto.FLOAT, [])
        builder.output(builder.node("", op_type, {}, [x], [("y", TensorProto.FLOAT, [])])[0])
        return builder.build()

    assert find_difference(graph_of("Neg"), graph_of("Neg")) is None
    assert find_difference(graph_of("Neg"), graph_of("Abs")) is not None


def test_a_target_that_divides_by_zero_differs_and_a_source_that_does_says_nothing() -> None:
    def graph_of(op_type: str) -> Graph:
        builder = GraphBuilder()
        x = builder.input("x", TensorProto.FLOAT, [2])
        (zero,) = builder.node("", "Sub", {}, [x, x], [("z", TensorProto.FLOAT, [2])])
        builder.output(builder.node("", op_type, {}, [x, zero], [("y", TensorProto.FLOAT, [2])])[0])
        return builder.build()

    mismatch = find_difference(graph_of("Add"), graph_of("Div"))
    assert mismatch is not None
    assert "divides by zero" in str(mismatch)
    with pytest.raises(NotInvertibleError):
        find_difference(graph_of("Div"), graph_of("Add"))
