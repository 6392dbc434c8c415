"""The engine's matches agree with a second, naive implementation of the rule language, and masks are exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from taso_ext import RuleSet, State
from taso_ext.verify.rule_reader import RuleText, read_rule
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.oracles.slow_match import Match
from tests.taso_ext.oracles.slow_rewriter import legal_rewrites
from tests.taso_ext.samples.efforts import Effort, for_all, sampled_and_full
from tests.taso_ext.samples.random_graphs import DEFAULT_RULES, graphs
from tests.taso_ext.samples.random_walks import (
    AMPLE,
    LARGE,
    RULE_SETS,
    TINY,
    after,
    hashes_by_rule,
    over_rule_sets,
    rewrites,
    start,
    walk,
    zoo_model,
)


def read_rules(rules: RuleSet) -> list[RuleText]:
    return [read_rule(rules.text(index)) for index in range(len(rules))]


def slow_hashes(state: State, rules: RuleSet) -> list[Counter[str]]:
    """Returns the expected `hashes_by_rule`: every rewrite of the slow matcher, built from scratch."""
    graph = PlainGraph.of(state.graph)
    return [Counter(new.build().hash for _, new in legal_rewrites(rule, graph)) for rule in read_rules(rules)]


def assert_matches_are_the_slow_ones(state: State, rules: RuleSet = DEFAULT_RULES) -> None:
    """Asserts that each rule has as many matches as in the slow matcher, and that they lead to equal graphs."""
    assert state.truncated_matches == 0
    expected, found = slow_hashes(state, rules), hashes_by_rule(state)
    assert state.location_counts().tolist() == [each.total() for each in found]
    wrong = {rules.names[i]: (e, f) for i, (e, f) in enumerate(zip(expected, found, strict=True)) if e != f}
    assert not wrong, f"(expected, found) {wrong} in {PlainGraph.of(state.graph)}"


@sampled_and_full
@pytest.mark.parametrize(
    ("rules", "rule"),
    [(rules, rule) for rules in RULE_SETS.values() for rule in range(len(rules))],
    ids=[name for rules in RULE_SETS.values() for name in rules.names],
)
def test_instances_of_a_rule_match_as_the_slow_matcher_says(rules: RuleSet, rule: int, effort: Effort) -> None:
    matched = 0
    for seed in range(3 * effort.tries):
        graph = rules.instance(rule, seed)
        if graph is not None:
            for state in walk(start(graph, rules=rules), 1, seed):
                assert_matches_are_the_slow_ones(state, rules)
                matched += int(state.location_counts()[rule])
    assert matched > 0


@sampled_and_full
@over_rule_sets
def test_random_graphs_match_as_the_slow_matcher_says(rules: RuleSet, effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), rules=rules), effort.steps, seed=len(graph.operators)):
            assert_matches_are_the_slow_ones(state, rules)

    for_all(graphs(rules, foreign=True), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_zoo_graphs_match_as_the_slow_matcher_says(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), effort.steps, seed):
            assert_matches_are_the_slow_ones(state)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_large_zoo_graphs_match_as_the_slow_matcher_says(name: str) -> None:
    for state in walk(start(zoo_model(name).graph), 20, seed=0):
        assert_matches_are_the_slow_ones(state)


# ---- full and incremental matching


@sampled_and_full
@over_rule_sets
@pytest.mark.parametrize("most", [0, 1, 3, AMPLE])
def test_incremental_matching_finds_what_full_matching_finds(most: int, rules: RuleSet, effort: Effort) -> None:
    """This also holds if there are more matches than locations."""

    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), most, rules), effort.steps, seed=len(graph.operators)):
            assert_found_incrementally(state, rules)

    for_all(graphs(rules), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_incremental_matching_of_zoo_graphs(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), 5 * effort.steps, seed):
            assert_found_incrementally(state, DEFAULT_RULES)


def assert_found_incrementally(state: State, rules: RuleSet) -> None:
    """Compares a state with itself matched from scratch, and with a new state of its graph, which has other sites."""
    again, other = state.rematched(), start(state.graph, state.num_locations, rules)
    unbounded = start(state.graph, AMPLE, rules).location_counts()
    counts = np.minimum(unbounded, state.num_locations).tolist()
    for each in (state, again, other):
        assert each.location_counts().tolist() == counts
        assert each.truncated_matches == int(np.maximum(unbounded - state.num_locations, 0).sum())
    if state.truncated_matches == 0:
        assert offered(other) == offered(state)
        assert rewrites(again) == rewrites(state)


def offered(state: State) -> Counter[tuple[int, float]]:
    """Counts the legal rewrites by rule and price, which do not depend on the numbering of sites."""
    rules, _, costs = state.candidates()
    return Counter((int(rule), float(f"{cost:.9g}")) for rule, cost in zip(rules, costs, strict=True))


# ---- locations

Found = list[list[tuple[Match, str]]]


def untouched(matches: Found, locations: dict[tuple[int, int], str]) -> dict[Any, frozenset[int]]:
    """Returns the locations of the matches of a rule that lead to one graph; which match has which cannot be seen."""
    at: dict[tuple[int, str], set[int]] = defaultdict(set)
    for (rule, location), hash_ in locations.items():
        at[rule, hash_].add(location)
    behind: dict[tuple[int, str], list[str]] = defaultdict(list)
    for rule, found in enumerate(matches):
        for match, hash_ in found:
            behind[rule, hash_].append(repr(match.key))
    return {(rule, tuple(sorted(keys))): frozenset(at[rule, hash_]) for (rule, hash_), keys in behind.items()}


@sampled_and_full
@over_rule_sets
def test_a_match_that_a_rewrite_does_not_touch_keeps_its_location(rules: RuleSet, effort: Effort) -> None:
    kept = 0

    def holds(graph: PlainGraph) -> None:
        nonlocal kept
        before: dict[Any, frozenset[int]] = {}
        for state in walk(start(graph.build(), rules=rules), effort.steps, seed=len(graph.operators)):
            plain = PlainGraph.of(state.graph)
            found = [[(match, n.build().hash) for match, n in legal_rewrites(r, plain)] for r in read_rules(rules)]
            now = untouched(found, rewrites(state))
            for matches in before.keys() & now.keys():
                assert now[matches] == before[matches], matches
                kept += 1
            before = now

    for_all(graphs(rules), holds, effort)
    assert kept > effort.examples


# ---- masks


@sampled_and_full
@over_rule_sets
def test_masks_are_legal_and_complete(rules: RuleSet, effort: Effort) -> None:
    """Every action in the mask can be taken, and every other action is refused without a change."""

    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), 8, rules), effort.steps, seed=len(graph.operators)):
            mask = state.location_mask()
            assert mask.shape == (len(rules), state.num_locations)
            assert np.array_equal(state.rule_mask(), mask.any(1))
            assert np.array_equal(state.legal_actions(), np.argwhere(mask))
            assert np.array_equal(state.location_counts(), mask.sum(1))
            for rule, location in np.argwhere(mask).tolist():
                after(state, rule, location)
            outside = [[len(rules), 0], [-1, 0], [0, -1], [0, state.num_locations]]
            assert_refused(state, np.argwhere(~mask).tolist() + outside)

    for_all(graphs(rules), holds, effort)


def assert_refused(state: State, actions: list[list[int]]) -> None:
    before = state.hash
    for rule, location in actions:
        try:
            state.step(rule, location)
        except ValueError as error:
            assert "rule" in str(error)
        else:
            pytest.fail(f"rule {rule} at {location} is masked, and was taken")
    assert state.hash == before
