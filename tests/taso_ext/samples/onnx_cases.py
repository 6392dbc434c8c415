"""Small ONNX models for the tests of `onnx_io`, and functions that run and compare them."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State

node = helper.make_node


def value(name: str, dims: Sequence[int | str | None], dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    **extra: object,
) -> onnx.ModelProto:
    """Returns a checked model; `extra` goes to make_model, except further `domains` as {name: version}."""
    domains: dict[str, int] = extra.pop("domains", {})  # type: ignore[assignment]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), initializers)
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **domains}.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version, **extra)
    onnx.checker.check_model(model)
    return model


def model_with(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Returns a model that adds weights of one shape to its input."""
    names = ["x", *(f"s{i}" for i in range(len(weights)))]
    adds = [node("Add", [names[i], name], [names[i + 1]]) for i, name in enumerate(weights)]
    dims = next(iter(weights.values())).shape
    return make_model(adds, [value("x", dims)], [value(names[-1], dims)], weights)


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def is_mapped(tensor: ir.TensorProtocol) -> bool:
    """Returns whether a tensor's values are a view of a mapped file."""
    array = getattr(tensor, "raw", None)
    while isinstance(array, np.ndarray):
        array = array.base
    return (isinstance(array, memoryview) and isinstance(array.obj, mmap.mmap)) or isinstance(array, mmap.mmap)


def run(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[object]:
    """Returns the outputs of ONNX Runtime without any optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def random_feeds(model: onnx.ModelProto, seed: int = 0, scale: float = 3.0) -> dict[str, np.ndarray]:
    """Returns normal floats and small integers for all inputs without a default, which must be tensors."""
    rng = np.random.default_rng(seed)
    known = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for each in model.graph.input:
        kind = each.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if each.name not in known:
            numbers = scale * rng.standard_normal(dims) if dtype.kind == "f" else rng.integers(0, 2, dims)
            feeds[each.name] = np.asarray(numbers, dtype)
    return feeds


def assert_same(expected: object, found: object, tolerance: float = 1e-4) -> None:
    """Asserts that types, shapes and values are equal; sequences are compared element by element."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(found, (list, tuple))
        assert len(expected) == len(found)
        for first, second in zip(expected, found, strict=True):
            assert_same(first, second, tolerance)
        return
    if isinstance(expected, dict) or expected is None:
        assert expected == found
        return
    first, second = np.asarray(expected), np.asarray(found)
    assert (first.shape, first.dtype) == (second.shape, second.dtype)
    if first.dtype.kind in "fc":
        np.testing.assert_allclose(second, first, rtol=tolerance, atol=tolerance / 10)
    else:
        np.testing.assert_array_equal(second, first)


def assert_round_trip(
    model: onnx.ModelProto,
    feeds: Mapping[str, object] | None = None,
    clean: str = "full",
    *,
    tolerance: float = 1e-4,
) -> onnx.ModelProto:
    """Loads and exports a model; asserts that the result is valid and computes the same outputs, and returns it."""
    loaded = OnnxModel.load(model, clean=clean)
    exported = loaded.export(loaded.graph)
    onnx.checker.check_model(loaded.cleaned.to_proto())
    onnx.checker.check_model(exported)
    assert [each.name for each in exported.graph.output] == [each.name for each in model.graph.output]
    feeds = random_feeds(model) if feeds is None else feeds
    assert_same(run(model, feeds), run(exported, feeds), tolerance)
    return exported


def random_walk(graph: Graph, rng: np.random.Generator, steps: int) -> list[Graph]:
    """Returns the graph, and the graph after each random rewrite: a random rule that applies, at a random place."""
    state = State(graph, RuleSet.default(), CostModel.roofline("rtx2070"))
    graphs = [state.graph]
    for _ in range(steps):
        legal = state.legal_actions()
        if not len(legal):
            break
        rule = rng.choice(np.unique(legal[:, 0]))
        state.step(*map(int, rng.choice(legal[legal[:, 0] == rule])))
        graphs.append(state.graph)
    return graphs


def operators(model: onnx.ModelProto) -> list[str]:
    return [each.op_type for each in model.graph.node]
