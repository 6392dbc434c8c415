"""Twists that put rare constructs behind a value: control flow, sequences, optional values, functions, quantisation.

Each changes a model, keeps it valid, and returns whether it could be applied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.attack.bodies import DTYPES, FLOAT, ROWS, WIDTH


def _matrix_output(model: onnx.ModelProto) -> onnx.ValueInfoProto | None:
    """Returns an output [ROWS, WIDTH] that a node of the graph computes."""
    made = {name for node in model.graph.node for name in node.output}
    shape = [ROWS, WIDTH]
    found = (v for v in model.graph.output if [d.dim_value for d in v.type.tensor_type.shape.dim] == shape)
    return next((value for value in found if value.name in made), None)


def _behind(
    model: onnx.ModelProto, rng: np.random.Generator, make: Callable[[str, str, int], list[onnx.NodeProto]]
) -> bool:
    """Puts operators behind an output, whose name goes to their result."""
    value = _matrix_output(model)
    if value is None:
        return False
    inner = f"{value.name}_before"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [inner if name == value.name else name for name in names]
    model.graph.node.extend(make(inner, value.name, value.type.tensor_type.elem_type))
    return True


def _value(name: str, dtype: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [ROWS, WIDTH])


def in_branches(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """An If on a computed condition, whose branches have double negations and read outer values."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        def branch(name: str, last: str) -> onnx.GraphProto:
            nodes = [
                helper.make_node("Neg", [inner], [f"{name}a"]),
                helper.make_node("Neg", [f"{name}a"], [f"{name}b"]),
                helper.make_node(last, [f"{name}b"], [f"{name}c"]),
            ]
            return helper.make_graph(nodes, name, [], [_value(f"{name}c", dtype)])

        return [
            helper.make_node("ReduceMax", [inner], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["yes"], to=TensorProto.BOOL),
            helper.make_node("If", ["yes"], [outer], then_branch=branch("t", "Relu"), else_branch=branch("e", "Abs")),
        ]

    return _behind(model, rng, make)


def in_a_loop(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A Loop of three iterations that carries a value and collects another one."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        nodes = [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Neg", ["carried"], ["n"]),
            helper.make_node("Neg", ["n"], ["p"]),
            helper.make_node("Mul", ["p", inner], ["q"]),
            helper.make_node("Tanh", ["q"], ["next"]),
        ]
        scalars = [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ]
        results = [helper.make_tensor_value_info("still", TensorProto.BOOL, []), _value("next", dtype)]
        body = helper.make_graph(nodes, "body", [*scalars, _value("carried", dtype)], results)
        model.graph.initializer.append(numpy_helper.from_array(np.array(3), "times"))
        return [helper.make_node("Loop", ["times", "", inner], [outer], body=body)]

    return _behind(model, rng, make)


def in_a_sequence(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A value that goes through a sequence and comes out twice as long, then halved."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        model.graph.initializer.append(numpy_helper.from_array(np.array(1), "second"))
        return [
            helper.make_node("Relu", [inner], ["rectified"]),
            helper.make_node("SequenceConstruct", [inner, "rectified"], ["both"]),
            helper.make_node("SequenceAt", ["both", "second"], [outer]),
        ]

    return _behind(model, rng, make)


def as_an_optional(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A value that is wrapped as optional and taken out again."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Optional", [inner], ["maybe"]),
            helper.make_node("OptionalGetElement", ["maybe"], [outer]),
        ]

    return _behind(model, rng, make)


def in_a_function(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A local function with an attribute that its node refers to, called twice with different values."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        leaky = helper.make_node("LeakyRelu", ["b"], ["c"])
        leaky.attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
        nodes = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Neg", ["n"], ["b"]), leaky]
        opsets = list(model.opset_import)
        function = helper.make_function("mine", "leak", ["a"], ["c"], nodes, opsets, ["slope"])
        model.functions.append(function)
        model.opset_import.append(helper.make_opsetid("mine", 1))
        return [
            helper.make_node("leak", [inner], ["leaked"], domain="mine", slope=-0.5),
            helper.make_node("leak", ["leaked"], [outer], domain="mine", slope=0.25),
        ]

    return _behind(model, rng, make)


def quantised(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A value that is quantised to eight bits and back."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        if dtype != FLOAT:
            return [helper.make_node("Identity", [inner], [outer])]
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0.05), "scale"))
        model.graph.initializer.append(numpy_helper.from_array(np.int8(3), "zero"))
        return [
            helper.make_node("QuantizeLinear", [inner, "scale", "zero"], ["codes"]),
            helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], [outer]),
        ]

    return _behind(model, rng, make)


def in_nested_branches(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """An If within an If; the inner one reads an initializer of the outer branch and a value of the graph."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        def alone(name: str, *operators: str) -> onnx.GraphProto:
            names = [inner, *(f"{name}{k}" for k in range(len(operators)))]
            nodes = [helper.make_node(op, [names[k]], [names[k + 1]]) for k, op in enumerate(operators)]
            return helper.make_graph(nodes, name, [], [_value(names[-1], dtype)])

        weight = numpy_helper.from_array(np.full(WIDTH, 2.0, DTYPES[dtype]), "within")
        nodes = [
            helper.make_node("Add", [inner, "within"], ["raised"]),
            helper.make_node(
                "If", ["yes"], ["chosen"], then_branch=alone("a", "Neg", "Neg"), else_branch=alone("b", "Relu", "Relu")
            ),
            helper.make_node("Mul", ["chosen", "raised"], ["scaled"]),
        ]
        deep = helper.make_graph(nodes, "deep", [], [_value("scaled", dtype)], [weight])
        return [
            helper.make_node("ReduceSum", [inner], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["yes"], to=TensorProto.BOOL),
            helper.make_node("If", ["yes"], [outer], then_branch=deep, else_branch=alone("c", "Abs")),
        ]

    return _behind(model, rng, make)


def in_a_scan(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A Scan over the rows that sums them up."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        row = [helper.make_tensor_value_info(name, dtype, [WIDTH]) for name in ("state", "row", "total", "kept")]
        nodes = [
            helper.make_node("Add", ["state", "row"], ["total"]),
            helper.make_node("Tanh", ["total"], ["kept"]),
        ]
        body = helper.make_graph(nodes, "step", row[:2], row[2:])
        start = numpy_helper.from_array(np.zeros(WIDTH, DTYPES[dtype]), "start")
        model.graph.initializer.append(start)
        return [helper.make_node("Scan", ["start", inner], ["", outer], body=body, num_scan_inputs=1)]

    return _behind(model, rng, make)


def through_no_elements(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A value is joined with its first zero rows."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "nothing"))
        model.graph.initializer.append(numpy_helper.from_array(np.array([ROWS]), "everything"))
        return [
            helper.make_node("Slice", [inner, "nothing", "nothing"], ["empty"]),
            helper.make_node("Relu", ["empty"], ["empty too"]),
            helper.make_node("Concat", ["empty too", inner], [outer], axis=0),
        ]

    return _behind(model, rng, make)


def as_a_sequence_output(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A sequence of values is an output of the model."""
    value = _matrix_output(model)
    if value is None:
        return False
    model.graph.node.append(helper.make_node("Neg", [value.name], ["negated"]))
    model.graph.node.append(helper.make_node("SequenceConstruct", [value.name, "negated"], ["list"]))
    dtype = value.type.tensor_type.elem_type
    model.graph.output.append(helper.make_tensor_sequence_value_info("list", dtype, None))
    return True


def in_nested_functions(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A function that calls another one with its own attribute, which has a default; and one that nothing calls."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        elu = helper.make_node("Elu", ["a"], ["b"])
        elu.attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
        call = helper.make_node("deep", ["a"], ["b"], domain="mine")
        call.attribute.append(AttributeProto(name="slope", ref_attr_name="slant", type=AttributeProto.FLOAT))
        opsets = [*model.opset_import, helper.make_opsetid("mine", 1)]
        default = [helper.make_attribute("slant", 0.5)]
        model.functions.extend(
            [
                helper.make_function("mine", "deep", ["a"], ["b"], [elu], opsets, ["slope"]),
                helper.make_function("mine", "call", ["a"], ["b"], [call], opsets, [], default),
                helper.make_function("mine", "unused", ["a"], ["b"], [call], opsets, ["slant"]),
            ]
        )
        model.opset_import.append(helper.make_opsetid("mine", 1))
        return [
            helper.make_node("call", [inner], ["called"], domain="mine"),
            helper.make_node("call", ["called"], [outer], domain="mine", slant=2.0),
        ]

    return _behind(model, rng, make)


def quantised_weights(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A product with a weight of eight bits, which has a scale for each column."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        codes = rng.integers(-128, 128, (WIDTH, WIDTH)).astype(np.int8)
        for name, array in {
            "codes": codes,
            "scales": rng.uniform(0.001, 0.01, WIDTH).astype(np.float32),
            "zeros": np.zeros(WIDTH, np.int8),
        }.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return [
            helper.make_node("DequantizeLinear", ["codes", "scales", "zeros"], ["kernel 32"], axis=1),
            helper.make_node("Cast", ["kernel 32"], ["kernel"], to=dtype),
            helper.make_node("MatMul", [inner, "kernel"], [outer]),
        ]

    return _behind(model, rng, make)


def through_a_narrow_type(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A value that is rounded to float16 and goes on in its own type."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Cast", [inner], ["narrow"], to=TensorProto.FLOAT16),
            helper.make_node("Neg", ["narrow"], ["narrow too"]),
            helper.make_node("Neg", ["narrow too"], ["narrow again"]),
            helper.make_node("Cast", ["narrow again"], [outer], to=dtype),
        ]

    return _behind(model, rng, make)


def by_extreme_constants(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Products with constants whose product is 1, but overflows or underflows on the way."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        large = {"float16": 1e4, "float64": 1e200}.get(np.dtype(DTYPES[dtype]).name, 1e25)
        first, second = (large, 1 / large) if rng.random() < 0.5 else (1 / large, large)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(first, DTYPES[dtype]), "first"))
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(second, DTYPES[dtype]), "second"))
        return [
            helper.make_node("Mul", [inner, "first"], ["far"]),
            helper.make_node("Mul", ["far", "second"], [outer]),
        ]

    return _behind(model, rng, make)


def behind_a_mask(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A mask of infinities is added before a Softmax."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        mask = np.where(rng.random((ROWS, WIDTH)) < 0.4, -np.inf, 0.0)
        mask[:, 0] = 0.0
        model.graph.initializer.append(numpy_helper.from_array(mask.astype(DTYPES[dtype]), "mask"))
        return [
            helper.make_node("Add", [inner, "mask"], ["masked"]),
            helper.make_node("Softmax", ["masked"], [outer], axis=1),
        ]

    return _behind(model, rng, make)


def by_computed_shapes(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """A Reshape to a shape that operators compute, as exporters write it."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        for name, number in {"at 0": 0, "at 1": 1}.items():
            model.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
        return [
            helper.make_node("Shape", [inner], ["extents"]),
            helper.make_node("Gather", ["extents", "at 0"], ["rows"]),
            helper.make_node("Gather", ["extents", "at 1"], ["columns"]),
            helper.make_node("Concat", ["columns", "rows"], ["turned"], axis=0),
            helper.make_node("Reshape", [inner, "turned"], ["reshaped"]),
            helper.make_node("Reshape", ["reshaped", "extents"], [outer]),
        ]

    return _behind(model, rng, make)


def with_integers(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """The largest numbers and their places are outputs, and so is the number of elements."""
    value = _matrix_output(model)
    if value is None:
        return False
    dtype = value.type.tensor_type.elem_type
    model.graph.initializer.append(numpy_helper.from_array(np.array([3]), "three"))
    model.graph.node.append(helper.make_node("TopK", [value.name, "three"], ["tops", "places"], axis=1))
    model.graph.node.append(helper.make_node("Size", [value.name], ["size"]))
    model.graph.output.append(helper.make_tensor_value_info("tops", dtype, [ROWS, 3]))
    model.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, [ROWS, 3]))
    model.graph.output.append(helper.make_tensor_value_info("size", TensorProto.INT64, []))
    return True


def with_empty_names(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Optional operands and results that are left out by an empty name."""

    def make(inner: str, outer: str, dtype: int) -> list[onnx.NodeProto]:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(0.75, DTYPES[dtype]), "most"))
        return [
            helper.make_node("Clip", [inner, "", "most"], ["cut"]),
            helper.make_node("Dropout", ["cut", "", ""], ["left", ""]),
            helper.make_node("Clip", ["left", "", ""], [outer]),
        ]

    return _behind(model, rng, make)


def at_random(model: onnx.ModelProto, rng: np.random.Generator) -> bool:
    """Noise is an output, so that nobody can compare it."""
    value = _matrix_output(model)
    if value is None:
        return False
    model.graph.node.append(helper.make_node("RandomNormalLike", [value.name], ["noise"]))
    model.graph.output.append(_value("noise", value.type.tensor_type.elem_type))
    return True


CONSTRUCTS = (
    *(in_branches, in_nested_branches, in_a_loop, in_a_scan, in_a_sequence, as_an_optional, as_a_sequence_output),
    *(in_a_function, in_nested_functions, quantised, quantised_weights, through_a_narrow_type, by_extreme_constants),
    *(behind_a_mask, by_computed_shapes, through_no_elements, with_integers, with_empty_names, at_random),
)
NOT_CONVERTED = {
    each.__name__
    for each in (in_branches, in_nested_branches, in_a_loop, in_a_scan, in_a_function, in_nested_functions)
}
"""Names of twists after which onnx's own converter of opsets ends the process or changes the model."""
