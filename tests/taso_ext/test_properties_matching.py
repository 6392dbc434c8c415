"""The engine's matches against a second, naive implementation of the rule language, and what masks promise."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from efforts import Effort, for_all, sampled_and_full
from random_graphs import graphs
from random_walks import (
    AMPLE,
    LARGE,
    RULES,
    TINY,
    after,
    hashes_by_rule,
    random_action,
    rewrites,
    start,
    walk,
    zoo_model,
)
from slow_graph import PlainGraph
from slow_match import Match
from slow_rewriter import legal_rewrites
from slow_rules import read_rules

from taso_ext import State

SLOW_RULES = read_rules(RULES)


def slow_hashes(state: State) -> list[Counter[str]]:
    """What `hashes_by_rule` should be: every rewrite of the slow matcher, built from scratch."""
    graph = PlainGraph.of(state.graph)
    return [Counter(new.build().hash for _, new in legal_rewrites(rule, graph)) for rule in SLOW_RULES]


def assert_matches_are_the_slow_ones(state: State) -> None:
    """Equal numbers of matches of each rule, and equal graphs behind them."""
    assert state.truncated_matches == 0
    expected, found = slow_hashes(state), hashes_by_rule(state)
    assert state.location_counts().tolist() == [each.total() for each in found]
    wrong = {RULES.names[i]: (e, f) for i, (e, f) in enumerate(zip(expected, found, strict=True)) if e != f}
    assert not wrong, f"(expected, found) {wrong} in {PlainGraph.of(state.graph)}"


@sampled_and_full
@pytest.mark.parametrize("rule", range(len(RULES)), ids=RULES.names)
def test_instances_of_a_rule_match_as_the_slow_matcher_says(rule: int, effort: Effort) -> None:
    matched = 0
    for seed in range(3 * effort.tries):
        graph = RULES.instance(rule, seed)
        if graph is not None:
            for state in walk(start(graph), 1, seed):
                assert_matches_are_the_slow_ones(state)
                matched += int(state.location_counts()[rule])
    assert matched > 0


@sampled_and_full
def test_random_graphs_match_as_the_slow_matcher_says(effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build()), effort.steps, seed=len(graph.operators)):
            assert_matches_are_the_slow_ones(state)

    for_all(graphs(foreign=True), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_zoo_graphs_match_as_the_slow_matcher_says(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), effort.steps, seed):
            assert_matches_are_the_slow_ones(state)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_large_zoo_graphs_match_as_the_slow_matcher_says(name: str) -> None:
    """Building every rewritten graph would take hours: a few actions are drawn."""
    rng = np.random.default_rng(0)
    for step, state in enumerate(walk(start(zoo_model(name).graph), 10, seed=0)):
        if step % 5:
            continue
        expected = slow_hashes(state)
        assert state.location_counts().tolist() == [each.total() for each in expected]
        for rule, location in filter(None, (random_action(state, rng) for _ in range(20))):
            assert after(state, rule, location).hash in expected[rule]


# ---- full and incremental matching


def offered(state: State) -> Counter[tuple[int, float]]:
    """Every legal rewrite by rule and price: what does not depend on how sites are numbered."""
    rules, _, costs = state.candidates()
    return Counter((int(rule), float(f"{cost:.9g}")) for rule, cost in zip(rules, costs, strict=True))


@sampled_and_full
@pytest.mark.parametrize("most", [0, 1, 3, AMPLE])
def test_incremental_matching_finds_what_full_matching_finds(most: int, effort: Effort) -> None:
    """Also where there are more matches than locations."""

    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), most), effort.steps, seed=len(graph.operators)):
            assert_found_incrementally(state)

    for_all(graphs(), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_incremental_matching_of_zoo_graphs(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), 5 * effort.steps, seed):
            assert_found_incrementally(state)


def assert_found_incrementally(state: State) -> None:
    most = state.num_locations
    fresh, unbounded = start(state.graph, most), start(state.graph).location_counts()
    assert state.location_counts().tolist() == fresh.location_counts().tolist() == np.minimum(unbounded, most).tolist()
    assert state.truncated_matches == fresh.truncated_matches == int(np.maximum(unbounded - most, 0).sum())
    if state.truncated_matches == 0:
        assert offered(state) == offered(fresh)


# ---- locations


Found = list[list[tuple[Match, str]]]


def untouched(matches: Found, locations: dict[tuple[int, int], str]) -> dict[Any, frozenset[int]]:
    """Locations by rule and the matches that lead to one graph: which of these has which location cannot be seen."""
    at: dict[tuple[int, str], set[int]] = defaultdict(set)
    for (rule, location), hash_ in locations.items():
        at[rule, hash_].add(location)
    behind: dict[tuple[int, str], list[str]] = defaultdict(list)
    for rule, found in enumerate(matches):
        for match, hash_ in found:
            behind[rule, hash_].append(repr(match.key))
    return {(rule, tuple(sorted(keys))): frozenset(at[rule, hash_]) for (rule, hash_), keys in behind.items()}


@sampled_and_full
def test_a_match_that_a_rewrite_does_not_touch_keeps_its_location(effort: Effort) -> None:
    kept = 0

    def holds(graph: PlainGraph) -> None:
        nonlocal kept
        before: dict[Any, frozenset[int]] = {}
        for state in walk(start(graph.build()), effort.steps, seed=len(graph.operators)):
            plain = PlainGraph.of(state.graph)
            found = [[(match, new.build().hash) for match, new in legal_rewrites(rule, plain)] for rule in SLOW_RULES]
            now = untouched(found, rewrites(state))
            for matches in before.keys() & now.keys():
                assert now[matches] == before[matches], matches
                kept += 1
            before = now

    for_all(graphs(), holds, effort)
    assert kept > effort.examples


# ---- masks


@sampled_and_full
def test_masks_are_legal_and_complete(effort: Effort) -> None:
    """Every bit of the mask is a rewrite that can be taken, everything else is refused without a change."""

    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build(), 8), effort.steps, seed=len(graph.operators)):
            mask = state.location_mask()
            assert mask.shape == (len(RULES), state.num_locations)
            assert np.array_equal(state.rule_mask(), mask.any(1))
            assert np.array_equal(state.legal_actions(), np.argwhere(mask))
            assert np.array_equal(state.location_counts(), mask.sum(1))
            for rule, location in np.argwhere(mask).tolist():
                assert after(state, rule, location).hash != ""
            assert_refused(state, np.argwhere(~mask).tolist())

    for_all(graphs(), holds, effort)


def assert_refused(state: State, actions: list[list[int]]) -> None:
    before = state.hash
    outside = [[len(RULES), 0], [-1, 0], [0, -1], [0, state.num_locations]]
    for rule, location in [*actions, *outside]:
        try:
            state.step(rule, location)
        except ValueError as error:
            assert "rule" in str(error)
        else:
            pytest.fail(f"rule {rule} at {location} is masked, and was taken")
    assert state.hash == before
