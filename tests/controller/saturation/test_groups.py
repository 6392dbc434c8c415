"""Rules on operators that nothing bounds in number: which of them are joined."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.saturation.config import ExplorationLimits
from controller.saturation.groups import MOST_MEMBERS
from controller.saturation.saturate import Saturated, saturate
from taso_ext import CostModel, Graph, GraphBuilder, RuleSet, State

COSTS = CostModel.roofline("rtx2070")
RULES = RuleSet.default()
SHARING_LHS, SHARING_RHS = ("merge-all-matmuls-sharing-lhs", "merge-all-matmuls-sharing-rhs")
FLOAT = 1
JOINED = 3
"""Operators that a rewrite adds: Concat, MatMul and Split."""


def _explored(graph: Graph, rules: Sequence[str], k_multi: int = 1) -> Saturated:
    limits = ExplorationLimits(k_multi=k_multi)
    return saturate(graph, RULES.restricted(names=set(rules)), COSTS, limits=limits, extraction_seconds=5)


def _products(count: int, inputs: int = 1) -> Graph:
    """Returns the products of so many weights with each of some inputs."""
    builder = GraphBuilder()
    weights = [builder.weight(f"w{number}", f"w{number}", FLOAT, [64, 64]) for number in range(count)]
    for number in range(inputs):
        x = builder.input(f"x{number}", FLOAT, [8, 64])
        for weight in weights:
            builder.output(builder.node("", "MatMul", {}, [x, weight], [("", FLOAT, [8, 64])])[0])
    return builder.build()


def test_all_products_of_one_tensor_are_joined_at_once_as_the_engine_joins_them() -> None:
    graph = _products(5)
    found = _explored(graph, [SHARING_LHS])
    assert found.explored.nodes == 5 + JOINED
    assert found.explored.asked == (1, 1)
    state = State(graph, RULES.restricted(names={SHARING_LHS}), COSTS, 8)
    state.step(*map(int, state.legal_actions()[0]))
    assert found.cost_ms == pytest.approx(state.graph.cost(COSTS).ms)


def test_no_group_is_looked_for_without_k_multi() -> None:
    assert _explored(_products(5), [SHARING_LHS], k_multi=0).explored.nodes == 5


def test_groups_that_share_weights_have_them_in_one_order_so_that_a_second_round_joins_the_groups() -> None:
    graph = _products(4, inputs=3)
    once, twice = (_explored(graph, [SHARING_LHS, SHARING_RHS], k_multi) for k_multi in (1, 2))
    # One Concat of weights is shared by the three groups; by rows, each of four weights has a group of three inputs,
    # whose Concat is shared too.
    assert once.explored.nodes == 12 + (1 + 3 + 3) + (1 + 4 + 4)
    kinds = [node.op_type for node in twice.graph.nodes() if not node.weight_only]
    assert kinds.count("MatMul") == 1
    assert twice.cost_ms < once.cost_ms


def test_products_that_need_each_other_are_not_joined() -> None:
    builder = GraphBuilder()
    weight = builder.weight("w", "w", FLOAT, [64, 64])

    def product(operand: int) -> int:
        return builder.node("", "MatMul", {}, [operand, weight], [("", FLOAT, [8, 64])])[0]

    first = [product(builder.input(f"x{number}", FLOAT, [8, 64])) for number in range(3)]
    for result in first:
        builder.output(product(product(result)))
    found = _explored(builder.build(), [SHARING_RHS])
    assert found.explored.asked == (3, 3), "the first products, the second ones and the third ones"
    assert [node.op_type for node in found.graph.nodes()].count("MatMul") == 3


def test_members_that_the_engine_does_not_join_with_the_others_are_left_out() -> None:
    builder = GraphBuilder()
    weight = builder.weight("w", "w", FLOAT, [64, 64])
    for number, rows in enumerate(([8], [8], [8], [2, 8])):
        x = builder.input(f"x{number}", FLOAT, [*rows, 64])
        builder.output(builder.node("", "MatMul", {}, [x, weight], [("", FLOAT, [*rows, 64])])[0])
    found = _explored(builder.build(), [SHARING_RHS])
    assert found.explored.asked == (1, 1)
    assert found.explored.nodes == 4 + JOINED


def test_more_members_than_proofs_hold_for_make_several_groups() -> None:
    found = _explored(_products(MOST_MEMBERS + 4), [SHARING_LHS])
    assert found.explored.asked == (2, 2)
    assert found.explored.nodes == MOST_MEMBERS + 4 + 2 * JOINED


def test_operands_that_are_absent_are_no_tensors() -> None:
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [1, 4, 8, 8])
    for number in range(3):
        weight = builder.weight(f"w{number}", f"w{number}", FLOAT, [4, 4, 1, 1])
        builder.output(builder.node("", "Conv", {}, [x, weight, -1], [("", FLOAT, [1, 4, 8, 8])])[0])
    found = _explored(builder.build(), ["merge-all-convs-sharing-input", "merge-all-biased-convs-sharing-input"])
    assert found.explored.asked == (0, 0)
    assert found.explored.nodes == 3
