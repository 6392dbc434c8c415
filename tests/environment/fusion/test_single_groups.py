"""Groups by themselves: both models compute the same, prices of one kernel, and shapes that are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from environment import zoo
from environment.fusion import FusionGraph
from environment.fusion.single_groups import SingleGroup, single_groups
from environment.measurement.effort import Effort
from environment.verification import verify
from taso_ext import FusionPlan, OnnxModel

NAMES = ("bert-base-tiny", "mnasnet-tiny", "ssd-mobilenet-tiny", "dlrm-tiny")


def groups_of(name: str) -> list[SingleGroup]:
    model = OnnxModel.load(zoo.build(name))
    return single_groups(model.export_checked(model.graph))


@pytest.mark.parametrize("name", NAMES)
def test_both_models_of_a_group_compute_the_same(name: str) -> None:
    found = groups_of(name)
    assert found
    for group in found:
        assert [node.op_type for node in group.fused.skeleton.graph.node] == [group.fused_operator]
        assert "+".join(node.op_type for node in group.unfused.skeleton.graph.node) == group.kind
        assert verify(group.unfused, group.fused).equal


@pytest.mark.parametrize("name", NAMES)
def test_one_kernel_is_predicted_to_be_cheaper_by_its_launches_at_least(name: str) -> None:
    for group in groups_of(name):
        apart, together = group.predicted_ms("xeon")
        graph = FusionGraph.of(OnnxModel.load(group.unfused.to_proto(), clean="none").graph, "xeon")
        plan = FusionPlan(graph.problem, np.zeros(len(graph.problem), np.uint8))
        saved_launches = len(plan.kernels()) - 1
        assert saved_launches == group.kind.count("+")
        assert apart - together > 0.99 * saved_launches * graph.problem.constants["launch_ms"]


def test_equal_groups_are_one_and_shapes_are_told_apart() -> None:
    found = groups_of("bert-base-tiny")
    assert len({group.signature for group in found}) == len(found)
    assert {group.signature for group in found} == {group.signature for group in groups_of("bert-base-tiny")}
    two_layers = OnnxModel.load(zoo.build("bert-base-tiny"))
    assert len(two_layers.graph.nodes()) > 4 * len(found)  # layers repeat, and their groups are listed once


def test_the_bytes_are_those_of_inner_results() -> None:
    (group,) = [each for each in groups_of("dlrm-tiny") if each.kind == "Gemm+Sigmoid"]
    assert group.inner_bytes == 4 * np.prod(group.unfused.types[group.unfused.skeleton.graph.output[0].name].dims)


def test_a_group_is_timed_against_its_fused_operator() -> None:
    group = groups_of("dlrm-tiny")[0]
    timing = group.timed(Effort(resolution=None, pairs=3, sessions=1, control=False))
    assert timing.pairs == 3 and timing.ratio.value > 0
    assert (
        "optimisation disabled" in timing.reference.runtime and "optimisation disabled" in timing.candidates[0].runtime
    )
