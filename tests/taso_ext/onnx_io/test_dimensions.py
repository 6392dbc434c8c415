"""Dimensions may stay open if no price depends on them; otherwise the error names the flag to give."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from environment.verification import verify
from taso_ext import CostModel, ModelError, OnnxModel, RuleSet, State
from taso_ext.onnx_io.cleanup.passes import LEVELS
from tests.taso_ext.samples.onnx_cases import assert_same, make_model, node, normal, run, value

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
OPEN = value("x", ["n", None, 4])
STATIC = value("s", [2, 3])


def model(nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], **weights: np.ndarray) -> onnx.ModelProto:
    return make_model(nodes, [OPEN, STATIC], outputs, weights)


def unused() -> onnx.ModelProto:
    return model([node("Relu", ["s"], ["y"])], [value("y", [2, 3])])


def only_its_shape() -> onnx.ModelProto:
    nodes = [node("Shape", ["x"], ["n"]), node("Relu", ["s"], ["y"])]
    return model(nodes, [value("y", [2, 3]), value("n", [3], INT64)])


def its_size_as_a_number() -> onnx.ModelProto:
    nodes = [
        node("Size", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=FLOAT), node("Mul", ["s", "f"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [value("y", [2, 3])])


def dead() -> onnx.ModelProto:
    return model([node("Relu", ["s"], ["y"]), node("Relu", ["x"], ["nobody"])], [value("y", [2, 3])])


def passed_through() -> onnx.ModelProto:
    nodes = [node("Relu", ["s"], ["y"]), node("Identity", ["x"], ["z"])]
    return model(nodes, [value("y", [2, 3]), value("z", ["n", None, 4])])


def annotated_output() -> onnx.ModelProto:
    return make_model([node("Relu", ["s"], ["y"])], [STATIC], [value("y", ["rows", "columns"])])


def rank_of_it() -> onnx.ModelProto:
    """Returns a model that reads only the rank of x, which is known although the sizes are open."""
    nodes = [
        node("Shape", ["x"], ["n"]), node("Shape", ["n"], ["rank"]), node("Cast", ["rank"], ["f"], to=FLOAT),
        node("Add", ["s", "f"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [value("y", [2, 3])])


HARMLESS: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build
    for build in (unused, only_its_shape, its_size_as_a_number, dead, passed_through, annotated_output, rank_of_it)
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", HARMLESS)
def test_irrelevant_dimensions_stay_symbolic(name: str, level: str) -> None:
    given = HARMLESS[name]()
    loaded = OnnxModel.load(given, clean=level)
    exported = loaded.export(loaded.graph)
    assert list(exported.graph.input) == list(given.graph.input)
    assert list(exported.graph.output) == list(given.graph.output)
    for rows in (1, 5):
        feeds = {"x": normal(rows, 2, 4), "s": normal(2, 3)}
        feeds = {each.name: feeds[each.name] for each in given.graph.input}
        assert_same(run(given, feeds), run(exported, feeds))


@pytest.mark.parametrize("name", HARMLESS)
def test_models_with_open_dimensions_can_be_priced_and_verified(name: str) -> None:
    loaded = OnnxModel.load(HARMLESS[name]())
    state = State(loaded.graph, RuleSet.default(), CostModel.roofline("rtx2070"))
    nodes, edges, _ = state.features()
    assert np.isfinite([state.cost.ms, state.cost.flops, state.cost.memory_bytes]).all()
    assert np.isfinite(nodes).all() and np.isfinite(edges).all()
    found = verify(loaded.source, loaded.export_checked(loaded.graph))
    assert found.equal, found.reason


def branch(name: str, read: str) -> onnx.GraphProto:
    return helper.make_graph([node("ReduceSum", [read], [name], keepdims=0)], name, [], [value(name, [])])


TOTAL = node("ReduceSum", ["t"], ["y"], keepdims=0)
RELEVANT: dict[str, list[onnx.NodeProto]] = {
    "computed on": [node("ReduceSum", ["x"], ["y"], keepdims=0)],
    "behind a free operator": [node("Identity", ["x"], ["t"]), TOTAL],
    "size of another value": [node("Shape", ["x"], ["n"]), node("ConstantOfShape", ["n"], ["t"]), TOTAL],
    "target of a reshape": [node("Shape", ["x"], ["n"], start=0, end=2), node("Reshape", ["s", "n"], ["t"]), TOTAL],
    "captured by a branch": [
        node("ReduceSum", ["s"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["flag"], to=BOOL),
        node("If", ["flag"], ["y"], then_branch=branch("a", "x"), else_branch=branch("b", "s")),
    ],
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", RELEVANT)
def test_relevant_dimensions_are_named_with_the_flags_that_help(case: str, level: str) -> None:
    given = model(RELEVANT[case], [value("y", [])])
    with pytest.raises(ModelError) as error:
        OnnxModel.load(given, clean=level)
    flags = set(re.findall(r"--dim (\S+)=1", str(error.value)))
    assert flags == {"n", "x:1"}
    assert "input 'x'" in str(error.value) and "\n" not in str(error.value)
    OnnxModel.load(given, clean=level, dims=dict.fromkeys(flags, 1))


def test_only_the_dimensions_in_the_way_are_asked_for() -> None:
    nodes = [
        node("Shape", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=FLOAT), node("ReduceSum", ["f"], ["r"], keepdims=0),
        node("Mul", ["t", "r"], ["y"]),
    ]  # fmt: skip
    given = make_model(nodes, [OPEN, value("t", ["rows", 3])], [value("y", ["rows", 3])])
    with pytest.raises(ModelError) as error:
        OnnxModel.load(given)
    assert re.findall(r"--dim (\S+)=1", str(error.value)) == ["rows"]
    loaded = OnnxModel.load(given, dims={"rows": 2})
    assert loaded.export(loaded.graph).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_dimensions_inside_containers_can_be_bound() -> None:
    elements = helper.make_tensor_type_proto(FLOAT, ["rows", 3])
    given = make_model(
        [node("ConcatFromSequence", ["q"], ["y"], axis=0)], [value("q", [1])], [value("y", [None, 3])],
    )  # fmt: skip
    given.graph.input[0].CopyFrom(helper.make_value_info("q", helper.make_sequence_type_proto(elements)))
    bound = OnnxModel.load(given, dims={"rows": 2}).source.skeleton.graph.input[0]
    assert bound.type.sequence_type.elem_type.tensor_type.shape.dim[0].dim_value == 2
    OnnxModel.load(given)
