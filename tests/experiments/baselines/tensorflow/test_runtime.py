"""The TensorFlow baseline computes what ONNX Runtime computes, and names what it does not support."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from environment.inputs import input_specs, random_feeds
from environment.measurement.effort import PROCESS_CPU, Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.verification import Scale, difference, spread_of
from experiments.baselines.tensorflow import runtime as tensorflow_runtime
from experiments.baselines.tensorflow.runtime import OPERATORS, TensorFlow, tensorflow_function
from taso_ext import OnnxModel
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model

TINY = [name for name in zoo.names() if name.endswith("-tiny")]
TOLERANCE = 1e-4  # of an output's spread
KINDS = {TensorProto.FLOAT: np.float32, TensorProto.INT64: np.int64, TensorProto.BOOL: np.bool_}
F, L = TensorProto.FLOAT, TensorProto.INT64


def assert_agree(
    model: onnx.ModelProto | CheckedModel, *, xla: bool, feeds: dict[str, np.ndarray] | None = None
) -> None:
    checked = model if isinstance(model, CheckedModel) else CheckedModel.from_proto(model)
    feeds = feeds or random_feeds(input_specs(checked), np.random.default_rng(0))
    outputs = []
    for runtime in (OnnxRuntime(level="disabled"), TensorFlow(xla=xla)):
        session = runtime.open(checked, feeds)
        session.run()
        outputs.append(session.outputs())
    assert len(outputs[0]) == len(outputs[1])
    for expected, found in zip(*outputs, strict=True):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert difference(expected, found, Scale(spread_of((expected,)), TOLERANCE)) <= TOLERANCE


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(
    ("clean", "xla"),
    [*(pytest.param(each, False, marks=pytest.mark.full) for each in ("none", "full")), ("full", True)],
)
def test_zoo_graphs_compute_the_same(name: str, clean: str, xla: bool) -> None:
    model = zoo.build(name)
    if clean == "none":
        assert_agree(model, xla=xla)
    else:
        loaded = OnnxModel.load(model, clean=clean)
        assert_agree(loaded.export_checked(loaded.graph), xla=xla)


# Single operators

Shape = Sequence[int]


def one_node(
    op: str, inputs: Sequence[Shape | np.ndarray], opset: int = 18, outputs: int = 1, **attributes: Any
) -> Any:
    """Returns a model of one operator. In `inputs`, a shape is a graph input, an array a constant, None no input."""
    names = ["" if each is None else f"i{index}" for index, each in enumerate(inputs)]
    given = {name: each for name, each in zip(names, inputs, strict=True) if isinstance(each, list | tuple)}
    constants = [numpy_helper.from_array(e, n) for n, e in zip(names, inputs, strict=True) if isinstance(e, np.ndarray)]
    found = [f"o{index}" for index in range(outputs)]
    node = helper.make_node(op, names, found, name=f"{op.lower()}_7", **attributes)
    graph = helper.make_graph(
        [node],
        "one-node",
        [helper.make_tensor_value_info(name, F, list(shape)) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, L if op in ("ArgMax", "Shape") else F, None) for name in found],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


X = (2, 3, 4, 5)
CASES: dict[str, Any] = {
    **{op: one_node(op, [X]) for op in ("Abs", "Ceil", "Erf", "Exp", "Floor", "Identity", "Neg", "Reciprocal", "Relu")},
    **{op: one_node(op, [X]) for op in ("LeakyRelu", "LogSoftmax", "Sigmoid", "Softmax", "Softplus", "Tanh")},
    **{op: one_node(op, [X, (4, 5)]) for op in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Sum")},
    "Sum of three": one_node("Sum", [X, (4, 5), (1,)]),
    "Gelu": one_node("Gelu", [X], opset=20),
    "Gelu by tanh": one_node("Gelu", [X], opset=20, approximate="tanh"),
    "bias": one_node("Add", [X, floats(5)]),
    "bias in front": one_node("Add", [floats(1, 5), (4, 5)]),
    "scalar": one_node("Mul", [X, scalar(3)]),
    "square": one_node("Pow", [X, scalar(2)]),
    "cube by an integer": one_node("Pow", [X, ints(3)]),
    "Clip": one_node("Clip", [X, scalar(-0.5), scalar(0.5)]),
    "Clip from below": one_node("Clip", [X, scalar(-0.5)]),
    "Clip to 6": one_node("Clip", [X, scalar(0), scalar(6)]),
    "Cast": one_node("Cast", [X], to=F),
    "Where": one_node("Where", [np.array([True, False, True, True, False]), X, (4, 1)]),
    "ArgMax": one_node("ArgMax", [X], axis=1),
    "ArgMax without axis": one_node("ArgMax", [X], axis=-1, keepdims=0),
    **{f"{op}": one_node(op, [X], keepdims=0) for op in ("ReduceMax", "ReduceMin")},
    **{
        f"{op} of axes": one_node(op, [X, ints(-1, 1)]) for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd")
    },
    "ReduceMean without axes": one_node("ReduceMean", [X, ints(1, 2)], keepdims=0),
    "ReduceMax of no axes": one_node("ReduceMax", [X, ints()]),
    "ReduceSum of all axes": one_node("ReduceSum", [X, ints(0, 1, 2, 3)], noop_with_empty_axes=1),
    "Softmax over channels": one_node("Softmax", [X], axis=1),
    "LayerNormalization": one_node("LayerNormalization", [X, floats(5), floats(5)], epsilon=1e-2),
    "LayerNormalization of axes": one_node("LayerNormalization", [X, floats(4, 5)], axis=-2),
    "BatchNormalization": one_node("BatchNormalization", [X, *(np.abs(floats(3)) for _ in range(4))]),
    "BatchNormalization of rows": one_node("BatchNormalization", [(2, 3), *(np.abs(floats(3)) for _ in range(4))]),
    "MatMul": one_node("MatMul", [(2, 3, 4), (2, 4, 5)]),
    "MatMul by weights": one_node("MatMul", [(2, 3, 4), floats(4, 5)]),
    "MatMul of broadcast": one_node("MatMul", [(2, 1, 3, 4), (6, 4, 5)]),
    "MatMul of a vector": one_node("MatMul", [(4,), (2, 4, 5)]),
    "MatMul by a vector": one_node("MatMul", [(2, 3, 4), (4,)]),
    "MatMul of four dimensions by a vector": one_node("MatMul", [(2, 1, 3, 4), (4,)]),
    "Gemm": one_node("Gemm", [(3, 4), floats(5, 4), floats(5)], transB=1, alpha=0.5, beta=2.0),
    "Gemm transposed": one_node("Gemm", [(4, 3), (4, 5)], transA=1),
    "Gemm with a matrix": one_node("Gemm", [(3, 4), (4, 5), floats(3, 1)]),
    "Concat": one_node("Concat", [X, (2, 1, 4, 5)], axis=1),
    "Split": one_node("Split", [X], outputs=2, axis=3, num_outputs=2),
    "Split by sizes": one_node("Split", [X, ints(1, 2)], outputs=2, axis=1),
    "Slice": one_node("Slice", [X, ints(1, -2), ints(10, 9), ints(1, -1)]),
    "Slice backwards": one_node("Slice", [X, ints(-1, 3), ints(-(2**63), 0), ints(2, 3), ints(-2, -1)]),
    "Gather": one_node("Gather", [X, ints(-1, 0).reshape(2, 1)], axis=2),
    "Gather one": one_node("Gather", [X, np.array(-2)], axis=1),
    "Reshape": one_node("Reshape", [X, ints(0, -1, 2)]),
    "Flatten": one_node("Flatten", [X], axis=-2),
    "Flatten all": one_node("Flatten", [X], axis=0),
    "Squeeze": one_node("Squeeze", [(1, 3, 1, 2)]),
    "Squeeze axes": one_node("Squeeze", [(1, 3, 1, 2), ints(-2)]),
    "Unsqueeze": one_node("Unsqueeze", [(3, 2), ints(0, -1)]),
    "Transpose": one_node("Transpose", [X], perm=[2, 0, 3, 1]),
    "Transpose all": one_node("Transpose", [X]),
    "Expand": one_node("Expand", [(3, 1), ints(2, 1, 4)]),
    "Tile": one_node("Tile", [X, ints(1, 2, 3, 1)]),
    "Shape": one_node("Shape", [X], start=1),
    "Pad": one_node("Pad", [X, ints(0, 1, 0, 2, 0, 0, 3, 0), scalar(7)]),
    "Pad and cut": one_node("Pad", [X, ints(-1, 2, 1, 0), None, ints(3, 2)]),
    "Pad by reflection": one_node("Pad", [X, ints(0, 0, 1, 2, 0, 0, 2, 1)], mode="reflect"),
    "GlobalAveragePool": one_node("GlobalAveragePool", [X]),
    "GlobalMaxPool": one_node("GlobalMaxPool", [X]),
    "ConvTranspose": one_node("ConvTranspose", [X, floats(3, 2, 3, 3), floats(2)], strides=[2, 1], pads=[1, 0, 0, 1]),
    "ConvTranspose of more": one_node("ConvTranspose", [X, floats(3, 2, 2, 2)], strides=[2, 2], output_padding=[1, 1]),
    "ScatterElements": one_node(
        "ScatterElements", [X, ints(*[-1, 2, 1] * 40).reshape(2, 3, 4, 5), floats(*X)], axis=1, reduction="add"
    ),
}
COMPARISONS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or")
ELSEWHERE = {"AveragePool", "Constant", "ConstantOfShape", "Conv", "Log", "MaxPool", "Sqrt", *COMPARISONS}


def test_every_operator_is_tried() -> None:
    assert {model.graph.node[0].op_type for model in CASES.values()} | ELSEWHERE == set(OPERATORS)


@pytest.mark.parametrize("case", CASES)
def test_operators_compute_the_same(case: str) -> None:
    assert_agree(CASES[case], xla=False)


@pytest.mark.parametrize("case", CASES)
def test_operators_of_constants_compute_the_same(case: str) -> None:
    """Such operators are computed when the model is converted."""
    model = onnx.ModelProto()
    model.CopyFrom(CASES[case])
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        model.graph.initializer.append(numpy_helper.from_array(floats(*dims), value.name))
    del model.graph.input[:]
    assert_agree(model, xla=False)
    operations = tensorflow_function(CheckedModel.from_proto(model), xla=False).graph.get_operations()
    assert {each.type for each in operations} <= {"Const", "Identity", "NoOp"}


def chain(
    nodes: Sequence[tuple[str, Sequence[str], str, dict[str, Any]]], shape: Shape, kind: int = F
) -> onnx.ModelProto:
    """Returns a model that applies operators to the input `x`; the last result is the output."""
    made = [helper.make_node(op, inputs, [output], **attributes) for op, inputs, output, attributes in nodes]
    value, result = helper.make_tensor_value_info("x", kind, list(shape)), nodes[-1][2]
    constants = [numpy_helper.from_array(floats(3, 4), "w"), numpy_helper.from_array(ints(2, 3), "s")]
    graph = helper.make_graph(made, "chain", [value], [helper.make_tensor_value_info(result, F, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_compute_the_same(op: str) -> None:
    """The input is compared with its transpose, so that some elements are equal."""
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [("Transpose", ["x"], "t", {})]
    inputs = ["x", "t"]
    if op in ("And", "Or", "Not"):
        nodes += [("Greater", ["x", "t"], "a", {}), ("Less", ["x", "t"], "b", {})]
        inputs = ["a", "b"]
    nodes += [(op, inputs[: 1 if op == "Not" else 2], "c", {}), ("Cast", ["c"], "y", {"to": F})]
    assert_agree(chain(nodes, (4, 4)), xla=False)


def test_positive_arguments_compute_the_same() -> None:
    assert_agree(chain([("Abs", ["x"], "a", {}), ("Sqrt", ["a"], "b", {}), ("Log", ["b"], "y", {})], (3, 4)), xla=False)


def test_constants_are_computed_beforehand() -> None:
    """Results that depend on weights or shapes alone are constants, also if an operator needs their values."""
    fill = helper.make_tensor("v", F, [1], [2.0])
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Constant", [], "one", {"value_float": 1.0}),
        ("Add", ["w", "one"], "w1", {}),
        ("ConstantOfShape", ["s"], "fill", {"value": fill}),
        ("MatMul", ["fill", "w1"], "m", {}),
        ("Shape", ["x"], "shape", {}),
        ("Slice", ["shape", "s0", "s1"], "rows", {}),
        ("Concat", ["rows", "minus"], "wanted", {"axis": 0}),
        ("Reshape", ["x", "wanted"], "flat", {}),
        ("MatMul", ["flat", "m"], "y", {}),
    ]
    for name, value in (("s0", [0]), ("s1", [1]), ("minus", [-1])):
        nodes.insert(0, ("Constant", [], name, {"value_ints": value}))
    model = chain(nodes, (5, 2, 1))
    assert_agree(model, xla=False)
    operations = {
        each.type for each in tensorflow_function(CheckedModel.from_proto(model), xla=False).graph.get_operations()
    }
    assert operations <= {"Placeholder", "Const", "Reshape", "MatMul", "Identity", "NoOp"}


@pytest.mark.parametrize("indices", [[0, 2], [-1, 1]])
def test_indices_that_are_computed_count_from_both_ends(indices: list[int]) -> None:
    model = chain([("Gather", ["w", "x"], "y", {"axis": 1})], (2,), L)
    assert_agree(model, xla=False, feeds={"x": np.array(indices)})


def test_integers_are_divided_towards_zero() -> None:
    model = chain(
        [("Constant", [], "d", {"value_int": 3}), ("Div", ["x", "d"], "q", {}), ("Cast", ["q"], "y", {"to": F})],
        (6,),
        L,
    )
    assert_agree(model, xla=False, feeds={"x": ints(-7, -3, -1, 1, 7, 9)})


# Windows

sizes = st.integers(1, 3)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    axes = draw(st.sampled_from([1, 2, 2]))
    each = st.lists(sizes, min_size=axes, max_size=axes)
    found: dict[str, Any] = {"kernel_shape": draw(each), "strides": draw(each)}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto == "NOTSET":
        smaller = [st.integers(0, kernel - 1) for kernel in found["kernel_shape"]]
        found["pads"] = [draw(pad) for pad in (*smaller, *smaller)]
    else:
        found["auto_pad"] = auto
    return found


@given(windows(), st.lists(sizes, min_size=2, max_size=2), st.sampled_from([1, 2, 4]), st.integers(1, 2), st.booleans())
@settings(deadline=None, max_examples=40)
def test_convolutions_compute_the_same(
    window: dict[str, Any], dilations: list[int], groups: int, multiplier: int, bias: bool
) -> None:
    kernel = window["kernel_shape"]
    weight = floats(4 * multiplier, 4 // groups, *kernel)
    inputs = [(2, 4, *(9, 8)[: len(kernel)]), weight, *([floats(4 * multiplier)] if bias else [])]
    if "auto_pad" not in window:
        window = {**window, "dilations": dilations[: len(kernel)]}
    assert_agree(one_node("Conv", inputs, group=groups, **window), xla=False)


@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [1, 1, 0, 0], [0, 2, 2, 2]])
@pytest.mark.parametrize("multiplier", [1, 2])
def test_convolutions_by_channel_compute_the_same_with_any_pads(pads: list[int], multiplier: int) -> None:
    """TensorFlow would abort the process if it were given a bias together with pads other than its own."""
    inputs = [(2, 4, 9, 8), floats(4 * multiplier, 1, 3, 3), floats(4 * multiplier)]
    assert_agree(one_node("Conv", inputs, group=4, strides=[2, 2], pads=pads), xla=False)


@given(windows(), st.booleans(), st.booleans(), st.sampled_from(["MaxPool", "AveragePool"]))
@settings(deadline=None, max_examples=40)
def test_pools_compute_the_same(window: dict[str, Any], ceil: bool, include: bool, op: str) -> None:
    more: dict[str, Any] = {"count_include_pad": int(include)} if op == "AveragePool" else {}
    if "auto_pad" not in window:
        more["ceil_mode"] = int(ceil)
    shape = (2, 3, *(9, 8)[: len(window["kernel_shape"])])
    model = CheckedModel.from_proto(one_node(op, [shape], **window, **more))
    try:
        OnnxRuntime(level="disabled").open(model, random_feeds(input_specs(model), np.random.default_rng(0))).run()
    except ModelError:  # ONNX Runtime itself refuses these windows
        assume(False)
    assert_agree(model, xla=False)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_padded_pools_compute_the_same_with_xla(op: str) -> None:
    """XLA does not pad pools itself."""
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 2]}
    assert_agree(one_node(op, [(1, 3, 8, 9)], **window), xla=True)


@pytest.mark.parametrize(
    "name", ["squeezenet1.1-tiny", "resnet50-tiny", "inception-v3-tiny", "nasnet-a-tiny", "resnext50-tiny"]
)
def test_convolutions_share_one_layout(name: str) -> None:
    """The input is transposed once, and nothing after it is."""
    operations = tensorflow_function(CheckedModel.from_proto(zoo.build(name)), xla=False).graph.get_operations()
    turned = [each for each in operations if each.type == "Transpose" and each.inputs[0].shape.rank == 4]
    assert len(turned) == 1 and turned[0].inputs[0].op.type == "Placeholder"


# What it does not support


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (one_node("Det", [(2, 2)]), r"operator Det \(node 'det_7'\) is none of them"),
        (one_node("MaxPool", [(1, 1, 8, 8)], kernel_shape=[2, 2], dilations=[2, 2]), r"dilations of the operator Max"),
        (one_node("Conv", [(1, 1, 8, 8, 8), floats(1, 1, 2, 2, 2)]), r"3 axes of space of the operator Conv"),
        (one_node("Pad", [X, ints(*[1] * 8)], mode="edge"), r"mode edge of the operator Pad"),
        (one_node("Softmax", [X], opset=11), r"opset 13 or newer, and this one has 11"),
        (one_node("Relu", [("n", 3)]), r"input 'i0' has \['n', 3\]"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises(ModelError, match=said) as error:
        tensorflow_function(CheckedModel.from_proto(model), xla=False)
    assert "\n" not in str(error.value)


def test_operators_of_other_domains_are_named() -> None:
    model = one_node("Relu", [X])
    model.graph.node[0].domain = "com.example"
    with pytest.raises(ModelError, match=r"Relu \(node 'relu_7'\) of the domain com.example"):
        tensorflow_function(CheckedModel.from_proto(model), xla=False)


def test_shapes_that_are_computed_from_inputs_are_named() -> None:
    model = chain([("Cast", ["x"], "i", {"to": L}), ("Reshape", ["w", "i"], "y", {})], (2,))
    with pytest.raises(ModelError, match="a computed shape of the operator Reshape"):
        tensorflow_function(CheckedModel.from_proto(model), xla=False)


def test_operators_that_fail_are_named() -> None:
    session = TensorFlow().open(
        CheckedModel.from_proto(chain([("Gather", ["w", "x"], "y", {})], (1,), L)), {"x": ints(9)}
    )
    with pytest.raises(ModelError, match="Gather"):
        session.run()


def test_kernels_over_two_gigabytes_are_refused() -> None:
    model = CheckedModel.from_proto(one_node("Conv", [(1, 2, 8, 8), floats(4, 2, 1, 1)]))
    huge = ir.Tensor(np.broadcast_to(np.float32(0), (2**29, 2, 1, 1)), name="i1")
    with pytest.raises(ModelError, match=r"end at 2 GiB, and the convolutions of this model have 4.0 GiB"):
        tensorflow_function(CheckedModel(model.skeleton, {"i1": huge}), xla=False)


@pytest.mark.parametrize("xla", [False, True])
def test_large_weights_are_handed_over(xla: bool) -> None:
    """Weights are not part of the function; without XLA, convolution kernels are, because Grappler optimises these."""
    product = tensorflow_function(CheckedModel.from_proto(one_node("MatMul", [(3, 300), floats(300, 300)])), xla=xla)
    kernel = tensorflow_function(
        CheckedModel.from_proto(one_node("Conv", [(1, 300, 2, 2), floats(300, 300, 1, 1)])), xla=xla
    )
    assert product.graph.as_graph_def().ByteSize() < 20_000
    assert (kernel.graph.as_graph_def().ByteSize() > 360_000) == (not xla)
    assert_agree(one_node("MatMul", [(3, 300), floats(300, 300)]), xla=xla)
    assert_agree(one_node("Conv", [(1, 300, 2, 2), floats(300, 300, 1, 1)]), xla=xla)


def test_another_number_of_threads_needs_another_process() -> None:
    assert_agree(CASES["Relu"], xla=False)  # this starts TensorFlow
    with pytest.raises(UnavailableError, match="other threads than the 3 asked for"):
        TensorFlow(threads=3)


# As a runtime


def test_its_threads_are_settled_in_another_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpickling does not call `__init__`, so `open` has to set the threads."""
    sent = pickle.dumps(TensorFlow(threads=1))
    settled: list[int] = []
    monkeypatch.setattr(tensorflow_runtime, "_set_threads", settled.append)
    pickle.loads(sent).open(CheckedModel.from_proto(CASES["Relu"]), {"i0": floats(*X)})
    assert settled == [1]


@pytest.mark.parametrize("feeds", [{}, {"i0": floats(*X), "other": floats(1)}])
def test_inputs_that_do_not_fit_are_named(feeds: dict[str, np.ndarray]) -> None:
    with pytest.raises(ModelError, match=r"inputs are i0, and values are given for (none|i0, other)\."):
        TensorFlow().open(CheckedModel.from_proto(CASES["Relu"]), feeds)


def test_it_is_timed_against_onnx_runtime() -> None:
    model = CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    variants = [Variant("grappler", TensorFlow(), model), Variant("xla", TensorFlow(xla=True), model)]
    found = measure(Variant("ort", OnnxRuntime(), model), variants, Effort(pairs=2, sessions=1, control=False))
    assert found.clock == PROCESS_CPU.name
    assert ["Grappler" in each.runtime for each in found.candidates] == [True, False]


def test_models_in_files_run_too(tmp_path: Path) -> None:
    model = CheckedModel.from_proto(zoo.build("bert-base-tiny"))
    write_model(model, tmp_path / "m.onnx")
    feeds = random_feeds(input_specs(model), np.random.default_rng(0))
    sessions = [TensorFlow().open(each, feeds) for each in (model, tmp_path / "m.onnx")]
    for session in sessions:
        session.run()
    assert all(np.array_equal(*each) for each in zip(*(session.outputs() for session in sessions), strict=True))
