"""A rule that is carried out everywhere does what the same single rewrites do, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from taso_ext import GraphBuilder, RuleSet, State
from taso_ext.verify.rule_reader import RuleText, read_rule
from tests.taso_ext.engine.test_properties_walks import assert_equal_parts, assert_exact, everything
from tests.taso_ext.oracles.slow_everywhere import carried_out_everywhere
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.oracles.slow_match import Match
from tests.taso_ext.oracles.slow_rewriter import legal_rewrites
from tests.taso_ext.samples.efforts import Effort, for_all, sampled_and_full
from tests.taso_ext.samples.random_graphs import DEFAULT_RULES, graphs
from tests.taso_ext.samples.random_walks import COSTS, TINY, after, over_rule_sets, start, walk, zoo_model

EACH_IN_A_CHAIN = "rule relu-to-tanh\n var x: float[...]\n source y = Relu(x)\n target y = Tanh(x)"
PAIRS_IN_A_CHAIN = "rule one-relu-of-two\n var x: float[...]\n source y = Relu(x); z = Relu(y)\n target z = Relu(x)"


def rules_everywhere(state: State) -> list[int]:
    return np.flatnonzero(state.everywhere_mask()).tolist()


def everywhere(state: State, rule: int) -> tuple[State, list[int]]:
    """Returns a copy after a rule was carried out everywhere, and the locations of the single rewrites."""
    stepped = state.copy()
    return stepped, stepped.step_everywhere(rule).tolist()


def assert_is_its_single_rewrites(state: State, rule: int) -> None:
    before = everything(state)
    stepped, locations = everywhere(state, rule)
    assert_equal_parts(everything(state), before)
    single = state.copy()
    for location in locations:
        single.step(rule, location)
    assert_equal_parts(everything(stepped), everything(single))
    assert 1 <= len(locations) <= state.location_counts()[rule]
    stepped.undo()
    assert_equal_parts(everything(stepped), before)


@sampled_and_full
@over_rule_sets
def test_everywhere_is_the_same_as_its_single_rewrites(rules: RuleSet, effort: Effort) -> None:
    """This holds for the graph, the costs, and the locations of all later rewrites; one undo takes it back."""
    taken = 0

    def holds(graph: PlainGraph) -> None:
        nonlocal taken
        for most in (2, 100):
            for state in walk(start(graph.build(), most, rules), 2, seed=len(graph.operators)):
                for rule in rules_everywhere(state):
                    assert_is_its_single_rewrites(state, rule)
                    taken += 1

    for_all(graphs(rules), holds, effort)
    for name in TINY:
        state = start(zoo_model(name).graph, rules=rules)
        for rule in rules_everywhere(state):
            assert_is_its_single_rewrites(state, rule)
    assert taken > effort.examples


@sampled_and_full
def test_everywhere_is_what_the_slow_rewriter_makes(effort: Effort) -> None:
    """The naive matcher finds the matches of the start and tells which of them still stand at their turn."""
    compared = left_out = 0
    for seed in range(effort.tries):
        for name in TINY[seed % 3 :: 3]:
            state = list(walk(start(zoo_model(name).graph), 1, seed))[-1]
            graph = PlainGraph.of(state.graph)
            for rule, text, standing in unambiguous(state, graph):
                expected, count = carried_out_everywhere(text, graph, standing)
                found, locations = everywhere(state, rule)
                assert (found.hash, len(locations)) == (expected.build().hash, count), (name, text)
                compared, left_out = compared + 1, left_out + len(standing) - count
    assert compared > 10
    assert left_out > 0


def unambiguous(state: State, graph: PlainGraph) -> Iterator[tuple[int, RuleText, list[Match]]]:
    """Yields (rule, its text, its matches by location) for the rules whose rewrites all lead to different graphs."""
    actions = state.legal_actions()
    for rule in rules_everywhere(state):
        text = read_rule(DEFAULT_RULES.text(rule))
        by_hash = {rewritten.build().hash: match for match, rewritten in legal_rewrites(text, graph)}
        hashes = [after(state, rule, int(location)).hash for location in actions[actions[:, 0] == rule, 1]]
        if len(set(hashes)) == len(hashes):
            yield rule, text, [by_hash[each] for each in hashes]


@sampled_and_full
@over_rule_sets
def test_everywhere_costs_what_its_candidate_said(rules: RuleSet, effort: Effort) -> None:
    for seed in range(effort.tries):
        for name in TINY:
            for state in walk(start(zoo_model(name).graph, rules=rules), 3, seed):
                found, locations, costs = state.everywhere_candidates()
                assert found.tolist() == rules_everywhere(state)
                assert set(locations.tolist()) <= {state.num_locations}
                for rule, cost_ms in zip(found.tolist(), costs.tolist(), strict=True):
                    assert everywhere(state, rule)[0].cost.ms == pytest.approx(cost_ms, rel=1e-9)


def test_states_stay_exact_after_everywhere() -> None:
    for name in TINY:
        state, rng = start(zoo_model(name).graph), np.random.default_rng(0)
        for _ in range(6):
            if rules := rules_everywhere(state):
                state.step_everywhere(int(rng.choice(rules)))
        assert_exact(state)


@pytest.mark.parametrize("matches", [0, 1])
def test_everywhere_needs_two_matches(matches: int) -> None:
    state = chain(EACH_IN_A_CHAIN, matches)
    before = everything(state)
    assert not state.everywhere_mask().any()
    with pytest.raises(ValueError, match=f"at least 2 matches, and it has {matches}"):
        state.step_everywhere(0)
    for rule in (-1, 1):
        with pytest.raises(ValueError, match="out of range"):
            state.step_everywhere(rule)
    assert_equal_parts(everything(state), before)


@pytest.mark.parametrize(
    ("rule", "matches", "carried_out", "left"),
    [(EACH_IN_A_CHAIN, 3, 3, 0), (PAIRS_IN_A_CHAIN, 2, 1, 1)],
    ids=["an operand may change", "an operator may not"],
)
def test_which_matches_of_a_chain_still_stand(rule: str, matches: int, carried_out: int, left: int) -> None:
    """The second pair of three loses an operator to the first pair; the pair that is new is not followed."""
    state = chain(rule, 3)
    assert state.location_counts().tolist() == [matches]
    assert len(state.step_everywhere(0)) == carried_out
    assert state.location_counts().tolist() == [left]


def chain(rule: str, relus: int) -> State:
    """Returns a state of a graph that is a chain of Relus, under one rule."""
    builder = GraphBuilder()
    value = builder.input("x", 1, [4])
    for number in range(relus):
        (value,) = builder.node("", "Relu", {}, [value], [(f"y{number}", 1, [4])])
    builder.output(value)
    return State(builder.build(), RuleSet.parse(rule), COSTS)
