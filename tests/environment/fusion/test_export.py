"""Exported plans: annotations are the plan's kernels, and fused operators compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from environment.fusion import RANDOM, FusionGraph
from environment.fusion.export import KERNELS, MICROSOFT, annotated, kernels_by_value, with_fused_operators
from environment.verification import verify
from taso_ext import OnnxModel


def model_of(name: str) -> tuple[OnnxModel, FusionGraph]:
    model = OnnxModel.load(zoo.build(name))
    return model, FusionGraph.of(model.graph, "v100", name)


def kernels_in(node: onnx.NodeProto) -> list[str]:
    return [root for prop in node.metadata_props if prop.key == KERNELS for root in prop.value.split(",")]


@pytest.mark.parametrize("start", ["default", RANDOM])
@pytest.mark.parametrize("name", ["bert-base-tiny", "nasrnn-tiny", "squeezenet1.1-tiny"])
def test_annotations_are_the_kernels_of_the_plan(name: str, start: str) -> None:
    model, graph = model_of(name)
    plan = graph.start(start, 1)
    written = annotated(model, graph, plan)
    by_node = {output: kernels_in(node) for node in written.skeleton.graph.node for output in node.output}
    expected = kernels_by_value(model, graph, plan)
    assert expected.keys() <= by_node.keys()
    for value, roots in expected.items():
        assert set(by_node[value]) >= set(roots)
    roots = {root for found in expected.values() for root in found}
    assert len(roots) == len(graph.kernels(plan)) and all(root in by_node[root] for root in roots)


@pytest.mark.parametrize("name", ["bert-base-tiny", "squeezenet1.1-tiny"])
def test_fused_operators_compute_the_same(name: str) -> None:
    model, graph = model_of(name)
    plan = graph.start()
    plan[graph.configurable] = 1
    written, count = with_fused_operators(annotated(model, graph, plan))
    fused = [node.op_type for node in written.skeleton.graph.node if node.domain == MICROSOFT]
    assert count == len(fused) > 0
    found = verify(model.source, written)
    assert found.equal, found.reason


def convolution(*, fused: bool) -> tuple[int, list[str]]:
    """Exports Conv and LeakyRelu; returns the number of fused operators and the types of all operators."""
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])]
    nodes = [conv, helper.make_node("LeakyRelu", ["c"], ["y"], alpha=0.3)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    whole = helper.make_graph(nodes, "g", [x], outputs, [weight])
    model = OnnxModel.load(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)]))
    graph = FusionGraph.of(model.graph, "v100")
    plan = graph.start() if fused else np.zeros(len(graph.problem), np.uint8)
    written, count = with_fused_operators(annotated(model, graph, plan))
    assert verify(model.source, written).equal  # with the slope that is not the default
    return count, [node.op_type for node in written.skeleton.graph.node]


def test_only_groups_of_one_kernel_become_one_operator() -> None:
    assert convolution(fused=True) == (1, ["FusedConv"])
    assert convolution(fused=False) == (0, ["Conv", "LeakyRelu"])
