"""Small models with unusual features of ONNX: captured values, other domains, strings, sparse and empty tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.taso_ext.samples.onnx_cases import make_model, node, normal, value

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def branch(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(output, [2, 3])])


def if_with_captures() -> onnx.ModelProto:
    """Returns a model whose branches read an input, a weight, a computed value and its copy; one has an inner If."""
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
    """Returns a model with a branch that defines a name which exists outside.

    This is forbidden, but exporters write it and ONNX Runtime runs it.
    """
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
    """Returns a model whose outputs are an input, a weight, a folded weight and, twice, a computed value."""
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
    """Returns a model that reads one weight twice, and an equal weight of another name."""
    weight = normal(3, 3)
    return make_model(
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["b"]), node("MatMul", ["b", "twin"], ["y"])],
        [value("x", [2, 3])],
        [value("y", [2, 3])],
        {"w": weight, "twin": weight},
    )


def weight_arithmetic() -> onnx.ModelProto:
    """Returns a model in which everything between the weights and the MatMuls depends on weights alone."""
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
    """Returns a model with a weight of a type that NumPy does not have, which is cast when it is used."""
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
    """Returns a model with a computed weight that a folded one reads and that must stay, as NumPy lacks its type."""
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
    """Returns a model whose branches read weights so large that a session gets them as arrays."""
    then = branch("then", [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["tt"])], "tt")
    otherwise = branch("else", [node("Relu", ["x"], ["ee"])], "ee")
    return make_model(
        [node("If", ["flag"], ["y"], then_branch=then, else_branch=otherwise)],
        [value("x", [2, 3]), value("flag", [], BOOL)],
        [value("y", [2, 3])],
        {"w": normal(3, 9000), "v": normal(9000, 3)},
    )


def quantised() -> onnx.ModelProto:
    """Returns a model with int8 weights; folding their DequantizeLinear would undo the quantisation."""
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
    """Returns a model whose output is a sequence of maps, for which onnxscript has no type."""
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
    """Returns a model with a contributed operator between known ones; only the file states its result type."""
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
    """Returns a model whose operators leave out inputs and outputs before others."""
    return make_model(
        [
            node("LSTM", ["x", "w", "r", "", "", "h"], ["", "last", "cell"], hidden_size=4),
            node("Clip", ["last", "", "top"], ["y"]),
        ],
        [value("x", [5, 2, 3])],
        [value("y", [1, 2, 4]), value("cell", [1, 2, 4])],
        {"w": normal(1, 16, 3), "r": normal(1, 16, 4), "h": normal(1, 2, 4), "top": np.float32(0.1)},
    )


def unused_outputs() -> onnx.ModelProto:
    """Returns a model with unread outputs of operators, named or left out, in the middle and at the end."""
    return make_model(
        [
            node("TopK", ["x", "k"], ["top", "places"], axis=1),
            node("Split", ["top", "sizes"], ["p", "nobody", "q"], axis=1),
            node("MaxPool", ["image"], ["pooled", "indices"], kernel_shape=[2, 2]),
            node("LSTM", ["sequence", "w", "r"], ["states", "", "cell"], hidden_size=2),
            node("Add", ["p", "q"], ["y"]),
        ],
        [value("x", [2, 5]), value("image", [1, 1, 4, 4]), value("sequence", [3, 1, 4])],
        [value("y", [2, 1]), value("pooled", [1, 1, 3, 3]), value("cell", [1, 1, 2])],
        {"k": np.array([4]), "sizes": np.array([1, 2, 1]), "w": normal(1, 8, 4), "r": normal(1, 8, 2)},
    )


def empty_tensors() -> onnx.ModelProto:
    """Returns a model with tensors without elements: an input, a weight, results of operators and outputs."""
    return make_model(
        [
            node("Concat", ["x", "none", "e"], ["joined"], axis=0),
            node("MatMul", ["joined", "w"], ["y"]),
            node("Relu", ["e"], ["still"]),
            node("Slice", ["x", "zero", "zero"], ["cut"]),
            node("ReduceSum", ["cut"], ["nothing"], keepdims=0),
            node("Reshape", ["e", "shape"], ["z"]),
            node("Transpose", ["none"], ["turned"], perm=[1, 0]),
        ],
        [value("x", [2, 3]), value("e", [0, 3])],
        [
            value("y", [2, 4]), value("still", [0, 3]), value("nothing", []), value("z", [3, 0]),
            value("turned", [3, 0]),
        ],
        {"none": np.zeros((0, 3), np.float32), "w": normal(3, 4), "zero": np.array([0]), "shape": np.array([3, -1])},
        opset=13,
    )  # fmt: skip


AWKWARD: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build
    for build in (
        if_with_captures, loop_with_captures, scan, shadowed_names, several_outputs_of_one_value, input_as_output,
        shared_weights, weight_arithmetic, half_precision, brain_float, brain_float_used_twice, large_captures,
        quantised, strings, classifier_with_map_output,
        custom_domain, sparse_weights, optional_operands, unused_outputs, empty_tensors,
    )
}  # fmt: skip
