"""Searches on several threads and several at once, as on one thread. `make sanitize-threads` runs this file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taso_ext import RuleSet, SearchResult, State, search_beam, search_greedy, search_restarts, search_taso
from tests.taso_ext.samples.random_walks import COSTS, start, zoo_model

Search = Callable[..., SearchResult]
SEARCHES = [search_taso, search_greedy, search_beam, search_restarts]
NAMES = ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny"]
BUDGET, MANY = 80, 10_000
LITTLE = 16 << 20  # bytes: states are given up and rebuilt, rewrites evicted
AT_ONCE = 3

over_searches = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__.removeprefix("search_"))


def found(result: SearchResult) -> tuple[Any, ...]:
    """All of a result that depends neither on the machine nor on threads and their timing, as memory in use does."""
    counts = (result.expanded, result.generated, result.duplicates, result.evicted)
    assert {rule for rule, _ in result.actions} <= result.rules
    return result.actions, result.cost_ms, result.stop_reason, result.rules, counts


@pytest.mark.parametrize("name", NAMES)
@over_searches
def test_any_number_of_threads_finds_the_same(search: Search, name: str) -> None:
    state = start(zoo_model(name).graph)
    one, *more = [found(search(state, budget=BUDGET, threads=threads)) for threads in (1, 2, 4)]
    assert more == [one, one]


@pytest.mark.parametrize(("name", "evicts"), [("bert-base-tiny", False), ("nasrnn-tiny", True)])
def test_little_memory_is_shared_by_threads_as_by_one(name: str, evicts: bool) -> None:
    state = start(zoo_model(name).graph)
    one, three = (search_taso(state, 1.5, MANY, memory_bytes=LITTLE, threads=threads) for threads in (1, 3))
    assert found(one) == found(three)
    assert one.stop_reason == three.stop_reason == "budget"
    assert max(one.memory_bytes, three.memory_bytes) <= LITTLE
    assert min(one.rebuilt, three.rebuilt) > 0
    assert bool(one.evicted) is evicts


@over_searches
def test_searches_at_once_share_a_state(search: Search) -> None:
    """The same one, from threads of Python, each with threads of its own: searching leaves a state as it was."""
    state = start(zoo_model("bert-base-tiny").graph)
    before, alone = state.hash, found(search(state, budget=BUDGET))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        together = list(pool.map(lambda _: found(search(state, budget=BUDGET, threads=2)), range(AT_ONCE)))
    assert together == [alone] * AT_ONCE
    assert state.hash == before


def test_states_that_share_a_start_are_walked_at_once() -> None:
    """Copies intern what they learn in tables that they share."""
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
    begun = State(zoo_model("bert-base-tiny").graph, RuleSet.default(), COSTS)  # its tables are empty again
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(walk, range(AT_ONCE))) == expected


@over_searches
def test_an_interrupted_search_ends_all_its_threads(search: Search) -> None:
    state = start(zoo_model("bert-base-tiny").graph)
    result = search(state, budget=10**9, threads=3, progress=lambda *_: False)
    assert result.stop_reason in {"interrupted", "exhausted"}, result.stop_reason
