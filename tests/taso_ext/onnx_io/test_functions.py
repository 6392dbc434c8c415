"""Local functions are inlined, however they are written, and whatever calls them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from taso_ext.onnx_io.cleanup.passes import LEVELS
from tests.taso_ext.samples.onnx_cases import (
    assert_round_trip,
    make_model,
    node,
    normal,
    operators,
    random_feeds,
    value,
)

X = [value("x", [2, 3])]
Y = [value("y", [2, 3])]
MAIN, OTHER = helper.make_opsetid("", 17), helper.make_opsetid("other", 1)
LOCAL = helper.make_opsetid("local", 1)


def referring(op_type: str, inputs: list[str], outputs: list[str], **references: str) -> onnx.NodeProto:
    """Returns a node whose attributes refer to those of the function around it."""
    made = node(op_type, inputs, outputs)
    for name, parameter in references.items():
        made.attribute.append(AttributeProto(name=name, ref_attr_name=parameter, type=AttributeProto.FLOAT))
    return made


def with_functions(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto], inputs: list[onnx.ValueInfoProto] = X
) -> onnx.ModelProto:
    return make_model(nodes, inputs, Y, functions=functions, domains={"local": 1, "other": 1})


def attribute_parameters() -> onnx.ModelProto:
    """Returns a model of a function with two attributes, one without and one with a default."""
    body = [
        referring("LeakyRelu", ["a"], ["t"], alpha="slope"),
        referring("Elu", ["t"], ["b"], alpha="curve"),
    ]  # fmt: skip
    leaky = helper.make_function("local", "Leaky", ["a"], ["b"], body, [MAIN], ["slope"])
    leaky.attribute_proto.append(helper.make_attribute("curve", 0.25))
    calls = [
        node("Leaky", ["x"], ["t"], domain="local", slope=0.5),
        node("Leaky", ["t"], ["y"], domain="local", slope=-2.0, curve=3.0),
    ]  # fmt: skip
    return with_functions(calls, [leaky])


def functions_in_functions() -> onnx.ModelProto:
    """Returns a model whose function calls one of another domain several times, with values of equal names."""
    square = [node("Mul", ["a", "a"], ["t"]), node("Neg", ["t"], ["b"])]
    inner = helper.make_function("other", "Inner", ["a"], ["b"], square, [MAIN])
    calls = [
        node("Inner", ["a"], ["t"], domain="other"),
        node("Inner", ["t"], ["u"], domain="other"),
        node("Add", ["u", "a"], ["b"]),
    ]
    outer = helper.make_function("local", "Outer", ["a"], ["b"], calls, [MAIN, OTHER])
    return with_functions(
        [node("Outer", ["x"], ["t"], domain="local"), node("Outer", ["t"], ["y"], domain="local")], [inner, outer]
    )


def functions_in_branches() -> onnx.ModelProto:
    """Returns a model whose functions are called inside an If, read captured values, and contain an If."""
    half = helper.make_function("local", "Half", ["a"], ["b"], [
        node("Constant", [], ["two"], value=helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])),
        node("Div", ["a", "two"], ["b"]),
    ], [MAIN])  # fmt: skip

    def branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [value(name, [2, 3])])

    choice = node(
        "If", ["c"], ["b"], then_branch=branch("p", [node("Half", ["a"], ["p"], domain="local")]),
        else_branch=branch("q", [node("Neg", ["a"], ["q"])]),
    )  # fmt: skip
    choose = helper.make_function("local", "Choose", ["c", "a"], ["b"], [choice], [MAIN, LOCAL])
    outer = node(
        "If", ["flag"], ["t"], then_branch=branch("r", [node("Half", ["x"], ["r"], domain="local")]),
        else_branch=branch("s", [node("Choose", ["flag", "x"], ["s"], domain="local")]),
    )  # fmt: skip
    nodes = [outer, node("Choose", ["flag", "t"], ["y"], domain="local")]
    return with_functions(nodes, [half, choose], [*X, value("flag", [], TensorProto.BOOL)])


def optional_parameters() -> onnx.ModelProto:
    """Returns a model with a call that leaves out an input of a function."""
    clip = [node("Clip", ["a", "low", "high"], ["b"])]
    bound = helper.make_function("local", "Bound", ["a", "low", "high"], ["b"], clip, [MAIN])
    top = node("Constant", [], ["top"], value_float=0.25)
    return with_functions([top, node("Bound", ["x", "", "top"], ["y"], domain="local")], [bound])


def large_constants() -> onnx.ModelProto:
    """Returns a model with a large weight inside a function."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 500], normal(1500))
    body = [
        node("Constant", [], ["w"], value=weight), node("MatMul", ["a", "w"], ["t"]),
        node("ReduceSum", ["t"], ["b"]),
    ]  # fmt: skip
    total = helper.make_function("local", "Total", ["a"], ["b"], body, [MAIN])
    return with_functions([node("Total", ["x"], ["t"], domain="local"), node("Add", ["x", "t"], ["y"])], [total])


BUILDERS: tuple[Callable[[], onnx.ModelProto], ...] = (
    attribute_parameters, functions_in_functions, functions_in_branches, optional_parameters, large_constants,
)  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("build", BUILDERS)
def test_functions_compute_the_same_inlined(build: Callable[[], onnx.ModelProto], level: str) -> None:
    model = build()
    for flag in (True, False):
        feeds = random_feeds(model) | ({"flag": np.array(flag)} if len(model.graph.input) > 1 else {})
        exported = assert_round_trip(model, feeds, level)
        assert not exported.functions
        assert all(each.domain == "" for each in exported.graph.node)


@pytest.mark.parametrize("function_opset", [14, 17, 18])
def test_functions_of_another_opset_are_inlined(function_opset: int) -> None:
    """They are inlined if their operators are the same in both opsets."""
    inner = [node("Mul", ["a", "a"], ["t"]), node("Add", ["t", "a"], ["b"])]
    scale = helper.make_function("local", "Scale", ["a"], ["b"], inner, [helper.make_opsetid("", function_opset)])
    calls = [node("Scale", ["x"], ["t"], domain="local"), node("Scale", ["t"], ["y"], domain="local")]
    model = make_model(calls, X, Y, functions=[scale], domains={"local": 1})
    for level in LEVELS:
        exported = assert_round_trip(model, clean=level)
        assert operators(exported) == ["Mul", "Add", "Mul", "Add"]
        assert [entry.domain for entry in exported.opset_import] == [""]
