"""Counts of what is done: each block counts what is done within it, wherever in the program that is."""

from __future__ import annotations

import numpy as np
import pytest

from controller.registry import make
from controller.search.portfolio import Candidate, by_place, priced
from controller.search.replayed import SearchLimits
from controller.worlds.candidate_view import CandidateView
from environment import GraphSubstitutionEnv
from environment.costs.end_to_end import EndToEnd
from environment.counting import Counts, count, counting
from environment.measurement.effort import Effort
from environment.substitution.wrappers import Candidates
from taso_ext import State, search_taso

GRAPH = "squeezenet1.1-tiny"
QUICK = Effort(resolution=None, pairs=2, sessions=1, seconds=1.0, control=False)


def test_blocks_count_what_is_done_within_them_and_nothing_else() -> None:
    count(real_steps=1)
    with counting() as outer:
        count(real_steps=2)
        with counting() as inner, pytest.raises(KeyError):
            count(real_steps=4, dreamed_steps=8)
            raise KeyError
        with counting() as equal:
            count(kernel_timings=16)
    count(real_steps=32)
    assert outer == Counts(real_steps=6, dreamed_steps=8, kernel_timings=16)
    assert inner == Counts(real_steps=4, dreamed_steps=8) and equal == Counts(kernel_timings=16)
    assert Counts.from_json(outer.to_json()) == outer and outer.timings() == equal
    assert outer.take() == Counts(6, 8, 0, 16, 0) and outer == Counts()


def test_a_step_is_counted_and_priced_and_so_is_every_candidate() -> None:
    env = GraphSubstitutionEnv(GRAPH)
    env.reset(seed=0)
    with counting() as counts:
        env.step(env.legal_actions()[0])
    assert counts == Counts(real_steps=1, cost_evaluations=1)
    with counting() as counts:
        _, _, costs_ms = env.candidates()
    assert counts == Counts(cost_evaluations=len(costs_ms))


def test_steps_that_change_no_graph_count_too() -> None:
    env = GraphSubstitutionEnv(GRAPH, max_steps=9)
    env.reset(seed=0)
    with counting() as counts:
        env.step([0, env.num_places])
        env.step([env.num_rules, 0])
    assert counts.real_steps == 2


def plan_of(state: State, steps: int) -> tuple[tuple[int, int], ...]:
    """Returns the first legal rewrites, one after the other."""
    state, actions = state.copy(), []
    for _ in range(steps):
        rule, location = state.legal_actions()[0].tolist()
        state.step(rule, location)
        actions.append((rule, location))
    return tuple(actions)


def test_the_engine_counts_its_steps_whoever_takes_them() -> None:
    env = GraphSubstitutionEnv(GRAPH)
    env.reset(seed=0)
    start = env.start_state()
    plan = plan_of(start, 3)
    with counting() as counts:
        start.copy().step(*plan[0])
        assert counts.take().real_steps == 1
        start.copy().step_everywhere(int(np.flatnonzero(start.everywhere_mask())[0]))
        assert counts.take().real_steps == 1
        env.after(start, *plan[0])
        assert counts.take().real_steps == 1
        env.replay(plan)
        assert counts.take() == Counts(real_steps=3)
        with pytest.raises(ValueError):
            start.step(0, -1)
        assert counts.take() == Counts()


def test_a_climb_counts_the_graphs_that_it_makes_and_prices() -> None:
    env = GraphSubstitutionEnv(GRAPH)
    start = env.start_state()
    plan = plan_of(start, 3)
    with counting() as counts:
        reached = Candidate(start, ()).replay(plan)
        assert counts.take() == Counts(real_steps=3) and reached.actions == plan
        priced(reached.state, env.cost_model)
        assert counts.take() == Counts(cost_evaluations=1)
        by_place(start, plan)
        found = counts.take()
    states = [start, *(Candidate(start, ()).replay(plan[:count]).state for count in (1, 2))]
    assert found == Counts(real_steps=3, cost_evaluations=sum(len(each.legal_actions()) for each in states))


def test_whatever_shows_costs_of_candidates_counts_them() -> None:
    env = GraphSubstitutionEnv(GRAPH)
    env.reset(seed=0)
    singles, everywhere = len(env.state.legal_actions()), int(env.state.everywhere_mask().sum())
    assert singles and everywhere
    for costs, expected in ((False, 0), (True, singles + everywhere)):
        wrapped = Candidates(env, max_candidates=2, candidate_costs=costs)
        with counting() as counts:
            wrapped.reset(seed=0)
        assert counts == Counts(cost_evaluations=expected), "all are priced, also those for which there is no place"
    for most, expected in ((3, 3), (10_000, singles)):
        view = CandidateView(env, reach=1, most=most)
        with counting() as counts:
            view.reset(seed=0)
        assert counts == Counts(cost_evaluations=expected)


@pytest.mark.parametrize("name", ["taso", "beam", "restarts"])
def test_a_native_search_counts_the_graphs_that_it_expands_and_the_rewrites_that_it_prices(name: str) -> None:
    env = GraphSubstitutionEnv(GRAPH)
    env.reset(seed=0)
    found = []
    for budget in (1, 6):
        with counting() as counts:
            make(name, limits=SearchLimits(budget)).train(env)
        found.append(counts)
    first = len(env.state.legal_actions())
    with counting() as counts:
        result = search_taso(env.state, budget=6)
    assert counts == Counts(real_steps=result.expanded, cost_evaluations=result.generated)
    assert found[0].real_steps == 1 and found[0].cost_evaluations >= first > 1
    assert 1 < found[1].real_steps <= 6 and found[1].cost_evaluations > found[0].cost_evaluations
    assert not found[1].dreamed_steps and not found[1].timings().end_to_end_timings


def test_passes_count_their_rewrites_and_one_price_a_pass() -> None:
    env = GraphSubstitutionEnv(GRAPH)
    env.reset(seed=0)
    with counting() as counts:
        make("passes", limits=SearchLimits(3)).train(env)
    assert counts.cost_evaluations == 3 and counts.real_steps >= 3


def test_best_of_n_counts_every_step_of_its_episodes_and_one_price_a_step() -> None:
    env = GraphSubstitutionEnv(GRAPH, max_steps=4)
    env.reset(seed=0)
    with counting() as counts:
        make("best-of-n", limits=SearchLimits(10)).train(env)
    assert counts == Counts(real_steps=40, cost_evaluations=40)  # no episode of this graph ends before its length


def test_each_graph_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = EndToEnd("cpu", effort=QUICK)
    with counting() as counts:
        env = GraphSubstitutionEnv(GRAPH, costs=costs, max_steps=1)
    assert counts.end_to_end_timings == 1  # of the start graph
    for _ in range(2):
        env.reset(seed=0)
        with counting() as again:
            env.step(env.state.legal_actions()[0])
        counts.add(again)
    assert counts == Counts(real_steps=2, cost_evaluations=2, end_to_end_timings=2)
    assert np.isfinite(env.initial_cost.ms)
