"""Exported awkward models keep their function, names and metadata, whatever is rewritten inside."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from environment import zoo
from environment.verification import verify
from taso_ext import OnnxModel
from taso_ext.onnx_io.cleanup.passes import LEVELS
from tests.taso_ext.samples.awkward_models import (
    AWKWARD,
    custom_domain,
    if_with_captures,
    quantised,
    shared_weights,
    weight_arithmetic,
)
from tests.taso_ext.samples.onnx_cases import (
    assert_round_trip,
    assert_same,
    make_model,
    node,
    normal,
    operators,
    random_feeds,
    random_walk,
    run,
    value,
)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_models_survive_the_round_trip(name: str, level: str) -> None:
    model = AWKWARD[name]()
    feeds = [random_feeds(model, seed) for seed in range(2)]
    if name == "strings":
        feeds = [{"x": np.array(["a", "b"], object)}]
    for flag in (True, False) if "flag" in feeds[0] else (None,):
        for each in feeds:
            given = each if flag is None else each | {"flag": np.array(flag)}
            assert_round_trip(model, given, level, tolerance=1e-2 if name == "half_precision" else 1e-4)


def test_captured_values_are_found_under_new_names() -> None:
    """The engine may rename a value that a branch captures; here the copy that a branch reads is gone altogether."""
    exported = assert_round_trip(if_with_captures(), {"x": normal(2, 3), "flag": np.array(False)}, "none")
    assert operators(exported) == ["Relu", "If"]


def test_weight_only_values_are_folded() -> None:
    exported = assert_round_trip(weight_arithmetic(), clean="none")
    assert operators(exported) == ["MatMul", "MatMul", "Add"]
    assert sorted(tuple(tensor.dims) for tensor in exported.graph.initializer) == [(200, 150), (200, 150)]


def test_weights_of_half_precision_are_folded_in_float32_and_rounded_once() -> None:
    """In float16 the square of 1000 is infinite, and the one of 1e-4 is zero."""
    weights = {"w": np.array([1000, 1e-4, -3], np.float16), "s": np.array([1e-3, 1e3, 1.0], np.float16)}
    nodes = [node("Mul", ["w", "w"], ["q"]), node("Mul", ["q", "s"], ["v"]), node("Add", ["x", "v"], ["y"])]
    inputs, outputs = [value("x", [3], TensorProto.FLOAT16)], [value("y", [3], TensorProto.FLOAT16)]
    loaded = OnnxModel.load(make_model(nodes, inputs, outputs, weights), clean="none")
    (folded,) = loaded.export(loaded.graph).graph.initializer
    wide = {name: array.astype(np.float32) for name, array in weights.items()}
    np.testing.assert_array_equal(numpy_helper.to_array(folded), (wide["w"] ** 2 * wide["s"]).astype(np.float16))


def test_what_onnx_runtime_cannot_fold_stays() -> None:
    model = make_model(
        [
            node("Mul", ["a", "a"], ["s"], domain="nowhere"),
            node("Identity", ["w"], ["v"]),
            node("Add", ["x", "s"], ["y"]),
        ],
        [value("x", [3])],
        [value("y", [3]), value("v", [3])],
        {"a": normal(3), "w": normal(3)},
        domains={"nowhere": 1},
    )
    loaded = OnnxModel.load(model)
    assert "Mul" in operators(loaded.export(loaded.graph))


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_models_can_be_verified(name: str) -> None:
    """Verification finds inputs for them by itself or says why not, and never finds a model different from itself."""
    model = OnnxModel.load(AWKWARD[name]())
    found = verify(model.source, model.export_checked(model.graph), num_inputs=6)
    assert found.equal or "give real ones" in found.reason, found.reason
    assert found.reacts == (not found.reason)


def test_quantised_weights_stay_quantised() -> None:
    exported = assert_round_trip(quantised())
    assert operators(exported).count("DequantizeLinear") == 2
    assert {tensor.data_type for tensor in exported.graph.initializer if len(tensor.dims) == 2} == {TensorProto.INT8}


def test_equal_weights_are_kept_once() -> None:
    exported = assert_round_trip(shared_weights(), clean="none")
    assert len(exported.graph.initializer) == 1


def test_documentation_and_metadata_are_kept() -> None:
    model = custom_domain()
    model.doc_string, model.producer_name, model.producer_version = "a model", "a tool", "3.1"
    model.domain, model.model_version = "org.example", 7
    model.graph.doc_string, model.graph.name = "a graph", "net"
    model.graph.node[1].name, model.graph.node[1].doc_string = "gelu", "fast"
    model.graph.input[0].doc_string = "the input"
    model.metadata_props.add(key="author", value="someone")
    model.graph.node[1].metadata_props.add(key="layer", value="2")
    exported = assert_round_trip(model)
    for field in ("doc_string", "producer_name", "producer_version", "domain", "model_version"):
        assert getattr(exported, field) == getattr(model, field)
    assert (exported.graph.name, exported.graph.doc_string) == ("net", "a graph")
    assert list(exported.metadata_props) == list(model.metadata_props)
    assert list(exported.graph.input) == list(model.graph.input)
    assert list(exported.graph.output) == list(model.graph.output)
    assert {entry.domain: entry.version for entry in exported.opset_import} == {"": 17, "com.microsoft": 1}
    (gelu,) = (each for each in exported.graph.node if each.op_type == "FastGelu")
    assert (gelu.name, gelu.doc_string) == ("gelu", "fast")
    assert list(gelu.metadata_props) == list(model.graph.node[1].metadata_props)
    assert [each.name for each in exported.graph.value_info] == ["g"]


def test_export_can_be_loaded_again_and_is_the_same_graph() -> None:
    for name in ("squeezenet1.1-tiny", "bert-base-tiny"):
        first = OnnxModel.load(zoo.build(name))
        second = OnnxModel.load(first.export(first.graph))
        assert second.graph.hash == first.graph.hash


def test_names_of_values_are_unique_after_rewriting() -> None:
    for name in ("squeezenet1.1-tiny", "bert-base-tiny"):
        model = OnnxModel.load(zoo.build(name))
        for exported in (model.export(graph) for graph in random_walk(model.graph, np.random.default_rng(1), 10)):
            names = [output for each in exported.graph.node for output in each.output]
            names += [tensor.name for tensor in exported.graph.initializer]
            names += [each.name for each in exported.graph.input]
            assert len(names) == len(set(names))
            assert [each.name for each in exported.graph.output] == [
                each.name for each in model.source.skeleton.graph.output
            ]


def small_network(opset: int) -> onnx.ModelProto:
    """Returns a network to merge, fold and simplify, of operators whose form changes between opsets."""
    squeeze = {"axes": [2, 3]} if opset < 13 else {}
    flat = ["pooled"] if opset < 13 else ["pooled", "axes"]
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "w2", "b2"], ["c2"]),
        node("Conv", ["x", "w3", "b3"], ["c3"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Relu", ["c2"], ["r2"]),
        node("Relu", ["c3"], ["r3"]),
        node("Concat", ["r1", "r2", "r3"], ["cat"], axis=1),
        node("GlobalAveragePool", ["cat"], ["pooled"]),
        node("Squeeze", flat, ["flat"], **squeeze),
        node("MatMul", ["flat", "q"], ["mq"]),
        node("MatMul", ["flat", "k"], ["mk"]),
        node("Mul", ["mq", "half"], ["sq"]),
        node("Add", ["mk", "bk"], ["ak"]),
        node("Add", ["sq", "bq"], ["aq"]),
        node("Transpose", ["aq"], ["tq"], perm=[1, 0]),
        node("Transpose", ["tq"], ["uq"], perm=[1, 0]),
        node("Concat", ["uq", "ak"], ["joined"], axis=1),
        node("Softmax", ["joined"], ["y"], axis=1),
    ]
    weights = {"w1": normal(4, 3, 3, 3), "w2": normal(5, 3, 1, 1, seed=1), "w3": normal(2, 3, 3, 3, seed=2)}
    weights |= {"b1": normal(4), "b2": normal(5), "b3": normal(2), "q": normal(11, 6), "k": normal(11, 7, seed=3)}
    weights |= {"half": np.float32(0.5), "bq": normal(6), "bk": normal(7)}
    weights |= {"axes": np.array([2, 3])} if opset >= 13 else {}
    return make_model(nodes, [value("x", [2, 3, 6, 6])], [value("y", [2, 13])], weights, opset=opset)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 17, 18, 21, 26])
def test_rewritten_graphs_are_valid_and_equal_at_every_opset(opset: int) -> None:
    model = OnnxModel.load(small_network(opset))
    graphs = [graph for seed in range(3) for graph in random_walk(model.graph, np.random.default_rng(seed), 12)[1::2]]
    assert len(graphs) > 8
    for graph in graphs:
        found = verify(model.source, model.export_checked(graph), num_inputs=2)
        assert found.equal and found.reacts, found.reason


def test_overridable_defaults_survive() -> None:
    model = make_model(
        [node("Mul", ["x", "scale"], ["y"])],
        [value("x", [3]), value("scale", [1])],
        [value("y", [3])],
        {"scale": np.array([2.0], np.float32)},
    )
    exported = assert_round_trip(model)
    feeds = {"x": normal(3), "scale": np.array([5.0], np.float32)}
    assert_same(run(model, feeds), run(exported, feeds))
    assert [tensor.name for tensor in exported.graph.initializer] == ["scale"]


def test_cleaned_is_a_model_of_its_own() -> None:
    model = OnnxModel.load(zoo.build("bert-base-tiny"))
    onnx.checker.check_model(model.cleaned.to_proto())
    found = verify(model.source, model.cleaned, num_inputs=2)
    assert found.equal and found.reacts, found.reason
