"""Searches on several threads, and several searches at once, find the same as one search on one thread.

`make sanitize-threads` runs this file.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taso_ext import RuleSet, SearchResult, State, search_beam, search_greedy, search_restarts, search_taso
from tests.taso_ext.samples.random_walks import COSTS, start, zoo_model

Search = Callable[..., SearchResult]


def search_beam_everywhere(state: State, **limits: Any) -> SearchResult:
    return search_beam(state, everywhere=True, **limits)


SEARCHES: list[Search] = [search_taso, search_greedy, search_beam, search_beam_everywhere, search_restarts]
NAMES = ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny"]
BUDGET, MANY = 80, 10_000
LITTLE = 16 << 20  # bytes, so few that states are dropped and rebuilt and rewrites evicted
AT_ONCE = 3

over_searches = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__.removeprefix("search_"))


def found(result: SearchResult) -> tuple[Any, ...]:
    """Returns the parts of a result that depend neither on the machine nor on threads, as the memory in use does."""
    counts = (result.expanded, result.generated, result.duplicates, result.evicted)
    assert {rule for rule, _ in result.actions} <= result.rules
    return result.actions, result.cost_ms, result.stop_reason, result.rules, counts


@pytest.mark.parametrize("name", NAMES)
@over_searches
def test_any_number_of_threads_finds_the_same(search: Search, name: str) -> None:
    state = start(zoo_model(name).graph)
    one, *more = [found(search(state, budget=BUDGET, threads=threads)) for threads in (1, 2, 4)]
    assert more == [one, one]


@pytest.mark.parametrize(
    ("name", "evicts"), [("bert-base-tiny", False), pytest.param("nasrnn-tiny", True, marks=pytest.mark.full)]
)
def test_little_memory_is_shared_by_threads_as_by_one(name: str, evicts: bool) -> None:
    state = start(zoo_model(name).graph)
    one, three = (search_taso(state, 1.5, MANY, memory_bytes=LITTLE, threads=threads) for threads in (1, 3))
    assert found(one) == found(three)
    assert one.stop_reason == three.stop_reason == "budget"
    assert max(one.memory_bytes, three.memory_bytes) <= LITTLE
    assert min(one.rebuilt, three.rebuilt) > 0
    assert bool(one.evicted) is evicts


@over_searches
def test_a_graph_without_rewrites_is_expanded_and_reported(search: Search) -> None:
    rules = RuleSet.parse("rule r\n  var x: any\n  source y = Erf(x)\n  target y = Tanh(x)\n")
    state, reports = start(zoo_model("squeezenet1.1-tiny").graph, rules=rules), []
    result = search(state, budget=BUDGET, progress=lambda *report: reports.append(report))
    assert (result.stop_reason, result.expanded, result.actions) == ("exhausted", 1, [])
    assert result.seconds > 0 and reports[-1] == (1, result.cost_ms)


@over_searches
def test_searches_at_once_share_a_state(search: Search) -> None:
    """Python threads search from one state, each search with threads of its own, and the state does not change."""
    state = start(zoo_model("bert-base-tiny").graph)
    before, alone = state.hash, found(search(state, budget=BUDGET))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        together = list(pool.map(lambda _: found(search(state, budget=BUDGET, threads=2)), range(AT_ONCE)))
    assert together == [alone] * AT_ONCE
    assert state.hash == before


def test_states_that_share_a_start_are_walked_at_once() -> None:
    """Copies of a state share the tables in which they intern what they learn."""
    begun = State(zoo_model("bert-base-tiny").graph, RuleSet.default(), COSTS)

    def walk(seed: int) -> list[str]:
        state = begun.copy()
        hashes = []
        for step in range(40):
            actions = state.legal_actions()
            state.step(*actions[(seed * 7919 + step * 104729) % len(actions)].tolist())
            hashes.append(state.hash)
        return hashes

    expected = [walk(seed) for seed in range(AT_ONCE)]
    begun = State(zoo_model("bert-base-tiny").graph, RuleSet.default(), COSTS)  # with empty tables
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(walk, range(AT_ONCE))) == expected


@over_searches
def test_an_interrupted_search_says_so(search: Search) -> None:
    state = start(zoo_model("bert-base-tiny").graph)
    result = search(state, budget=10**9, threads=3, progress=lambda *_: False)
    assert result.stop_reason in {"interrupted", "exhausted"}, result.stop_reason
