"""Inputs found by tests/fuzz that once broke the engine or the reader of models.

Comments and docstrings in the past tense describe the former defects.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from taso_ext import CostModel, Graph, GraphBuilder, ModelError, OnnxModel, RuleSet, State, search_beam, search_taso
from tests.taso_ext.samples.onnx_cases import node, value

FLOAT = 1
RULE = "rule r\n  var x: any[...s]\n  source y = Relu(x)\n"


def graph_of(op_type: str, attributes: dict[str, Any], *shapes: list[int], outputs: int = 1) -> Graph:
    """Returns a graph of one operator on inputs of these shapes; its outputs are declared as scalars."""
    builder = GraphBuilder()
    inputs = [builder.input(f"x{i}", FLOAT, shape) for i, shape in enumerate(shapes)]
    for made in builder.node("", op_type, attributes, inputs, [("", FLOAT, [])] * outputs):
        builder.output(made)
    return builder.build()


def state_of(graph: Graph, rules: RuleSet | None = None) -> State:
    return State(graph, rules or RuleSet.default(), CostModel.roofline("xeon"))


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        # The search from results back to their operands never ended.
        ("var x: any\n source y, z = Split(y; axis=0, split=[1, 1])\n target y = x; z = x", "reads 'y' above"),
        ("var x: any\n source y = Add(z, x); z = Add(y, x)\n target y = x; z = x", "'z' is not defined"),
        # A tensor that the source does not define was looked up among those that it defines.
        ("var x: any\n target q = Relu(x); y = Tanh(x)\n source y = Relu(q)", "reads 'q' above"),
        # A variable has no place among the source's operators.
        ("var x: any\n source y = Relu(x)\n unordered x, y\n target y = x", "'x', which is not a result"),
        # Instances with this many elements were tried, and numbers above 2^31 became other numbers.
        ("var *x: any\n least 99999999999999\n source y = Concat(*x; axis=0)\n target y = Concat(*x; axis=0)", "least"),
        ("var *x: any\n least 0\n source y = Concat(*x; axis=0)\n target y = Concat(*x; axis=0)", "least"),
        # The order in which the attributes were sorted decided which of the two counted.
        (
            "var x: any\n source y = Softmax(x; axis=a, axis=b)\n target y = Softmax(x; axis=a)",
            "'axis' is written twice",
        ),
        # The target read an operator that the source had not stored.
        ("var x: any\n op f: Relu | Tanh\n source y = Exp(x)\n target y = f(x)", "'f' is not bound by the source"),
        ("var x: any\n source y = Relu(x; @a, @b)\n target y = Relu(x; @a)", "'@' once"),
    ],
)
def test_rules_that_mean_nothing_are_refused(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RuleSet.parse(f"rule r\n {rule}\n")


def test_a_rule_whose_operators_read_twice_what_is_above_is_planned_in_time() -> None:
    """Tracing every path to the variable took 2^40 steps."""
    chain = "\n".join(f"y{i + 1} = Add(y{i}, y{i})" for i in range(40))
    rules = RuleSet.parse(f"rule r\n var y0: any\n source {chain}\n target y40 = Relu(y0); y39 = Tanh(y0)\n")
    assert rules.names == ["r"]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("prod([4194304, 4194304, 1048576]) == 0", False),  # 2^64
        ("sum([9000000, 9000000, 9000000] * 1000000000000) < 0", False),
        ("4600000 * 1000000000000 % (4900000 * 1000000000000) == 4600000 * 1000000000000", True),
        # The smallest 64-bit integer cannot be negated.
        ("-(0 - 9223372036 * 1000000000 - 854775808) < 0", False),
        ("prod([3, 4]) == 12 and sum([3, 4]) == 7 and (0 - 7) % 3 == 2 and -(-5) == 5", True),
    ],
)
def test_expressions_that_overflow_do_not_hold(condition: str, holds: bool) -> None:
    rules = RuleSet.parse(f"{RULE}  where {condition}\n  target y = Tanh(x)\n")
    assert (rules.instance(0, 0) is not None) == holds


@pytest.mark.parametrize("shape", ["999999999999999, 999999999999999", "999999999999999"])
def test_no_instance_is_made_of_tensors_too_large_to_evaluate(shape: str) -> None:
    """The product of the extents overflowed 64 bits, or all divisors of the extents were listed."""
    rules = RuleSet.parse(
        f"rule r\n var x: any[{shape}]\n source y = Reshape(x; shape=s)\n target y = Reshape(x; shape=s)\n"
    )
    assert rules.instance(0, 0) is None


@pytest.mark.parametrize("huge", [2**62, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(
    ("op_type", "attributes", "shapes"),
    [
        ("Conv", {"dilations": 1, "group": 1, "kernel_shape": 3, "pads": 0, "strides": 1}, ([1, 2, 5], [2, 2, 3])),
        ("Pad", {"mode": "constant", "pads": 0, "value": 0.0}, ([5],)),
        ("Slice", {"axes": 0, "ends": 4, "starts": 1, "steps": 1}, ([5],)),
        ("Split", {"axis": 0, "split": 3}, ([6],)),
        ("Reshape", {"shape": 3}, ([0],)),
        ("Concat", {"axis": 0}, ([2], [3])),
        ("Transpose", {"perm": 0}, ([2],)),
        ("ReduceSum", {"axes": 0, "keepdims": 1}, ([2],)),
        ("MaxPool", {"kernel_shape": 3, "pads": 0, "strides": 1}, ([1, 2, 5],)),
    ],
)
def test_no_attribute_overflows_the_arithmetic_of_shapes_and_prices(
    op_type: str, attributes: dict[str, Any], shapes: tuple[list[int], ...], huge: int
) -> None:
    """Each attribute in turn is huge, as a number and in lists of up to four; `make sanitize` detects overflows."""
    scalars = ("axis", "group", "keepdims", "mode", "value")
    usual = {name: value if name in scalars else [value] for name, value in attributes.items()}
    for name in usual:
        for absurd in (huge, *([huge] * length for length in range(5))):
            cost = state_of(graph_of(op_type, {**usual, name: absurd}, *shapes)).cost
            assert math.isfinite(cost.ms) and cost.ms >= 0
            assert math.isfinite(cost.flops) and cost.flops >= 0


def test_a_price_is_no_less_than_nothing_whatever_a_kernel_is_called() -> None:
    pooled = state_of(graph_of("MaxPool", {"kernel_shape": [-3]}, [1, 1, 4])).cost
    assert pooled.flops >= 0 and state_of(graph_of("MaxPool", {"kernel_shape": [2**62] * 40}, [4])).cost.ms < math.inf


def test_split_on_an_axis_before_the_first_is_priced() -> None:
    """The engine read memory before the first extent."""
    assert state_of(graph_of("Split", {"axis": -(2**62), "split": [1, 1]}, [1, 2], outputs=2)).cost.ms >= 0


def test_a_rewrite_through_a_tensor_beyond_the_limit_is_not_legal() -> None:
    """Pricing a tensor of twice the largest size overflowed."""
    rules = RuleSet.parse(
        "rule r\n var x: any[n]\n source y = Relu(x)\n"
        " target c = Concat(x, x; axis=0); s, t = Split(c; axis=0, split=[n, n]); y = Tanh(s)\n"
    )
    for extent, legal in ((4, 1), (10**15, 0)):
        builder = GraphBuilder()
        made = builder.node("", "Relu", {}, [builder.input("x", FLOAT, [extent])], [("y", FLOAT, [extent])])
        builder.output(made[0])
        assert len(state_of(builder.build(), rules).legal_actions()) == legal


@pytest.mark.parametrize(
    "attributes",
    [{"a": 2**64}, {"a": [1, 2**64]}, {"a": [1, "b"]}, {"a": [1.0, None]}, {"a": ["b", 1]}, {3: 1}, {"a": "\ud800"}],
)
def test_attributes_that_the_engine_cannot_hold_are_named(attributes: dict[str, Any]) -> None:
    builder = GraphBuilder()
    with pytest.raises(ValueError, match=r"attribute '?[a3]'?: expected"):
        builder.node("", "Relu", attributes, [builder.input("x", FLOAT, [2])], [("y", FLOAT, [2])])


def test_a_memory_limit_beyond_any_machine_is_none() -> None:
    """The search reserved memory for its whole queue at once."""
    state = state_of(graph_of("Relu", {}, [2]))
    for search in (search_taso, search_beam):
        assert search(state, memory_bytes=2**63 - 1).stop_reason == "exhausted"


@pytest.mark.parametrize("max_locations", [-1, 2**31 - 1, 2**40])
def test_numbers_of_locations_that_fit_no_mask_are_refused(max_locations: int) -> None:
    with pytest.raises(ValueError, match="max_locations must lie in"):
        State(graph_of("Relu", {}, [2]), RuleSet.default(), CostModel.roofline("xeon"), max_locations)


def test_messages_quote_no_more_than_the_beginning_of_what_came() -> None:
    with pytest.raises(ValueError) as error:
        RuleSet.parse(f"rule r\n  var x: {'a' * 10**6}\n")
    assert len(str(error.value)) < 1000


X, Y = [value("x", [2])], [value("y", [2])]
LOCAL = helper.make_opsetid("local", 1)


def unchecked(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto] = X,
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, Y, initializers)
    imports = [helper.make_opsetid("", opset), LOCAL]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [], ir_version=8)


def calling(functions: int, calls: int) -> onnx.ModelProto:
    """Returns a model of local functions; the first is a Relu, each other one calls the one before it `calls` times."""
    opsets = [helper.make_opsetid("", 17), LOCAL]
    made = [helper.make_function("local", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opsets)]
    for i in range(1, functions):
        names = ["a", *(f"t{call}" for call in range(1, calls)), "b"]
        steps = [node(f"F{i - 1}", [names[k]], [names[k + 1]], domain="local") for k in range(calls)]
        made.append(helper.make_function("local", f"F{i}", ["a"], ["b"], steps, opsets))
    call = node(f"F{functions - 1}", ["x"], ["y"], domain="local")
    return unchecked([call], functions=made)


def two_inputs_of_one_name() -> onnx.ModelProto:
    """Returns a model with two inputs 'w' of one default, which was removed at the first and missing at the second."""
    defaults = {"w": np.ones(2, np.float32)}
    return unchecked([node("Add", ["x", "w"], ["y"])], [*X, value("w", [2]), value("w", [2])], defaults)


def small_weight_with_two_kinds_of_data() -> onnx.ModelProto:
    """Returns a model with a damaged weight; only larger weights were checked before onnx's checker read them."""
    model = unchecked([node("Add", ["x", "w"], ["y"])])
    weight = {"data_type": onnx.TensorProto.INT64, "dims": [1], "int64_data": [1], "int32_data": [1]}
    model.graph.initializer.add(name="w", **weight)
    return model


def two_functions_of_one_name() -> onnx.ModelProto:
    model = calling(1, 1)
    model.functions.append(model.functions[0])
    return model


def older(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives a model an IR version without functions; onnx's checker then ignores them, but shape inference does not."""
    model.ir_version = 7
    return model


def operator_that_calls_itself() -> onnx.ModelProto:
    opset = helper.make_opsetid("", 17)
    function = helper.make_function("", "Relu", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [opset])
    return unchecked([node("Relu", ["x"], ["y"])], functions=[function])


def expanded(entries: int) -> onnx.ModelProto:
    """Returns a model that expands to `entries` dimensions; before opset 13, shape inference creates each of them."""
    shape = value("shape", [entries], onnx.TensorProto.INT64)
    return unchecked([node("Expand", ["x", "shape"], ["y"])], [*X, shape], opset=9)


def expanded_to_a_computed_shape(entries: int) -> onnx.ModelProto:
    nodes = [node("ConstantOfShape", ["entries"], ["shape"]), node("Expand", ["x", "shape"], ["y"])]
    return unchecked(nodes, weights={"entries": np.array([entries])}, opset=9)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (two_inputs_of_one_name(), "onnx.checker reports"),
        (small_weight_with_two_kinds_of_data(), "'w' is damaged"),
        (two_functions_of_one_name(), "multiple local functions"),
        (calling(30, 2), "inlining them makes 536,870,912 nodes; at most"),
        (calling(200, 1), "depth exceeds limit"),
        (older(operator_that_calls_itself()), "'Relu' that calls itself"),
        (older(two_functions_of_one_name()), "multiple local functions"),
        (expanded(2**31 - 1), "shape 'shape' of 2,147,483,647 entries"),
        (expanded_to_a_computed_shape(2**40), "shape 'shape' of 1,099,511,627,776 entries"),
    ],
)
def test_models_that_mean_nothing_or_take_forever_are_refused(model: onnx.ModelProto, reason: str) -> None:
    for source in (model, model.SerializeToString()):
        with pytest.raises(ModelError, match=reason):
            OnnxModel.load(source)


def test_models_just_below_the_limits_are_read() -> None:
    assert OnnxModel.load(calling(4, 3), clean="none").graph.num_runtime_nodes == 27
    assert OnnxModel.load(expanded(1), clean="none").graph.num_runtime_nodes == 1
