"""Tests of the climb by the clock, with made-up times in place of a clock."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.evaluation import play_episode
from controller.search import portfolio
from controller.search.ascent import Ascent, Best
from controller.search.climb import ClimbController
from controller.search.journal import JournalError
from controller.search.replayed import SearchLimits, StopCause
from environment import GraphSubstitutionEnv
from environment.measurement.effort import ClockError
from environment.measurement.racing import Outcome
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict
from taso_ext import CostModel, ModelError, State

LIMITS = SearchLimits(budget=300, seconds=60.0)
Compare = Callable[..., list[Outcome]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of 30 graphs propose enough."""
    monkeypatch.setattr(portfolio, "PROPOSALS", 30)


def judged(ratio: float) -> Outcome:
    """Returns the outcome of a race without noise."""
    return Outcome(Verdict.FASTER if ratio < 1 - 1e-9 else Verdict.NOT_FASTER, Estimate(ratio, ratio, ratio), 6, 1)


def climbed(env: GraphSubstitutionEnv, limits: SearchLimits = LIMITS, **settings: Any) -> ClimbController:
    """Returns a climb that has ended."""
    climb = ClimbController(limits=limits, **settings)
    env.reset(seed=0)
    climb.train(env)
    return climb


def by_cost(climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1) -> list[Outcome]:
    return [judged(each.cost.ms / reference.cost.ms) for each in candidates]


def as_slow(climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1) -> list[Outcome]:
    return [judged(1.01) for _ in candidates]


def counted(compare: Compare, asked: list[str]) -> Compare:
    """Returns the same, which also notes the graphs that it compares."""

    def noting(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        asked.extend(each.hash for each in candidates)
        return compare(climb, reference, candidates)

    return noting


def test_a_climb_ends_at_a_cheaper_graph_at_which_its_episode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    env, reported, moves = GraphSubstitutionEnv("squeezenet1.1-tiny"), list[tuple[int, int]](), list[Best]()
    climb = ClimbController(limits=LIMITS, on_faster=moves.append)
    env.reset(seed=0)
    climb.train(env, on_progress=lambda done, total, figures: reported.append((done, total)))
    assert climb.actions and climb.stop_reason is not None and climb.stop_reason.cause is StopCause.LOCAL_OPTIMUM
    assert climb.timed >= 3 and reported and all(done <= total == 60 for done, total in reported)
    record = play_episode(env, climb, seed=0, deterministic=True, kind="deterministic")
    assert record.chosen == len(climb.actions) == record.best_step
    assert record.best_cost_ms == env.replay(climb.actions).cost(env.cost_model).ms < record.costs_ms[0]
    ratios = [1.0, *(move.ratio for move in moves)]
    assert all(after < before for before, after in itertools.pairwise(ratios))
    assert moves[-1].ratio == pytest.approx(record.best_cost_ms / record.costs_ms[0])
    assert moves[0].timed < climb.timed, "it moves at once, and not at the end of a round"


def test_the_clock_counts_and_not_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, dearer graphs are faster."""

    def reverse(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        return [judged(reference.cost.ms / each.cost.ms) for each in candidates]

    monkeypatch.setattr(ClimbController, "compare", reverse)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    record = play_episode(env, climbed(env), seed=0, deterministic=True, kind="deterministic")
    assert record.best_cost_ms > record.costs_ms[0] and record.improvement < 0 and record.best_actions


def test_nothing_that_the_clock_calls_slower_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", as_slow)
    climb = climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"))
    assert climb.actions == [] and climb.stop_reason is not None
    assert climb.stop_reason.cause is StopCause.LOCAL_OPTIMUM and climb.timed >= 3


def test_no_graph_is_timed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ClimbController, "compare", counted(by_cost, asked))
    climb = climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"))
    assert len(asked) == len(set(asked)) == climb.timed


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


def test_a_graph_that_cannot_be_run_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        if any(int(each.hash, 16) % 3 == 0 for each in candidates):
            refused.append(len(candidates))
            raise ModelError("no kernel")
        return by_cost(climb, reference, candidates)

    monkeypatch.setattr(ClimbController, "compare", compare)
    climb = climbed(GraphSubstitutionEnv("bert-base-tiny"))
    assert climb.actions and {1, 3} <= set(refused)


@pytest.mark.parametrize("most", [1.2, 4.0])
def test_what_costs_several_times_the_work_is_not_timed(most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging all groups of this graph's convolutions makes 1.5 times as many floating-point operations."""
    work = []

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        work.extend(each.cost.flops / reference.cost.flops for each in candidates)
        return [judged(2.0) for _ in candidates]

    monkeypatch.setattr(ClimbController, "compare", compare)
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", most)
    climbed(GraphSubstitutionEnv("resnext50-tiny"))
    assert (max(work) > 1.2) == (most > 1.2)


@pytest.mark.parametrize("device", ["xeon", "k80"])
def test_what_the_first_guide_predicts_to_be_fast_is_timed_first(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guide, predicted_ms = CostModel.roofline(device), list[float]()

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        predicted_ms.extend(each.graph.cost(guide).ms for each in candidates)
        return as_slow(climb, reference, candidates)

    monkeypatch.setattr(ClimbController, "compare", compare)
    climbed(GraphSubstitutionEnv("bert-base-tiny"), SearchLimits(budget=9, seconds=3600.0), guides=[guide])
    assert len(predicted_ms) >= 9 and predicted_ms == sorted(predicted_ms) and predicted_ms[0] < predicted_ms[-1]


def test_a_harmful_rule_of_a_good_plan_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every use of one rule costs 5 %; plans that have it are still faster, until it is left out."""
    env = GraphSubstitutionEnv("bert-base-tiny")
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    plan = climbed(env).actions
    assert plan is not None
    harmful = plan[-1][0]
    harm = {env.state.hash: 0}

    def time_of(climb: ClimbController, state: State) -> float:
        return state.cost.ms * 1.0001 ** harm.get(state.hash, 0)

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        for state, actions in zip(candidates, plans[-1], strict=True):
            harm[state.hash] = 500 * sum(rule == harmful for rule, _ in actions)
        return [judged(time_of(climb, each) / time_of(climb, reference)) for each in candidates]

    plans: list[list[Any]] = []
    raced = Ascent._raced

    def noting(ascent: Ascent, candidates: Any, patience: int = 1) -> Any:
        plans.append([each.actions for each in candidates])
        return raced(ascent, candidates, patience)

    monkeypatch.setattr(Ascent, "_raced", noting)
    monkeypatch.setattr(ClimbController, "compare", compare)
    found = climbed(env).actions
    assert found and harmful not in {rule for rule, _ in found}


def test_gains_that_are_too_small_to_be_told_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rules that every guide holds to be dear each save 0.6 %, and a race can tell 1 %."""
    env = GraphSubstitutionEnv("bert-base-tiny")
    env.reset(seed=0)
    rules, _, costs_ms = env.state.candidates()
    saving = {rule for rule in set(rules.tolist()) if (costs_ms[rules == rule] > env.state.cost.ms).all()}
    assert len(saving) >= 4
    plans: list[list[Any]] = []
    times = {env.state.hash: 1.0}
    raced = Ascent._raced

    def noting(ascent: Ascent, candidates: Any, patience: int = 1) -> Any:
        plans.append([each.actions for each in candidates])
        return raced(ascent, candidates, patience)

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        for state, actions in zip(candidates, plans[-1], strict=True):
            times[state.hash] = 0.994 ** len(saving & {rule for rule, _ in actions})
        ratios = [times[each.hash] / times[reference.hash] for each in candidates]
        verdicts = [Verdict.FASTER if ratio < 0.99 else Verdict.UNDECIDED for ratio in ratios]
        return [Outcome(each, Estimate(r, r, r), 40, 1) for each, r in zip(verdicts, ratios, strict=True)]

    monkeypatch.setattr(Ascent, "_raced", noting)
    monkeypatch.setattr(ClimbController, "compare", compare)
    found = climbed(env, SearchLimits(budget=120)).actions
    assert found and len(saving & {rule for rule, _ in found}) >= 3


def test_what_was_undecided_is_timed_longer_once_nothing_else_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the usual samples no race is decided; with more, the graph that costs least is found."""
    asked: list[tuple[str, int]] = []

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        asked.extend((each.hash, patience) for each in candidates)
        found = by_cost(climb, reference, candidates)
        return found if patience > 1 else [replace(each, verdict=Verdict.UNDECIDED) for each in found]

    monkeypatch.setattr(ClimbController, "compare", compare)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    climb = climbed(env)
    assert climb.actions and env.replay(climb.actions).cost(env.cost_model).ms < env.state.cost.ms
    assert len(asked) == len(set(asked))
    first = next(place for place, (_, patience) in enumerate(asked) if patience > 1)
    assert first > 3 and {patience for _, patience in asked[:first]} == {1}


# Journal


def interrupted_at(count: int, compare: Compare) -> Compare:
    """Returns the same, which is killed in its race number `count`."""
    races = itertools.count(1)

    def killed(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        if next(races) == count:
            raise KeyboardInterrupt
        return compare(climb, reference, candidates)

    return killed


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_killed_climb_goes_on_without_timing_anything_again(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, path = GraphSubstitutionEnv("squeezenet1.1-tiny"), tmp_path / "climb.jsonl"
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    whole = climbed(env)
    asked: list[str] = []
    monkeypatch.setattr(ClimbController, "compare", interrupted_at(count, counted(by_cost, asked)))
    with pytest.raises(KeyboardInterrupt):
        climbed(env, journal=path)
    with path.open("a") as file:
        file.write('{"kind": "timed", "gra')  # the line that it was killed in
    monkeypatch.setattr(ClimbController, "compare", counted(by_cost, asked))
    resumed = climbed(env, journal=path)
    assert len(asked) == len(set(asked)) == resumed.timed, "nothing was timed twice"
    assert resumed.actions is not None and whole.actions is not None
    costs = [env.replay(each.actions).cost(env.cost_model).ms for each in (resumed, whole)]
    assert costs[0] == pytest.approx(costs[1], rel=0.02)
    again: list[str] = []
    monkeypatch.setattr(ClimbController, "compare", counted(by_cost, again))
    assert climbed(env, journal=path).actions == resumed.actions and not again


def test_the_journal_says_what_was_timed_and_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    env, path, moves = GraphSubstitutionEnv("squeezenet1.1-tiny"), tmp_path / "climb.jsonl", list[Best]()
    climb = climbed(env, journal=path, on_faster=moves.append)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    timed, best = ([line for line in lines if line["kind"] == kind] for kind in ("timed", "best"))
    assert len(timed) == climb.timed and len({line["graph"] for line in timed}) == climb.timed
    assert [line["ratio"] for line in best] == [move.ratio for move in moves]
    assert all(before["elapsed_s"] <= after["elapsed_s"] for before, after in itertools.pairwise(lines))
    for line in timed:
        cost_ms = env.replay([tuple(action) for action in line["actions"]]).hash
        assert cost_ms == line["graph"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no json", "line 2"),
        ('{"kind": "timed", "elapsed_s": 1.0}', "'graph' is missing"),
        ('{"kind": "dreamed", "elapsed_s": 1.0}', "'dreamed' is missing or unknown"),
        ('{"kind": "proposed", "source": 5, "actions": [], "elapsed_s": 1.0}', "'source' has another type"),
        ('{"kind": "proposed", "source": "a", "actions": [[1]], "elapsed_s": 1.0}', "line 2"),
        ("[1]", "line 2"),
    ],
)
def test_a_damaged_journal_is_an_error_that_names_the_line(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    env, path = GraphSubstitutionEnv("squeezenet1.1-tiny"), tmp_path / "climb.jsonl"
    climbed(env, SearchLimits(seconds=1e-9), journal=path)
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *others]) + "\n")
    with pytest.raises(JournalError, match=said):
        climbed(env, journal=path)


def test_a_journal_of_another_climb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    path = tmp_path / "climb.jsonl"
    climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"), SearchLimits(seconds=1e-9), journal=path)
    with pytest.raises(JournalError, match="another climb"):
        climbed(GraphSubstitutionEnv("bert-base-tiny"), journal=path)


# Faults


def test_a_device_that_disappears_is_an_error_and_the_climb_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, path, races = GraphSubstitutionEnv("squeezenet1.1-tiny"), tmp_path / "climb.jsonl", itertools.count(1)

    def gone(*_: object) -> Any:
        raise ModelError("no such device")

    def compare(
        climb: ClimbController, reference: State, candidates: Sequence[State], patience: int = 1
    ) -> list[Outcome]:
        return by_cost(climb, reference, candidates) if next(races) < 3 else gone()

    monkeypatch.setattr(ClimbController, "compare", compare)
    with monkeypatch.context() as patch:
        patch.setattr(OnnxRuntime, "open", gone)
        with pytest.raises(UnavailableError, match=r"no longer runs a graph .* no such device .* repeat the command"):
            climbed(env, journal=path)
    assert '"refused"' not in path.read_text(), "that the device was gone says nothing about the graphs"
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    resumed = climbed(env, journal=path)
    assert resumed.actions and resumed.timed > 3


class Clock:
    """A clock that a test sets, and that goes on by a second whenever it is read."""

    def __init__(self, *jumps: tuple[int, float], stands_after: float = math.inf) -> None:
        self.jumps, self.readings, self.stands_after = jumps, 0, stands_after

    def __call__(self) -> float:
        self.readings += self.readings < self.stands_after
        return self.readings + sum(seconds for reading, seconds in self.jumps if self.readings >= reading)


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_jump_of_the_clock_takes_no_time_from_a_climb(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    env, limits = GraphSubstitutionEnv("squeezenet1.1-tiny"), SearchLimits(budget=300, seconds=1500.0)
    found = [climbed(env, limits, now=now) for now in (Clock(), Clock((40, seconds)))]
    assert found[0].actions == found[1].actions and found[0].timed == found[1].timed
    assert all(each.stop_reason is not None and each.stop_reason.cause is not StopCause.TIME for each in found)


def test_a_clock_that_stands_still_is_an_error_and_what_was_timed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClimbController, "compare", by_cost)
    path = tmp_path / "climb.jsonl"
    with pytest.raises(ClockError, match=r"does not go forward.*what was timed is kept"):
        climbed(GraphSubstitutionEnv("squeezenet1.1-tiny"), now=Clock(stands_after=5), journal=path)
    assert path.read_text().count('"timed"') >= 3
