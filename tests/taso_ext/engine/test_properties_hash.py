"""Hashes are equal for graphs that differ only in names and order, and different for all other graphs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from onnx import TensorProto

from taso_ext import Graph, GraphBuilder, RuleSet, State
from tests.taso_ext.oracles.slow_graph import Operator, PlainGraph, Tensor
from tests.taso_ext.oracles.slow_structure import canonical
from tests.taso_ext.samples.efforts import Effort, for_all, sampled_and_full
from tests.taso_ext.samples.random_graphs import graphs
from tests.taso_ext.samples.random_mutations import MUTATIONS, live, mutants
from tests.taso_ext.samples.random_walks import COSTS, TINY, over_rule_sets, start, walk, zoo_model

FLOAT = TensorProto.FLOAT
SHUFFLES = 3


def assert_alike(first: Graph, second: Graph) -> None:
    """Asserts that two graphs have equal hashes, costs and numbers of matches."""
    assert first.hash == second.hash
    one, other = first.cost(COSTS), second.cost(COSTS)
    assert one.ms == pytest.approx(other.ms, rel=1e-12)
    assert one.kernel_launches == other.kernel_launches
    assert (one.flops, one.memory_bytes) == (other.flops, other.memory_bytes)
    assert start(first).location_counts().tolist() == start(second).location_counts().tolist()


@sampled_and_full
def test_isomorphic_graphs_are_alike(effort: Effort) -> None:
    """Nodes, weights and operands of commutative operators are reordered, and values are renamed."""

    def holds(graph: PlainGraph) -> None:
        for seed in range(SHUFFLES):
            assert_alike(graph.build(), graph.build(shuffle=random.Random(seed)))

    for_all(graphs(foreign=True), holds, effort)


def assert_is_that_of_its_graph(state: State, shuffle: random.Random) -> None:
    """Asserts that a state has the hash and cost of its graph, also if the graph is built from scratch."""
    rebuilt = PlainGraph.of(state.graph).build(shuffle)
    assert state.hash == state.graph.hash == rebuilt.hash == start(rebuilt).hash
    for cost in (state.graph.cost(COSTS), rebuilt.cost(COSTS)):
        assert cost.ms == pytest.approx(state.cost.ms, rel=1e-9)
        assert cost.kernel_launches == state.cost.kernel_launches
        assert cost.flops == pytest.approx(state.cost.flops, rel=1e-9)
        assert cost.memory_bytes == pytest.approx(state.cost.memory_bytes, rel=1e-9)


@sampled_and_full
@over_rule_sets
def test_states_are_hashed_and_priced_like_graphs_built_from_scratch(rules: RuleSet, effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        for step, state in enumerate(walk(start(graph.build(), rules=rules), effort.steps, seed=len(graph.operators))):
            assert_is_that_of_its_graph(state, random.Random(step))

    for_all(graphs(rules), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_states_of_zoo_graphs_are_hashed_and_priced_like_graphs_built_from_scratch(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for step, state in enumerate(walk(start(zoo_model(name).graph), 3 * effort.steps, seed)):
            assert_is_that_of_its_graph(state, random.Random(step))


@sampled_and_full
@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_single_change_changes_the_hash(kind: str, effort: Effort) -> None:
    def holds(pair: tuple[PlainGraph, PlainGraph]) -> None:
        graph, mutant = pair
        assert graph.build().hash != mutant.build().hash

    for_all(mutants(kind), holds, effort)


@sampled_and_full
@over_rule_sets
def test_graphs_of_one_hash_are_equal(rules: RuleSet, effort: Effort) -> None:
    """The graphs that random rewrites reach in different ways are compared; equal graphs also have one hash."""
    seen: dict[str, object] = {}

    def holds(graph: PlainGraph) -> None:
        for seed in range(2):
            for state in walk(start(graph.build(), rules=rules), effort.steps, seed):
                found = canonical(PlainGraph.of(state.graph))
                assert seen.setdefault(state.hash, found) == found

    for_all(graphs(rules), holds, effort)
    equal = len({repr(each) for each in seen.values()})
    assert equal == len(seen), "equal graphs hash differently"


@sampled_and_full
def test_dead_code_does_not_count(effort: Effort) -> None:
    """It changes neither hash nor cost, and as a reader of a value it prevents no rewrite."""

    def holds(graph: PlainGraph) -> None:
        alive = live(graph)
        readable = [id_ for id_, tensor in alive.tensors.items() if tensor.dims is not None]
        fresh = max(alive.tensors) + 1
        dead = [Operator("", "Relu", {}, (id_,), (fresh + i,), False, 0) for i, id_ in enumerate(readable)]
        tensors = {**alive.tensors, fresh + len(dead): Tensor("unread", FLOAT, (2,), "unread", weight_only=True)}
        tensors |= {each.outputs[0]: replace(alive.tensors[each.inputs[0]], handle=None) for each in dead}
        assert_alike(alive.build(), replace(alive, tensors=tensors, operators=(*alive.operators, *dead)).build())

    for_all(graphs(), holds, effort)


# ---- two equal operators


def readers_of_twins(first: list[str], second: list[str]) -> Graph:
    """Returns a graph of two equal MatMuls with the given readers, which are the outputs in alphabetical order."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [4, 4])
    w = builder.weight("w", "w", FLOAT, [4, 4])
    made = {}
    for readers in (first, second):
        (twin,) = builder.node("", "MatMul", {}, [x, w], [("", FLOAT, [4, 4])])
        for op_type in readers:
            (made[op_type],) = builder.node("", op_type, {}, [twin], [("", FLOAT, [4, 4])])
    for op_type in sorted(made):
        builder.output(made[op_type])
    return builder.build()


def test_it_counts_which_of_two_equal_operators_is_read() -> None:
    one = readers_of_twins(["Relu", "Softmax", "Tanh"], ["Gelu", "Sigmoid"])
    other = readers_of_twins(["Relu", "Softmax", "Tanh", "Sigmoid"], ["Gelu"])
    assert one.cost(COSTS).kernel_launches != other.cost(COSTS).kernel_launches  # Gelu is fused only as the only reader
    assert one.hash != other.hash


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum"])
def test_commutative_operators_of_three_operands_are_alike_in_any_order(op_type: str) -> None:
    def graph(order: list[int]) -> Graph:
        builder = GraphBuilder()
        operands = [builder.input(name, FLOAT, [2]) for name in "xyz"]
        (y,) = builder.node("", op_type, {}, [operands[i] for i in order], [("y", FLOAT, [2])])
        builder.output(y)
        return builder.build()

    assert graph([0, 1, 2]).hash == graph([2, 0, 1]).hash
