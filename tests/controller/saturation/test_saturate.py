"""Equality saturation as a whole: equal outputs, optima known by exhaustive search, limits, a missing library."""

from __future__ import annotations

import importlib.util

import pytest

from controller.saturation.egraph import Program
from controller.saturation.exploration import Exploration, ExplorationLimits, Stop
from controller.saturation.saturate import MissingEgglogError, saturate
from environment import zoo
from environment.verification import verify
from taso_ext import CostModel, GraphBuilder, OnnxModel, RuleSet, State, search_taso

COSTS = CostModel.roofline("rtx2070")
RULES = RuleSet.default()
FLOAT = 1
SMALL = ExplorationLimits(nodes=1_500, rounds=4, k_multi=2)


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny", "resnext50-tiny"])
def test_the_extracted_graph_computes_what_the_model_computes(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    found = saturate(model.graph, RULES, COSTS, limits=SMALL, extraction_seconds=4)
    compared = verify(model.source, model.export_checked(found.graph))
    assert compared.equal, compared.reason
    assert compared.reacts
    assert found.cost_ms == found.graph.cost(COSTS).ms <= found.initial_cost_ms == model.graph.cost(COSTS).ms
    assert found.bound_ms <= found.cost_ms


def test_finds_at_least_what_an_exhaustive_search_finds() -> None:
    graph = OnnxModel.load(zoo.build("squeezenet1.1-tiny")).graph
    everything = search_taso(State(graph, RULES, COSTS), alpha=1e9, budget=100_000)
    assert everything.stop_reason == "exhausted"
    found = saturate(graph, RULES, COSTS, limits=ExplorationLimits(nodes=3_000, k_multi=2), extraction_seconds=20)
    assert found.explored.stop is Stop.SATURATED
    assert found.is_optimal
    # An e-graph keeps what the engine replaces, so it may hold cheaper graphs than the search meets.
    assert found.cost_ms <= everything.cost_ms * (1 + 1e-9)


def test_rules_with_several_roots_are_looked_for_in_k_multi_rounds() -> None:
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [64, 64])
    for name in ("a", "b"):
        weight = builder.weight(name, name, FLOAT, [64, 64])
        builder.output(builder.node("", "MatMul", {}, [x, weight], [("", FLOAT, [64, 64])])[0])
    rules = RULES.restricted(names={"merge-matmuls-sharing-lhs"})
    graph = builder.build()
    never, once, later = (
        saturate(graph, rules, COSTS, limits=ExplorationLimits(k_multi=k_multi, matches=matches), extraction_seconds=5)
        for k_multi, matches in ((0, 10), (1, 10), (1, 1))
    )
    assert never.explored.nodes == 2
    # Concat, MatMul and Split, with the weights in either order: of two classes none is the first.
    assert once.explored.nodes == 2 + 2 * 3
    assert once.explored.asked == (1, 1)
    assert later.explored.nodes == once.explored.nodes, "two matches, more than one, wait for the next round"


def test_what_appears_after_these_rounds_is_not_merged() -> None:
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [64, 64])
    for name, op_type in (("a", "MatMul"), ("b", "MatMul"), ("c", "Gemm")):
        weight = builder.weight(name, name, FLOAT, [64, 64])
        builder.output(builder.node("", op_type, {}, [x, weight], [("", FLOAT, [64, 64])])[0])
    shown = "rule plain\n  var x: float[m, k]; w: float[k, n]\n  source y = Gemm(x, w)\n  target y = MatMul(x, w)\n\n"
    rules = RuleSet.parse(shown + RULES.text(RULES.names.index("merge-matmuls-sharing-lhs")))
    # The two matches of the first round are carried out in the second one, when there are six.
    explored = saturate(
        builder.build(), rules, COSTS, limits=ExplorationLimits(matches=1), extraction_seconds=0
    ).explored
    assert explored.stop is Stop.SATURATED
    assert explored.nodes == 3 + 1 + 2 * 3


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (ExplorationLimits(nodes=200), Stop.NODES),
        (ExplorationLimits(rounds=1), Stop.ROUNDS),
        (ExplorationLimits(seconds=1e-6), Stop.TIME),
    ],
)
def test_limits_stop_the_exploration_and_the_best_so_far_is_extracted(limits: ExplorationLimits, stop: Stop) -> None:
    graph = OnnxModel.load(zoo.build("bert-base-tiny")).graph
    found = saturate(graph, RULES, COSTS, limits=limits, extraction_seconds=5)
    assert found.explored.stop is stop
    assert found.cost_ms <= found.initial_cost_ms


def test_all_shipped_rules_have_patterns() -> None:
    graph = OnnxModel.load(zoo.build("bert-base-tiny")).graph
    assert saturate(graph, RULES, COSTS, limits=SMALL, extraction_seconds=0).explored.inexpressible == {}


def test_every_shipped_rule_is_carried_out_where_the_engine_carries_it_out() -> None:
    unused = []
    for rule, name in enumerate(RULES.names):
        single = RULES.restricted(names={name})
        instances = (RULES.instance(rule, seed) for seed in range(6))
        graphs = [graph for graph in instances if graph and len(State(graph, single, COSTS, 64).legal_actions())]
        assert graphs, name
        explored = (Exploration(Program(graph), single, ExplorationLimits(rounds=1)).run() for graph in graphs)
        if not any(each.asked[1] for each in explored):
            unused.append(name)
    # These make one of two equal operators, and in an e-graph there is only one.
    assert unused == [name for name in RULES.names if name.startswith("share-")]


def test_a_rule_with_a_variable_that_nothing_reads_is_named() -> None:
    rules = RuleSet.parse("rule odd\n  var x: float[...]; z: float[...]\n  source y = Relu(x)\n  target y = Tanh(x)")
    graph = OnnxModel.load(zoo.build("squeezenet1.1-tiny")).graph
    explored = saturate(graph, rules, COSTS, limits=SMALL, extraction_seconds=0).explored
    assert explored.inexpressible == {"odd": "no operator of its source reads z"}


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    graph = OnnxModel.load(zoo.build("squeezenet1.1-tiny")).graph
    with pytest.raises(MissingEgglogError, match=r"pip install 'rlflow\[saturation\]'"):
        saturate(graph, RULES, COSTS)
