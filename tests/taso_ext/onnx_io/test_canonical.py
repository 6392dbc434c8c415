"""Operators of every opset are read into one normal form and written as their opset spells them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import NodeProto

from taso_ext import Node, OnnxModel
from taso_ext.onnx_io.canonical.form import RAW_DOMAIN
from taso_ext.onnx_io.canonical.lowering import NormalNode, lower
from taso_ext.onnx_io.checked_model import ValueType
from tests.taso_ext.samples.onnx_cases import assert_round_trip, make_model, node, operators, random_feeds, run, value

X = [2, 3, 4]
Weights = dict[str, np.ndarray]
Spelling = Callable[[int], tuple[list[NodeProto], Weights]]
"""A function of an opset that returns nodes from x (of dims X) to y, and constants, as that opset writes them."""


def as_attribute_or_input(
    op_type: str, since: int, attribute: str, numbers: list[int], **attributes: object
) -> Spelling:
    def spell(opset: int) -> tuple[list[NodeProto], Weights]:
        if opset < since:
            return [node(op_type, ["x"], ["y"], **{attribute: numbers}, **attributes)], {}
        return [node(op_type, ["x", "k"], ["y"], **attributes)], {"k": np.array(numbers, np.int64)}

    return spell


def split(opset: int) -> tuple[list[NodeProto], Weights]:
    outputs = ["p", "q"]
    join = node("Concat", ["q", "p"], ["y"], axis=-1 if opset >= 11 else 2)
    if opset < 13:
        return [node("Split", ["x"], outputs, axis=2, split=[1, 3]), join], {}
    return [node("Split", ["x", "k"], outputs, axis=-1), join], {"k": np.array([1, 3])}


def equal_split(opset: int) -> tuple[list[NodeProto], Weights]:
    attributes = {"num_outputs": 2} if opset >= 18 else {}
    parts = node("Split", ["x"], ["p", "q"], axis=2, **attributes)
    return [parts, node("Concat", ["q", "p"], ["y"], axis=2)], {}


def cut(opset: int) -> tuple[list[NodeProto], Weights]:
    if opset < 10:
        return [node("Slice", ["x"], ["y"], axes=[2, 1], starts=[-3, 0], ends=[2**31 - 1, -1])], {}
    lists = {"starts": [-3, 0], "ends": [2**63 - 1, -1], "axes": [2, 1] if opset < 11 else [-1, -2]}
    return [node("Slice", ["x", *lists], ["y"])], {name: np.array(numbers, np.int64) for name, numbers in lists.items()}


def pad(opset: int) -> tuple[list[NodeProto], Weights]:
    pads = [0, 1, 2, 0, 0, 3]
    if opset < 11:
        return [node("Pad", ["x"], ["y"], pads=pads, value=1.5)], {}
    if opset < 18:
        return [node("Pad", ["x", "k", "v"], ["y"])], {"k": np.array(pads), "v": np.float32(1.5)}
    weights = {"k": np.array([1, 2, 0, 3]), "v": np.float32(1.5), "axes": np.array([1, -1])}
    return [node("Pad", ["x", "k", "v", "axes"], ["y"])], weights


def softmax_of_last(opset: int) -> tuple[list[NodeProto], Weights]:
    return [node("Softmax", ["x"], ["y"], axis=2 if opset < 11 else -1)], {}


SPELLINGS: dict[str, Spelling] = {
    "split": split,
    "equal split": equal_split,
    "slice": cut,
    "pad": pad,
    "softmax": softmax_of_last,
    "unsqueeze": as_attribute_or_input("Unsqueeze", 13, "axes", [0, 4]),
    "reduce sum": as_attribute_or_input("ReduceSum", 13, "axes", [2, 0], keepdims=0),
    "reduce mean": as_attribute_or_input("ReduceMean", 18, "axes", [1]),
    "reduce all": lambda opset: ([node("ReduceMax", ["x"], ["y"])], {}),
    "flatten": lambda opset: ([node("Flatten", ["x"], ["y"])], {}),
    "transpose": lambda opset: ([node("Transpose", ["x"], ["y"])], {}),
    "leaky relu": lambda opset: ([node("LeakyRelu", ["x"], ["y"])], {}),
    "gemm": lambda opset: (
        [node("Flatten", ["x"], ["t"], axis=2), node("Gemm", ["t", "w", "c"], ["y"])],
        {"w": np.ones((4, 5), np.float32), "c": np.ones(5, np.float32)},
    ),
}


def with_inferred_output(nodes: list[NodeProto], dims: list[int], weights: Weights, opset: int) -> onnx.ModelProto:
    """Returns a model whose output has the inferred rank, or that of X; the checker demands one."""
    model = make_model(nodes, [value("x", dims)], [value("y", [])], weights, opset=opset)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output[0].type.tensor_type
    rank = len(inferred.shape.dim) if inferred.HasField("shape") else len(X)
    model.graph.output[0].CopyFrom(value("y", [None] * rank))
    return model


def normal_forms(model: onnx.ModelProto) -> list[tuple[str, str, dict[str, object]]]:
    nodes: list[Node] = OnnxModel.load(model, clean="none").graph.nodes()
    return [(each.domain, each.op_type, each.attributes) for each in nodes]


@pytest.mark.parametrize("name", SPELLINGS)
def test_normal_form_is_the_same_at_every_opset(name: str) -> None:
    forms = {}
    for opset in range(7, 27):
        nodes, weights = SPELLINGS[name](opset)
        model = with_inferred_output(nodes, X, weights, opset)
        forms[opset] = normal_forms(model)
        assert_round_trip(model, clean="none")
    for opset, form in forms.items():
        assert form == forms[13], f"opset {opset}"
    assert all(domain == "" for domain, _, _ in forms[13])


def test_softmax_over_several_axes_stays_raw_before_opset_13() -> None:
    for axis, dims, lifted in [(1, [2, 3, 4], None), (1, [2, 3, 1], 1), (1, [2, 1, 4], 2), (0, [1, 3, 1], 1)]:
        model = make_model([node("Softmax", ["x"], ["y"], axis=axis)], [value("x", dims)], [value("y", dims)], opset=11)
        ((domain, _, attributes),) = normal_forms(model)
        assert (domain == RAW_DOMAIN) == (lifted is None)
        if lifted is not None:
            assert attributes == {"axis": lifted}
        assert_round_trip(model, clean="none")


@given(
    op_type=st.sampled_from(["Conv", "MaxPool", "AveragePool"]),
    opset=st.sampled_from([7, 10, 11, 19, 22]),
    auto_pad=st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.none() | st.tuples(st.integers(1, 2), st.integers(1, 2)),
    size=st.tuples(st.integers(7, 9), st.integers(7, 9)),
    ceil_mode=st.booleans(),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_windows_keep_their_function(
    op_type: str, opset: int, auto_pad: str, kernel: tuple[int, int], strides: tuple[int, int] | None,
    dilations: tuple[int, int] | None, size: tuple[int, int], ceil_mode: bool,
) -> None:  # fmt: skip
    attributes: dict[str, object] = {"auto_pad": auto_pad}
    attributes |= {"strides": strides} if strides else {}
    if dilations and (op_type == "Conv" or opset >= (10 if op_type == "MaxPool" else 19)):
        attributes["dilations"] = dilations
    weights = {}
    if op_type == "Conv":
        weights["w"] = np.random.default_rng(0).standard_normal((2, 2, *kernel)).astype(np.float32)
    else:
        attributes["kernel_shape"] = kernel
        attributes |= {"ceil_mode": 1} if ceil_mode and opset >= 10 else {}
    model = with_inferred_output([node(op_type, ["x", *weights], ["y"], **attributes)], [1, 2, *size], weights, opset)
    try:
        run(model, random_feeds(model))
    except Exception:  # ONNX Runtime refuses dilations together with automatic padding, among others
        assume(False)
    assert_round_trip(model, clean="none")


@given(data=st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_reshape_targets_become_static(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    target = data.draw(st.sampled_from(sorted(set(itertools.permutations(dims)))))
    spelled = list(target)
    for axis in range(len(target)):  # a 0 copies the dimension at the same place
        if target[axis] == dims[axis] and data.draw(st.booleans()):
            spelled[axis] = 0
    if data.draw(st.booleans()):
        spelled[data.draw(st.integers(0, len(target) - 1))] = -1
    weights = {"k": np.array(spelled, np.int64)}
    model = make_model([node("Reshape", ["x", "k"], ["y"])], [value("x", dims)], [value("y", list(target))], weights)
    ((domain, op_type, attributes),) = normal_forms(model)
    assert (domain, op_type, attributes) == ("", "Reshape", {"shape": list(target)})
    assert_round_trip(model, clean="none")


def test_computed_structure_stays_as_it_is() -> None:
    """Nothing may be assumed about sizes that are known only at run time."""
    shape = value("k", [2], onnx.TensorProto.INT64)
    cases = {
        "Reshape": node("Reshape", ["x", "k"], ["y"]),
        "Split": node("Split", ["x", "k"], ["y", "z"], axis=0),
        "Squeeze": node("Squeeze", ["x", "k"], ["y"]),
        "Unsqueeze": node("Unsqueeze", ["x", "k"], ["y"]),
        "ReduceSum": node("ReduceSum", ["x", "k"], ["y"]),
        "Slice": node("Slice", ["x", "k", "k"], ["y"]),
    }
    for name, each in cases.items():
        model = make_model([each], [value("x", [2, 1, 1, 6]), shape], [value("y", [None] * 3)])
        loaded = OnnxModel.load(model)
        (found,) = loaded.graph.nodes()
        assert (found.domain, found.op_type, len(found.inputs)) == (RAW_DOMAIN, name, len(each.input))
        (written,) = loaded.export(loaded.graph).graph.node
        assert (written.op_type, written.domain, list(written.input)) == (name, "", list(each.input))


def test_an_attribute_of_a_newer_opset_is_not_lost() -> None:
    """The windows of Attention came with opset 25, after the normal form."""
    operands = ["q", "k", "v"]
    inputs = [value(name, [1, 2, 5, 4]) for name in operands]
    windowed = node("Attention", operands, ["y"], left_window_size=2, is_causal=1)
    for attention, domain in ((windowed, RAW_DOMAIN), (node("Attention", operands, ["y"], is_causal=1), "")):
        model = make_model([attention], inputs, [value("y", [1, 2, 5, 4])], opset=25)
        loaded = OnnxModel.load(model, clean="none")
        assert [each.domain for each in loaded.graph.nodes()] == [domain]
        written = {each.name for each in loaded.export(loaded.graph).graph.node[0].attribute}
        assert written >= {each.name for each in attention.attribute}


def test_empty_tensors_keep_their_meaning() -> None:
    for spelled, allow_zero in (([3, 4, 0], 1), ([0, 12], 0)):
        model = with_inferred_output(
            [node("Reshape", ["x", "k"], ["y"], allowzero=allow_zero)], [0, 3, 4], {"k": np.array(spelled)}, 14
        )
        assert_round_trip(model, clean="none")


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_softmax_of_another_axis_is_written_for_old_opsets(opset: int) -> None:
    """A rewrite may move a softmax to an axis that old opsets cannot name; the export transposes the axis instead."""

    class Names:
        def constant(self, array: np.ndarray, hint: str) -> str:
            raise AssertionError("softmax needs no constants")

        def fresh_name(self, hint: str) -> str:
            return hint

    softmax = NormalNode("Softmax", {"axis": 1}, ["x"], ["y"], [ValueType(1, (2, 3, 4))])
    model = make_model(lower(softmax, opset, Names()), [value("x", X)], [value("y", X)], opset=opset)
    assert operators(model) == (["Softmax"] if opset >= 13 else ["Transpose", "Softmax", "Transpose"])
    x = random_feeds(model)["x"]
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(model, {"x": x})[0], exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)
