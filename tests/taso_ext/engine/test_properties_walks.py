"""Copies of a state are independent, steps can be undone, and states stay exact on long walks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from taso_ext import RuleSet, State, search_taso
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.samples.efforts import Effort, for_all, sampled_and_full
from tests.taso_ext.samples.random_graphs import graphs
from tests.taso_ext.samples.random_walks import (
    COSTS,
    RULE_SETS,
    TINY,
    after,
    over_rule_sets,
    random_action,
    rewrites,
    start,
    walk,
    zoo_model,
)

MOST_UNDONE = 256  # steps that a state can undo
LONG = 700  # steps, so many that the ids of dead operators are reused several times


def everything(state: State) -> dict[str, Any]:
    """Returns everything observable about a state, apart from the ids and the order of its operators."""
    rules, locations, costs = state.candidates()
    return {
        "hash": state.hash,
        "cost": (state.cost.ms, state.cost.flops, state.cost.memory_bytes, state.cost.kernel_launches),
        "actions": state.legal_actions().tolist(),
        "candidates": (rules.tolist(), locations.tolist(), costs.tolist()),
        "mask": state.location_mask().tobytes(),
        "truncated": state.truncated_matches,
        "features": sorted(row.tobytes() for array in state.features()[:2] for row in array),
    }


def assert_equal_parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    differing = [name for name, value in expected.items() if found[name] != value]
    assert not differing, differing


def over_states(effort: Effort, rules: RuleSet, holds: Callable[[State, np.random.Generator], None]) -> None:
    """Calls `holds` on start states of random graphs, with few and with many locations, and of tiny zoo graphs."""

    def on_one(graph: PlainGraph) -> None:
        built = graph.build()
        for most in (3, 100):
            holds(start(built, most, rules), np.random.default_rng(len(graph.operators)))

    for_all(graphs(rules), on_one, effort)
    for name in TINY:
        holds(start(zoo_model(name).graph, rules=rules), np.random.default_rng(0))


# ---- copies and undo


@sampled_and_full
@over_rule_sets
def test_copies_are_independent(rules: RuleSet, effort: Effort) -> None:
    """The same rewrite leads a copy to the same state, and neither is changed by the rewrites of the other."""

    def holds(state: State, rng: np.random.Generator) -> None:
        for _ in range(effort.steps):
            if (action := random_action(state, rng)) is None:
                return
            before, copy = everything(state), state.copy()
            assert_equal_parts(everything(copy), before)
            copy.step(*action)
            assert_equal_parts(everything(state), before)
            taken = everything(copy)
            state.step(*action)
            assert_equal_parts(everything(copy), taken)
            assert_equal_parts(everything(state), taken)

    over_states(effort, rules, holds)


@sampled_and_full
@over_rule_sets
def test_undo_restores_every_state_of_a_walk(rules: RuleSet, effort: Effort) -> None:
    def holds(state: State, rng: np.random.Generator) -> None:
        seen = [everything(state)]
        actions: list[tuple[int, int]] = []
        while len(actions) < effort.steps and (action := random_action(state, rng)) is not None:
            state.step(*action)
            actions.append(action)
            seen.append(everything(state))
        for before in seen[-2::-1]:
            state.undo()
            assert_equal_parts(everything(state), before)
        for action, expected in zip(actions, seen[1:], strict=True):
            state.step(*action)
            assert_equal_parts(everything(state), expected)

    over_states(effort, rules, holds)


@sampled_and_full
def test_undo_of_a_copy_leaves_the_original(effort: Effort) -> None:
    """A copy can also undo the steps that were taken before it was made."""

    def holds(state: State, rng: np.random.Generator) -> None:
        first = everything(state)
        if (action := random_action(state, rng)) is None:
            return
        state.step(*action)
        second, copy = everything(state), state.copy()
        copy.undo()
        assert_equal_parts(everything(copy), first)
        assert_equal_parts(everything(state), second)
        state.undo()
        assert_equal_parts(everything(state), first)

    over_states(effort, RULE_SETS["default"], holds)


def test_there_is_nothing_to_undo_at_the_start() -> None:
    state = start(zoo_model(TINY[0]).graph)
    before = everything(state)
    with pytest.raises(ValueError, match="undo"):
        state.undo()
    assert_equal_parts(everything(state), before)


# ---- long walks


@sampled_and_full
@over_rule_sets
def test_long_walks_stay_exact(rules: RuleSet, effort: Effort) -> None:
    """After hundreds of steps, matches, locations and prices are those of a state matched from scratch."""
    for seed in range(effort.tries):
        taken = 0
        for name in TINY:
            for taken, state in enumerate(walk(start(zoo_model(name).graph, rules=rules), LONG, seed)):
                if taken % 50 == 0 or taken == LONG:
                    assert_exact(state)
            if taken == LONG:
                assert_undone_as_far_as_possible(state)


def assert_exact(state: State) -> None:
    again = state.rematched()
    assert rewrites(again) == rewrites(state)
    np.testing.assert_allclose(np.stack(state.candidates()), np.stack(again.candidates()), rtol=1e-9)
    assert state.graph.cost(COSTS).ms == pytest.approx(state.cost.ms, rel=1e-9)
    assert PlainGraph.of(state.graph).build().hash == state.hash


def assert_undone_as_far_as_possible(state: State) -> None:
    for _ in range(MOST_UNDONE):
        state.undo()
    assert_exact(state)
    with pytest.raises(ValueError, match="undo"):
        state.undo()


# ---- search


def reachable(state: State, most: int) -> list[str]:
    """Returns the hashes of all states that rewrites lead to; gives up beyond `most`.

    States with equal hashes whose rewrites also lead to equal hashes count once. A hash can still occur several times:
    sites decide the order of interchangeable operators, and a graph can be reached with its operators at different
    sites, so that states of one hash have different rewrites.
    """
    seen, waiting = set(), [state]
    while waiting and len(seen) <= most:
        current = waiting.pop()
        following = [after(current, rule, location) for rule, location in current.legal_actions().tolist()]
        state_and_next = current.hash, tuple(sorted(each.hash for each in following))
        if state_and_next not in seen:
            seen.add(state_and_next)
            waiting += following
    return [graph for graph, _ in seen]


@sampled_and_full
def test_an_exhaustive_search_sees_every_reachable_graph_once(effort: Effort) -> None:
    """This shows that the predicted hash of a rewrite is the hash of the graph that it leads to."""
    searched, most = 0, 60

    def holds(graph: PlainGraph) -> None:
        nonlocal searched
        state = start(graph.build())
        found = reachable(state, most)
        if 1 < len(found) <= most:
            graphs_found = len(set(found))
            result = search_taso(state, alpha=1e6, budget=10 * most)
            assert result.stop_reason == "exhausted"
            assert result.expanded <= graphs_found
            # If the best graph costs nothing, no other graph lies within a factor of its cost.
            assert result.expanded == graphs_found or len(found) > graphs_found or result.cost_ms == 0
            searched += 1

    for_all(graphs(), holds, effort)
    assert searched > effort.examples // 10


@sampled_and_full
@over_rule_sets
def test_a_search_replays_to_the_cost_it_reports(rules: RuleSet, effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        state = start(graph.build(), rules=rules)
        result = search_taso(state, alpha=2.0, budget=5 * effort.steps)
        for action in result.actions:
            state.step(*action)
        assert state.cost.ms == pytest.approx(result.cost_ms, rel=1e-9)

    for_all(graphs(rules), holds, effort)
