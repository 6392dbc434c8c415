"""Models of absurd sizes are handled in linear time, or refused with the limit named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.cleanup.passes import LEVELS
from taso_ext.onnx_io.model_file import length_delimited
from taso_ext.onnx_io.weights.handles import LARGEST_DENSE
from tests.taso_ext.samples.onnx_cases import node, operators, value

BIG = 2**30


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """Returns a model without checking it, because a second check would take most of the time of these tests."""
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SCALED = [node("ReduceSum", ["t"], ["r"], keepdims=0), node("Add", ["x", "r"], ["y"])]
"""Nodes that make a weight-only value t part of the output."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dims", [[BIG, BIG], [2**40, 2**40], [2**62]])
def test_tensors_above_the_engines_limit_are_refused(dims: list[int], level: str) -> None:
    given = model([node("Relu", ["x"], ["t"]), node("Slice", ["t", "a", "b"], ["y"])], [value("x", dims)],
                  [value("y", [None] * len(dims))], {"a": np.array([1]), "b": np.array([2**62])})  # fmt: skip
    with pytest.raises(ModelError, match=r"more than 10\^15 elements, the engine's limit"):
        OnnxModel.load(given, clean=level)


@pytest.mark.parametrize("level", LEVELS)
def test_weights_that_claim_to_be_large_are_refused(level: str) -> None:
    given = model([node("Add", ["x", "w"], ["y"])], [value("x", [1])], [value("y", [None] * 2)], {"w": np.ones(4)})
    given.graph.initializer[0].dims[:] = [BIG, BIG]
    with pytest.raises(ModelError):
        OnnxModel.load(given, clean=level)


def test_sparse_tensors_that_would_be_large_are_refused() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "t")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    given = model(SCALED, [value("x", [1])], [value("y", [1])])
    given.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [BIG]))
    with pytest.raises(ModelError, match=f"at most {LARGEST_DENSE:,} are allowed"):
        OnnxModel.load(given)


GROWING: dict[str, tuple[NodeProto, dict[str, np.ndarray]]] = {
    "ConstantOfShape": (node("ConstantOfShape", ["s"], ["t"]), {"s": np.array([2**18, 2**18])}),
    "Expand": (node("Expand", ["w", "s"], ["t"]), {"w": np.float32(1), "s": np.array([2**18, 2**18])}),
    "Tile": (node("Tile", ["w", "s"], ["t"]), {"w": np.ones(3, np.float32), "s": np.array([2**33])}),
    "Pad": (node("Pad", ["w", "s"], ["t"]), {"w": np.ones(3, np.float32), "s": np.array([2**33, 2**33])}),
    "MatMul": (node("MatMul", ["w", "v"], ["t"]), {"w": np.ones((2**13, 1)), "v": np.ones((1, 2**13))}),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GROWING)
def test_few_numbers_are_not_turned_into_gigabytes(name: str, level: str) -> None:
    """Such a constant is left to the runtime, because it costs less to compute than to store."""
    growing, weights = GROWING[name]
    dtype = TensorProto.DOUBLE if name == "MatMul" else TensorProto.FLOAT
    given = model([growing, *SCALED], [value("x", [1], dtype)], [value("y", [1], dtype)], weights)
    loaded = OnnxModel.load(given, clean=level)
    exported = loaded.export_checked(loaded.graph)
    assert name in operators(exported.skeleton)
    assert exported.nbytes < 1 << 20


def chain(length: int) -> onnx.ModelProto:
    kinds = ["Tanh", "Sigmoid", "Neg", "Exp"]
    nodes = [node(kinds[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    return model(nodes, [value("v0", [2, 3])], [value(f"v{length}", [2, 3])])


@pytest.mark.parametrize("length", [10_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_long_chains_load_and_export(length: int) -> None:
    loaded = OnnxModel.load(chain(length))
    exported = loaded.export_checked(loaded.graph)
    assert len(exported.skeleton.graph.node) == length


def wide_concat(width: int) -> onnx.ModelProto:
    """Returns a Concat of tensors that all compute the same, which a clean-up may merge."""
    nodes = [node("Relu", ["x"], [f"r{i}"]) for i in range(width)]
    joined = node("Concat", [f"r{i}" for i in range(width)], ["y"], axis=0)
    return model([*nodes, joined], [value("x", [2, 3])], [value("y", [2 * width, 3])])


def wide_split(width: int) -> onnx.ModelProto:
    parts = [f"y{i}" for i in range(width)]
    sizes = {"sizes": np.ones(width, np.int64)}
    return model(
        [node("Split", ["x", "sizes"], parts, axis=0)],
        [value("x", [width, 3])],
        [value(n, [1, 3]) for n in parts],
        sizes,
    )


@pytest.mark.parametrize("build", [wide_concat, wide_split])
@pytest.mark.parametrize("width", [10_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_wide_operators_load_and_export(build: Callable[[int], onnx.ModelProto], width: int) -> None:
    loaded = OnnxModel.load(build(width), clean="full")
    exported = loaded.export_checked(loaded.graph)
    (widest,) = (each for each in exported.skeleton.graph.node if each.op_type in ("Concat", "Split"))
    assert max(len(widest.input), len(widest.output)) == width


def nested(depth: int) -> onnx.ModelProto:
    graph = helper.make_graph([node("Neg", ["x"], ["y0"])], "body", [], [value("y0", [2])])
    for level in range(1, depth):
        other = helper.make_graph([node("Relu", ["x"], [f"z{level}"])], "other", [], [value(f"z{level}", [2])])
        chosen = node("If", ["flag"], [f"y{level}"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([chosen], "body", [], [value(f"y{level}", [2])])
    inputs = [value("x", [2]), value("flag", [], TensorProto.BOOL)]
    return model(list(graph.node), inputs, [value(f"y{depth - 1}", [2])])


@pytest.mark.parametrize("level", LEVELS)
def test_graphs_inside_graphs_load_as_deep_as_protobuf_goes(level: str) -> None:
    loaded = OnnxModel.load(nested(30), clean=level)
    assert operators(loaded.export(loaded.graph)) == ["If"]
    with pytest.raises(ModelError):
        OnnxModel.load(nested(33), clean=level)


def test_deeper_files_name_the_limit(tmp_path: Path) -> None:
    graph = field(1, field(4, b"Relu"))
    for _ in range(50):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    path = tmp_path / "m.onnx"
    path.write_bytes(field(7, graph))
    with pytest.raises(ModelError, match="deeper than protobuf reads: 100 messages"):
        OnnxModel.load(path)


def field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited field as protobuf writes it."""
    return length_delimited(number, len(payload)) + payload
