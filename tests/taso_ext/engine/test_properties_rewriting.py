"""Rewrites keep the function, and lead to graphs of the predicted cost."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environment import zoo
from environment.verification import verify
from taso_ext import OnnxModel, RuleSet, State
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.samples.efforts import Effort, for_all, sampled_and_full
from tests.taso_ext.samples.onnx_cases import run
from tests.taso_ext.samples.random_graphs import feeds_of, graphs, model_of
from tests.taso_ext.samples.random_walks import LARGE, TINY, after, over_rule_sets, start, walk, zoo_model

TOLERANCE = 1e-3  # relative to the spread; a wrong rewrite is off by about one spread
FEEDS = 2

# ---- the function


def assert_same_outputs(expected: list[object], found: list[object], where: object) -> None:
    """Asserts that floats agree up to a share of the output's spread, and integers exactly."""
    for index, arrays in enumerate(zip(expected, found, strict=True)):
        a, b = map(np.asarray, arrays)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        assert np.isfinite(a).all(), f"output {index} of {where} is not finite: the random graph is to blame"
        spread = max(float(a.std()), 1e-2 * float(np.abs(a).max(initial=0.0)), 1e-2) if a.dtype.kind == "f" else 0.0
        largest = float(np.abs(a - b).max(initial=0.0))
        assert largest <= TOLERANCE * spread, f"output {index} is off by {largest} of {spread} in {where}"


@sampled_and_full
def test_random_rewrites_of_random_graphs_keep_the_outputs(effort: Effort) -> None:
    """ONNX Runtime computes the outputs after each rewrite, without its optimisations."""

    def holds(graph: PlainGraph) -> None:
        model = OnnxModel.load(model_of(graph), clean="none")
        feeds = [feeds_of(graph, seed) for seed in range(FEEDS)]
        expected = [run(model.source.to_proto(), each) for each in feeds]
        for state in walk(start(model.graph), effort.steps, seed=len(graph.operators)):
            exported = model.export(state.graph)
            for each, outputs in zip(feeds, expected, strict=True):
                assert_same_outputs(outputs, run(exported, each), PlainGraph.of(state.graph))

    for_all(graphs(), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_random_rewrites_of_zoo_graphs_keep_the_outputs(name: str, effort: Effort) -> None:
    """A sampled run verifies every 25th rewrite and the last one, a full run each."""
    for seed in range(effort.tries):
        every = 1 if effort.varied else 25
        assert_outputs_kept(zoo_model(name), start(zoo_model(name).graph), seed, every)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_random_rewrites_of_large_zoo_graphs_keep_the_outputs(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    assert_outputs_kept(model, start(model.graph), seed=0, every=25)


def assert_outputs_kept(model: OnnxModel, state: State, seed: int, every: int) -> None:
    """Verifies the states after every `every` rewrites of a random walk, and the last state."""
    unchecked = 0
    for step, each in enumerate(walk(state, 50, seed)):
        unchecked = step if step % every else 0
        if step and not unchecked:
            assert_verified(model, each, seed)
    if unchecked:
        assert_verified(model, state, seed)


def assert_verified(model: OnnxModel, state: State, seed: int) -> None:
    result = verify(model.source, model.export_checked(state.graph), seed=seed)
    assert result.equal, result


# ---- the price


@sampled_and_full
@over_rule_sets
def test_a_rewrite_costs_what_its_candidate_said(rules: RuleSet, effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), rules=rules), effort.steps, seed=len(graph.operators)):
            assert_candidates_are_exact(state)

    for_all(graphs(rules), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_a_rewrite_of_a_zoo_graph_costs_what_its_candidate_said(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), effort.steps, seed):
            assert_candidates_are_exact(state)


def assert_candidates_are_exact(state: State) -> None:
    """Asserts that there is one candidate for each legal action, in order, with the cost of the rewritten graph."""
    rules, locations, costs = state.candidates()
    assert np.array_equal(np.stack([rules, locations], axis=1), state.legal_actions())
    for rule, location, cost in zip(rules.tolist(), locations.tolist(), costs.tolist(), strict=True):
        stepped = after(state, rule, location)
        assert stepped.cost.ms == pytest.approx(cost, rel=1e-9), (rule, location, PlainGraph.of(state.graph))


# ---- what is exported


@sampled_and_full
def test_random_graphs_come_out_as_they_went_in(effort: Effort) -> None:
    """A graph that is exported without a rewrite and loaded again has as many operators and the same cost."""

    def holds(graph: PlainGraph) -> None:
        model = OnnxModel.load(model_of(graph), clean="none")
        exported = model.export(model.graph)
        onnx.checker.check_model(exported, full_check=True)
        again = OnnxModel.load(exported, clean="none")
        assert again.graph.num_runtime_nodes == model.graph.num_runtime_nodes
        assert start(again.graph).cost.ms == pytest.approx(start(model.graph).cost.ms, rel=1e-12)

    for_all(graphs(), holds, effort)
