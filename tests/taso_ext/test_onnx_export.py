"""Awkward models come out as they went in: same function, same names, same metadata, whatever is rewritten inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_cases import (
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

from environment import zoo
from environment.verification import verify
from taso_ext import OnnxModel
from taso_ext.cleanup import LEVELS

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def branch(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(output, [2, 3])])


def if_with_captures() -> onnx.ModelProto:
    """Branches read an input, a weight, a computed value and a renamed copy of one; one branch has an inner If."""
    inner_then = branch("inner_then", [node("Mul", ["t", "w"], ["it"])], "it")
    inner_else = branch("inner_else", [node("Sub", ["copy", "x"], ["ie"])], "ie")
    inner = node("If", ["flag"], ["in"], then_branch=inner_then, else_branch=inner_else)
    then = branch("then", [inner, node("Add", ["in", "t"], ["tt"])], "tt")
    otherwise = branch("else", [node("Identity", ["copy"], ["e0"]), node("Add", ["e0", "w"], ["ee"])], "ee")
    return make_model(
        [
            node("Relu", ["x"], ["t"]),
            node("Identity", ["t"], ["copy"]),
            node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise),
        ],
        [value("x", [2, 3]), value("flag", [], BOOL)],
        [value("y", [2, 3])],
        {"w": normal(2, 3)},
    )


def loop_with_captures() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("MatMul", ["state", "w"], ["m"]),
            node("Add", ["m", "t"], ["next"]),
            node("Identity", ["go"], ["go_on"]),
            node("ReduceSum", ["next"], ["seen"], keepdims=0),
        ],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("state", [2, 3])],
        [value("go_on", [], BOOL), value("next", [2, 3]), value("seen", [])],
    )
    return make_model(
        [node("Tanh", ["x"], ["t"]), node("Loop", ["n", "", "t"], ["y", "trace"], body=body)],
        [value("x", [2, 3])],
        [value("y", [2, 3]), value("trace", [None])],
        {"w": normal(3, 3) / 3, "n": np.int64(4)},
    )


def scan() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["s1"]), node("Mul", ["s1", "w"], ["o"])],
        "body",
        [value("s", [3]), value("e", [3])],
        [value("s1", [3]), value("o", [3])],
    )
    return make_model(
        [node("Scan", ["init", "x"], ["last", "y"], body=body, num_scan_inputs=1)],
        [value("x", [4, 3])],
        [value("last", [3]), value("y", [4, 3])],
        {"w": normal(3), "init": np.zeros(3, np.float32)},
    )


def shadowed_names() -> onnx.ModelProto:
    """A branch defines a name that exists outside: forbidden, but exporters write it and ONNX Runtime runs it."""
    then = branch("then", [node("Neg", ["x"], ["t"]), node("Add", ["t", "x"], ["a"])], "a")
    otherwise = branch("else", [node("Add", ["t2", "x"], ["b"])], "b")
    return make_model(
        [
            node("Relu", ["x"], ["t2"]),
            node("If", ["flag"], ["u"], then_branch=then, else_branch=otherwise),
            node("Relu", ["u"], ["t"]),
            node("Add", ["t", "t2"], ["y"]),
        ],
        [value("x", [2, 3]), value("flag", [], BOOL)],
        [value("y", [2, 3])],
    )


def several_outputs_of_one_value() -> onnx.ModelProto:
    """An input, a weight and a computed value as outputs, the latter two times."""
    return make_model(
        [
            node("Relu", ["x"], ["r"]),
            node("Identity", ["r"], ["again"]),
            node("Identity", ["x"], ["same"]),
            node("Identity", ["w"], ["weight"]),
            node("Neg", ["w"], ["folded"]),
        ],
        [value("x", [3])],
        [value(name, [3]) for name in ("r", "again", "same", "weight", "folded")],
        {"w": normal(3)},
    )


def input_as_output() -> onnx.ModelProto:
    return make_model(
        [node("Relu", ["x"], ["y"])], [value("x", [3]), value("z", [2])], [value("z", [2]), value("y", [3])]
    )


def shared_weights() -> onnx.ModelProto:
    """One weight used twice, and an equal one of another name."""
    weight = normal(3, 3)
    return make_model(
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["b"]), node("MatMul", ["b", "twin"], ["y"])],
        [value("x", [2, 3])],
        [value("y", [2, 3])],
        {"w": weight, "twin": weight},
    )


def weight_arithmetic() -> onnx.ModelProto:
    """Everything between the weights and the first MatMul depends on weights alone."""
    return make_model(
        [
            node("Transpose", ["w"], ["wt"], perm=[1, 0]),
            node("Concat", ["wt", "v"], ["cat"], axis=1),
            node("Mul", ["cat", "scale"], ["scaled"]),
            node("Split", ["scaled"], ["p", "q"], axis=1, num_outputs=2),
            node("MatMul", ["x", "p"], ["a"]),
            node("MatMul", ["x", "q"], ["b"]),
            node("Add", ["a", "b"], ["y"]),
        ],
        [value("x", [2, 200])],
        [value("y", [2, 150])],
        {"w": normal(100, 200), "v": normal(200, 200), "scale": np.float32(0.5)},
        opset=18,
    )


def half_precision() -> onnx.ModelProto:
    return make_model(
        [node("MatMul", ["x", "w"], ["m"]), node("Pad", ["m", "pads", "c"], ["p"]), node("Relu", ["p"], ["y"])],
        [value("x", [2, 3], TensorProto.FLOAT16)],
        [value("y", [2, 6], TensorProto.FLOAT16)],
        {"w": normal(3, 4).astype(np.float16), "pads": np.array([0, 1, 0, 1]), "c": np.float16(0.25)},
    )


def brain_float() -> onnx.ModelProto:
    """Weights of a type that NumPy does not have, cast when used."""
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [3, 4], list(normal(12)))
    model = make_model(
        [node("Cast", ["w"], ["f"], to=FLOAT), node("MatMul", ["x", "f"], ["y"])],
        [value("x", [2, 3])],
        [value("y", [2, 4])],
        {"w": normal(3, 4)},
    )
    model.graph.initializer[0].CopyFrom(weight)
    onnx.checker.check_model(model)
    return model


def brain_float_used_twice() -> onnx.ModelProto:
    """A computed weight that must stay, because NumPy lacks its type, and that a foldable one needs as well."""
    return make_model(
        [
            node("Cast", ["w"], ["b"], to=TensorProto.BFLOAT16),
            node("Cast", ["b"], ["f"], to=FLOAT),
            node("MatMul", ["x", "f"], ["m"]),
            node("Cast", ["m"], ["c"], to=TensorProto.BFLOAT16),
            node("Concat", ["c", "b"], ["j"], axis=0),
            node("Cast", ["j"], ["y"], to=FLOAT),
        ],
        [value("x", [2, 3])],
        [value("y", [5, 4])],
        {"w": normal(3, 4)},
    )


def large_captures() -> onnx.ModelProto:
    """Branches read weights that are large enough to be handed to a session as arrays."""
    then = branch("then", [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["tt"])], "tt")
    otherwise = branch("else", [node("Relu", ["x"], ["ee"])], "ee")
    return make_model(
        [node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise)],
        [value("x", [2, 3]), value("flag", [], BOOL)],
        [value("y", [2, 3])],
        {"w": normal(3, 9000), "v": normal(9000, 3)},
    )


def quantised() -> onnx.ModelProto:
    """Int8 weights stay int8: folding their DequantizeLinear would undo the quantisation."""
    return make_model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
            node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
            node("MatMul", ["xf", "wf"], ["y"]),
        ],
        [value("x", [2, 3])],
        [value("y", [2, 4])],
        {"w": np.arange(12, dtype=np.int8).reshape(3, 4), "s": np.float32(0.1), "z": np.int8(0)},
    )


def strings() -> onnx.ModelProto:
    lookup = node("LabelEncoder", ["x"], ["i"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_int64s=[3, 4])
    return make_model(
        [lookup, node("Equal", ["x", "b"], ["is_b"]), node("Concat", ["x", "b"], ["y"], axis=0)],
        [value("x", [2], STRING)],
        [value("i", [2], INT64), value("is_b", [2], BOOL), value("y", [3], STRING)],
        {"b": np.array(["b"], dtype=object)},
        opset=19,
        domains={"ai.onnx.ml": 2},
    )


def classifier_with_map_output() -> onnx.ModelProto:
    """A sequence of maps, which onnxscript has no type for."""
    model = make_model(
        [node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[10, 20])],
        [value("x", [3, 2])],
        [value("y", [3, 2])],
        domains={"ai.onnx.ml": 1},
    )
    entry = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
    model.graph.output[0].CopyFrom(helper.make_value_info("y", helper.make_sequence_type_proto(entry)))
    return model


def custom_domain() -> onnx.ModelProto:
    """A contributed operator between known ones; only the file knows the type of its result."""
    model = make_model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("FastGelu", ["a"], ["g"], domain="com.microsoft"),
            node("MatMul", ["g", "w"], ["y"]),
        ],
        [value("x", [2, 3])],
        [value("y", [2, 3])],
        {"w": normal(3, 3)},
        domains={"com.microsoft": 1},
    )
    model.graph.value_info.append(value("g", [2, 3]))
    return model


def sparse_weights() -> onnx.ModelProto:
    model = make_model(
        [node("Constant", [], ["c"], sparse_value=helper.make_sparse_tensor(
            numpy_helper.from_array(np.array([5.0, 7.0], np.float32), "v"),
            numpy_helper.from_array(np.array([[0, 1], [1, 2]], np.int64), "i"), [2, 3])),
         node("Add", ["x", "c"], ["t"]), node("Mul", ["t", "s"], ["y"])],
        [value("x", [2, 3]), value("s", [2, 3])],
        [value("y", [2, 3])],
    )  # fmt: skip
    del model.graph.input[1]
    values = numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "s")
    indices = numpy_helper.from_array(np.array([1, 5], np.int64), "s_indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    return model


def optional_operands() -> onnx.ModelProto:
    """Absent inputs and outputs in the middle."""
    return make_model(
        [
            node("LSTM", ["x", "w", "r", "", "", "h"], ["", "last", "cell"], hidden_size=4),
            node("Clip", ["last", "", "top"], ["y"]),
        ],
        [value("x", [5, 2, 3])],
        [value("y", [1, 2, 4]), value("cell", [1, 2, 4])],
        {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "h": normal(1, 2, 4), "top": np.float32(0.1)},
    )


AWKWARD: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build
    for build in (
        if_with_captures, loop_with_captures, scan, shadowed_names, several_outputs_of_one_value, input_as_output,
        shared_weights, weight_arithmetic, half_precision, brain_float, brain_float_used_twice, large_captures,
        quantised, strings, classifier_with_map_output,
        custom_domain, sparse_weights, optional_operands,
    )
}  # fmt: skip


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
    """The engine may rename what a branch captures; here the copy that a branch names is gone altogether."""
    exported = assert_round_trip(if_with_captures(), {"x": normal(2, 3), "flag": np.array(False)}, "none")
    assert operators(exported) == ["Relu", "If"]


def test_weight_only_values_are_folded() -> None:
    exported = assert_round_trip(weight_arithmetic(), clean="none")
    assert operators(exported) == ["MatMul", "MatMul", "Add"]
    assert sorted(tuple(tensor.dims) for tensor in exported.graph.initializer) == [(200, 150), (200, 150)]


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
    """Verification finds inputs for them by itself, or says why not; it never takes one for different from itself."""
    model = OnnxModel.load(AWKWARD[name]())
    found = verify(model.original, model.export(model.graph), num_inputs=6)
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
            assert [each.name for each in exported.graph.output] == [each.name for each in model.original.graph.output]


def small_network(opset: int) -> onnx.ModelProto:
    """Siblings to merge, constants to fold, layouts to cancel, in operators whose form changes between opsets."""
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
        found = verify(model.original, model.export(graph), num_inputs=2)
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
    onnx.checker.check_model(model.cleaned)
    found = verify(model.original, model.cleaned, num_inputs=2)
    assert found.equal and found.reacts, found.reason
