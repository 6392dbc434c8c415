"""Tests of the climb by the clock, with made-up times in place of a clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.evaluation import play_episode
from controller.search.climb import TOGETHER, Candidate, ClimbController
from controller.search.replayed import SearchLimits, StopCause
from environment import GraphSubstitutionEnv
from environment.measurement.effort import Effort
from environment.statistics.intervals import Estimate
from taso_ext import ModelError, State

LIMITS = SearchLimits(budget=300, seconds=60.0)


def climbed(env: GraphSubstitutionEnv, limits: SearchLimits = LIMITS) -> ClimbController:
    """Returns a climb that has ended."""
    climb = ClimbController(limits=limits)
    env.reset(seed=0)
    climb.train(env)
    return climb


def by_cost(climb: ClimbController, reference: State, candidates: Sequence[State], effort: Effort) -> list[Estimate]:
    return [Estimate(*[each.cost.ms / reference.cost.ms] * 3) for each in candidates]


def as_slow(climb: ClimbController, reference: State, candidates: Sequence[State], effort: Effort) -> list[Estimate]:
    return [Estimate(1.01, 1.005, 1.015) for _ in candidates]


def test_a_climb_ends_at_a_cheaper_graph_at_which_its_episode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    env, reported = GraphSubstitutionEnv("squeezenet1.1-tiny"), list[tuple[int, int]]()
    climb = ClimbController(limits=LIMITS)
    env.reset(seed=0)
    climb.train(env, on_progress=lambda done, total, figures: reported.append((done, total)))
    assert climb.actions and climb.stop_reason is not None and climb.stop_reason.cause is StopCause.LOCAL_OPTIMUM
    assert climb.timed >= 3 and reported and all(done <= total == 60 for done, total in reported)
    record = play_episode(env, climb, seed=0, deterministic=True, kind="deterministic")
    assert record.chosen == len(climb.actions) == record.best_step
    assert record.best_cost_ms == env.replay(climb.actions).cost(env.cost_model).ms < record.costs_ms[0]


def test_the_clock_counts_and_not_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, dearer graphs are faster."""

    def reverse(
        climb: ClimbController, reference: State, candidates: Sequence[State], effort: Effort
    ) -> list[Estimate]:
        return [Estimate(*[reference.cost.ms / each.cost.ms] * 3) for each in candidates]

    monkeypatch.setattr(ClimbController, "compare", reverse)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    record = play_episode(env, climbed(env), seed=0, deterministic=True, kind="deterministic")
    assert record.best_cost_ms > record.costs_ms[0] and record.improvement < 0 and record.best_actions


def test_nothing_that_the_clock_calls_slower_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", as_slow)
    climb = climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"))
    assert climb.actions == [] and climb.stop_reason is not None
    assert climb.stop_reason.cause is StopCause.LOCAL_OPTIMUM and climb.timed >= 3


@pytest.mark.parametrize(
    ("limits", "cause", "most"),
    [(SearchLimits(seconds=1e-9), StopCause.TIME, 0), (SearchLimits(budget=2, seconds=60), StopCause.BUDGET, 3)],
)
def test_a_limit_ends_the_climb(
    limits: SearchLimits, cause: StopCause, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClimbController, "compare", as_slow)
    climb = climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"), limits)
    assert climb.stop_reason is not None and climb.stop_reason.cause is cause and climb.timed <= most


def test_a_limit_that_cuts_a_round_short_is_named_and_no_local_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", as_slow)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    all_timed = climbed(env).timed
    climb = climbed(env, SearchLimits(budget=all_timed - TOGETHER, seconds=60))
    assert climb.stop_reason is not None and climb.stop_reason.cause is StopCause.BUDGET and climb.timed < all_timed


def test_a_graph_that_cannot_be_run_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], effort: Effort
    ) -> list[Estimate]:
        if any(int(each.hash, 16) % 3 == 0 for each in candidates):
            refused.append(len(candidates))
            raise ModelError("no kernel")
        return by_cost(climb, reference, candidates, effort)

    monkeypatch.setattr(ClimbController, "compare", compare)
    climb = climbed(GraphSubstitutionEnv("bert-base-tiny"))
    assert climb.actions and {1, 3} <= set(refused)


@pytest.mark.parametrize("most", [1.2, 4.0])
def test_what_costs_several_times_the_work_is_not_timed(most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging all groups of this graph's convolutions makes 1.5 times as many floating-point operations."""
    work = []

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], effort: Effort
    ) -> list[Estimate]:
        work.extend(each.cost.flops / reference.cost.flops for each in candidates)
        return [Estimate(2.0, 2.0, 2.0) for _ in candidates]

    monkeypatch.setattr(ClimbController, "compare", compare)
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", most)
    climbed(GraphSubstitutionEnv("resnext50-tiny"))
    assert (max(work) > 1.2) == (most > 1.2)


def test_actions_that_others_made_impossible_are_left_out() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    start = env.state
    rule, location = start.legal_actions()[0].tolist()
    once = Candidate(start, ()).replay([(rule, location)])
    assert once.actions == ((rule, location),) and start.hash != once.state.hash
    blocked = next((r, p) for r, p in start.legal_actions().tolist() if not once.state.location_mask()[r, p])
    assert once.replay([blocked]).actions == once.actions
