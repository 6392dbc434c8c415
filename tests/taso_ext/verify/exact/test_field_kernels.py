"""Every exact kernel is the formula of its operator: its real part is what ONNX Runtime computes.

Residues and real numbers share the code of the formulas, so this tests the exact ones, too. test_function_laws.py tests
the declared properties of the functions that are random among residues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from taso_ext._core import Graph, GraphBuilder
from taso_ext.verify.exact import functions
from taso_ext.verify.exact.evaluation import KERNELS, evaluate
from taso_ext.verify.exact.fields import EXPONENT_PRIMES, PRIMES
from taso_ext.verify.exact.tensor import Arithmetic, FieldTensor
from taso_ext.verify.numeric.float_session import FloatSession

Dims = Sequence[int]
POINTS = 3

PLAIN = (
    *("Relu", "Abs", "Neg", "Exp", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "HardSwish", "Sin", "Cos"),
    *("Tan", "Sinh", "Cosh", "Atan", "Asinh", "Reciprocal", "Sign", "Floor", "Ceil", "Round", "Identity"),
)
UNARY: dict[str, dict[str, Any]] = {
    "LeakyRelu": {"alpha": 0.1},
    "Elu": {"alpha": 1.5},
    "Selu": {"alpha": 1.5, "gamma": 1.25},
    "Celu": {"alpha": 0.5},
    "ThresholdedRelu": {"alpha": 0.5},
    "Shrink": {"lambd": 0.5, "bias": 0.25},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.4},
    "Swish": {"alpha": 1.5},
    "Softmax": {"axis": 1},
    "LogSoftmax": {"axis": 2},
    "LpNormalization": {"axis": 1, "p": 2},
    "MeanVarianceNormalization": {"axes": [0, 2]},
}
POSITIVE = ("Sqrt", "Log")
ROW = [(2, 3, 4)]
Case = tuple[str, dict[str, Any], Sequence[Dims], Dims]


def window(**changed: Any) -> dict[str, Any]:
    plain = {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "dilations": [1], "ceil_mode": 0}
    return plain | changed


CASES: list[Case] = [
    *((name, attributes, ROW, ROW[0]) for name, attributes in UNARY.items()),
    *((name, {}, ROW, ROW[0]) for name in (*PLAIN, *POSITIVE)),
    *(("Gelu", {"approximate": each}, ROW, ROW[0]) for each in ("none", "tanh")),
    *((name, {}, [(2, 3), (2, 3)], (2, 3)) for name in ("Max", "Min", "Mean", "PRelu")),
    ("Max", {}, [(2, 3), (3,), (2, 1)], (2, 3)),
    *((f"Reduce{n}", {"axes": [1], "keepdims": 1}, ROW, (2, 1, 4)) for n in ("Max", "Min", "L1", "L2", "LogSumExp")),
    ("ReduceSumSquare", {"axes": [0, 2], "keepdims": 0}, ROW, (3,)),
    ("MaxPool", window(), [(1, 2, 7)], (1, 2, 4)),
    ("MaxPool", window(ceil_mode=1, pads=[0, 0]), [(1, 2, 6)], (1, 2, 3)),
    ("GlobalMaxPool", {}, ROW, (2, 3, 1)),
    ("LayerNormalization", {"axis": 1, "epsilon": 0.01}, [(2, 3, 4), (3, 4), (3, 4)], (2, 3, 4)),
    ("RMSNormalization", {"axis": 2, "epsilon": 0.01}, [(2, 3, 4), (4,)], (2, 3, 4)),
    ("GroupNormalization", {"num_groups": 2, "epsilon": 0.01}, [(2, 4, 3), (4,), (4,)], (2, 4, 3)),
    ("InstanceNormalization", {"epsilon": 0.01}, [(2, 3, 4), (3,), (3,)], (2, 3, 4)),
    ("Attention", {"is_causal": 1}, [(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 6)], (2, 3, 4, 6)),
    ("Attention", {"q_num_heads": 4, "kv_num_heads": 2}, [(2, 3, 12), (2, 5, 6), (2, 5, 8)], (2, 3, 16)),
    ("RotaryEmbedding", {"interleaved": 1}, [(2, 3, 4, 6), (2, 4, 3), (2, 4, 3)], (2, 3, 4, 6)),
    ("RotaryEmbedding", {"num_heads": 2}, [(2, 4, 12), (2, 4, 3), (2, 4, 3)], (2, 4, 12)),
    ("DepthToSpace", {"blocksize": 2, "mode": "DCR"}, [(2, 8, 3, 2)], (2, 2, 6, 4)),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [(2, 8, 3, 2)], (2, 2, 6, 4)),
    ("LRN", {"size": 3, "alpha": 0.5, "beta": 0.7, "bias": 2.0}, [(2, 4, 3, 2)], (2, 4, 3, 2)),
    ("LRN", {"size": 5, "alpha": 0.5, "beta": 0.5}, [(2, 3, 3, 2)], (2, 3, 3, 2)),
    ("SpaceToDepth", {"blocksize": 2}, [(2, 3, 4, 6)], (2, 12, 2, 3)),
    ("Einsum", {"equation": "bij,bkj->bik"}, [(2, 3, 4), (2, 5, 4)], (2, 3, 5)),
    ("Einsum", {"equation": "ij,kj"}, [(2, 3), (4, 3)], (2, 4)),
    ("com.microsoft::Gelu", {}, ROW, ROW[0]),
    ("com.microsoft::BiasGelu", {}, [(2, 3, 4), (4,)], ROW[0]),
    ("com.microsoft::FastGelu", {}, [(2, 3, 4), (4,)], ROW[0]),
    ("com.microsoft::FastGelu", {}, ROW, ROW[0]),
    ("com.microsoft::QuickGelu", {"alpha": 1.5}, ROW, ROW[0]),
    ("com.microsoft::FusedMatMul", {"transA": 1, "alpha": 0.5}, [(2, 4, 3), (2, 4, 5)], (2, 3, 5)),
    ("com.microsoft::FusedMatMul", {"transB": 1}, [(2, 3, 4), (5, 4)], (2, 3, 5)),
    ("com.microsoft::SkipLayerNormalization", {"epsilon": 0.01}, [*2 * ROW, (4,), (4,), (4,)], ROW[0]),
    ("com.microsoft::MultiHeadAttention", {"num_heads": 2, "scale": 0.3}, [(2, 3, 8), (2, 5, 8), (2, 5, 8)], (2, 3, 8)),
    (
        "ConvTranspose",
        {"strides": [2], "pads": [1, 0], "dilations": [1], "kernel_shape": [3], "group": 1},
        [(2, 3, 4), (3, 2, 3)],
        (2, 2, 8),
    ),
    (
        "ConvTranspose",
        {"strides": [1, 2], "pads": [0, 1, 1, 0], "dilations": [2, 1], "kernel_shape": [2, 2], "group": 2},
        [(1, 4, 3, 3), (4, 3, 2, 2), (6,)],
        (1, 6, 4, 5),
    ),
]


def graph_of(op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], output: Dims) -> Graph:
    builder = GraphBuilder()
    operands = [builder.input(f"x{i}", TensorProto.FLOAT, list(dims)) for i, dims in enumerate(inputs)]
    domain, name = op_type.split("::") if "::" in op_type else ("", op_type)
    builder.output(builder.node(domain, name, attributes, operands, [("y", TensorProto.FLOAT, list(output))])[0])
    return builder.build()


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "output"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_real_part_is_what_onnx_runtime_computes(
    op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], output: Dims
) -> None:
    graph = graph_of(op_type, attributes, inputs, output)
    session = FloatSession(graph)
    for point in range(POINTS):
        arithmetic = Arithmetic.at((PRIMES[0], EXPONENT_PRIMES[0]), point)
        generator = np.random.default_rng(point)
        reals = {f"x{i}": generator.uniform(-3, 3, tuple(dims)) for i, dims in enumerate(inputs)}
        if op_type in POSITIVE:
            reals = {name: np.abs(value) for name, value in reals.items()}
        leaves = {name: with_residues(arithmetic, real, generator) for name, real in reals.items()}
        (expected,) = session.run({name: value.astype(np.float32) for name, value in reals.items()})
        (got,) = evaluate(graph, leaves, arithmetic)
        np.testing.assert_allclose(got.real, expected, rtol=2e-4, atol=2e-5)
        assert got.parts[0].shape == expected.shape


def with_residues(arithmetic: Arithmetic, real: np.ndarray, generator: np.random.Generator) -> FieldTensor:
    residues = [generator.integers(0, 2**60, real.shape) for _ in arithmetic.functions]
    return FieldTensor(arithmetic, (*residues, real))


def test_all_kernels_of_functions_are_tested() -> None:
    tested = {case[0] for case in CASES}
    elsewhere = {
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Not", "And", "Or", "Xor", "Where"),  # choose
        *("ArgMax", "ArgMin"),  # give integers: test_places_of_extrema
        *("IsNaN", "IsInf", "Cast", "CastLike"),  # no functions of real numbers
        *("Pow", "Clip", "Acos", "Acosh", "Asin", "Atanh", "Mod", "BitShift"),  # tested by laws, or opaque
    }
    assert set(functions.FUNCTION_KERNELS) - tested <= elsewhere
    assert {name for name in KERNELS if "::" in name} <= tested
    assert tested <= set(KERNELS)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("last", "expected"), [(0, {"ArgMax": [1, 0], "ArgMin": [0, 0]}), (1, {"ArgMax": [2, 2], "ArgMin": [3, 2]})]
)
def test_places_of_extrema(op_type: str, last: int, expected: dict[str, list[int]]) -> None:
    attributes = {"axis": 1, "keepdims": 0, "select_last_index": last}
    builder = GraphBuilder()
    x = builder.input("x0", TensorProto.FLOAT, [2, 4])
    builder.output(builder.node("", op_type, attributes, [x], [("y", TensorProto.INT64, [2])])[0])
    arithmetic = Arithmetic.at((PRIMES[0],), 1)
    leaves = {"x0": arithmetic.integers([[0, 5, 5, 0], [2, 2, 2, 7 if op_type == "ArgMin" else 1]])}
    (places,) = evaluate(builder.build(), leaves, arithmetic)
    np.testing.assert_array_equal(places.real, expected[op_type])


def test_masks_of_attention_are_not_broadcast_along_the_keys() -> None:
    """ONNX pads a mask with too few keys with −infinity instead, so that one key is left here."""
    shapes = [(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 6), (4, 1)]
    graph = graph_of("Attention", {}, shapes, (2, 3, 4, 6))
    arithmetic, generator = Arithmetic.at((PRIMES[0], EXPONENT_PRIMES[0]), 0), np.random.default_rng(0)
    leaves = {
        f"x{i}": with_residues(arithmetic, generator.uniform(-3, 3, dims), generator) for i, dims in enumerate(shapes)
    }
    (got,) = evaluate(graph, leaves, arithmetic)
    first = leaves["x2"].parts[0][:, :, :1] % PRIMES[0]
    assert np.array_equal(got.parts[0], np.broadcast_to(first, got.dims))


@pytest.mark.parametrize(("cap", "same"), [(2.0, True), (3.0, False)])
def test_scores_of_attention_are_capped_by_tanh(cap: float, same: bool) -> None:
    """One query, two keys of one feature and a scale of 1: the cap moves the result as the formula says."""
    shapes = [(1, 1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1)]
    graph = graph_of("Attention", {"scale": 1.0, "softcap": 2.0}, shapes, (1, 1, 1, 1))
    arithmetic, generator = Arithmetic.at((PRIMES[0], EXPONENT_PRIMES[0]), 0), np.random.default_rng(0)
    query, key, value = (generator.uniform(-3, 3, dims) for dims in shapes)
    leaves = {f"x{i}": with_residues(arithmetic, each, generator) for i, each in enumerate((query, key, value))}
    (got,) = evaluate(graph, leaves, arithmetic)
    scores = np.exp(cap * np.tanh(query.item() * key.ravel() / cap))
    assert np.isclose(got.real.item(), scores @ value.ravel() / scores.sum()) == same
