"""Tests of the measured climb, with made-up timings in place of a clock."""

from __future__ import annotations

import pytest

from controller.search.measured_climb import Candidate, ClimbLimits, MeasuredClimb
from controller.search.replayed import StopCause
from environment import zoo
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, VariantTiming
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from taso_ext import OnnxModel, RuleSet, State

LIMITS = ClimbLimits(rounds=1, budget=200, seconds=60, pairs=6, sessions=2)


def timing_of(ratio: float) -> Timing:
    """Returns the timing of a candidate that takes `ratio` times as long as its reference, without noise."""
    base, candidate = (VariantTiming("", "", *[Estimate(x, x, x)] * 2, noise=0.0) for x in (1.0, ratio))
    return Timing(base, (candidate,), None, 2, 1, "pairs", None, 0.0, "", 0.0)


def climb_of(name: str, limits: ClimbLimits = LIMITS) -> MeasuredClimb:
    return MeasuredClimb(OnnxModel.load(zoo.build(name)), RuleSet.default(), OnnxRuntime(), limits)


def by_cost(climb: MeasuredClimb, reference: State, candidate: State, effort: Effort) -> Timing:
    return timing_of(candidate.cost.ms / reference.cost.ms)


def test_a_climb_ends_at_a_cheaper_graph_which_its_actions_give_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredClimb, "compare", by_cost)
    climb = climb_of("squeezenet1.1-tiny")
    start, reported = climb.start(), []
    found = climb.find(start.copy(), 0, lambda done, total, metrics: reported.append((done, total, metrics)))
    assert found.actions and found.cost_ms < start.cost.ms and climb.tried >= 3
    state = start.copy()
    for rule, location in found.actions:
        state.step(rule, location)
    assert state.cost.ms == found.cost_ms
    assert reported == [(1, 1, {"best_cost_ms": found.cost_ms})]


def test_nothing_that_the_clock_calls_slower_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredClimb, "compare", lambda *_: timing_of(1.01))
    climb = climb_of("squeezenet1.1-tiny")
    found = climb.find(climb.start(), 0, None)
    assert found.actions == [] and found.stop_reason.cause is StopCause.LOCAL_OPTIMUM and climb.tried >= 3


def test_a_climb_that_is_late_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredClimb, "compare", lambda *_: pytest.fail("measured"))
    climb = climb_of("squeezenet1.1-tiny", ClimbLimits(rounds=1, budget=200, seconds=1e-9, pairs=6, sessions=2))
    assert climb.find(climb.start(), 0, None).stop_reason.cause is StopCause.TIME


@pytest.mark.parametrize("most", [1.2, 4.0])
def test_what_costs_several_times_the_work_is_not_measured(most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging all groups of this graph's convolutions makes 1.5 times as many floating-point operations."""
    work = []

    def compare(climb: MeasuredClimb, reference: State, candidate: State, effort: Effort) -> Timing:
        work.append(candidate.cost.flops / reference.cost.flops)
        return timing_of(2.0)

    monkeypatch.setattr(MeasuredClimb, "compare", compare)
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", most)
    climb = climb_of("resnext50-tiny")
    climb.find(climb.start(), 0, None)
    assert (max(work) > 1.2) == (most > 1.2)


def test_actions_that_others_made_impossible_are_left_out() -> None:
    climb = climb_of("squeezenet1.1-tiny")
    start = climb.start()
    rule, location = start.legal_actions()[0].tolist()
    once = climb.replay(Candidate(start, ()), [(rule, location)])
    assert once.actions == ((rule, location),) and start.hash != once.state.hash
    blocked = next((r, p) for r, p in start.legal_actions().tolist() if not once.state.location_mask()[r, p])
    assert climb.replay(once, [blocked]).actions == once.actions
