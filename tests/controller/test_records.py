from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.evaluation import ReplayError, play_episode, replay_record
from controller.records import (
    EpisodeLog,
    EpisodeRecord,
    best_improvement,
    best_record,
    independent_noise,
    is_improvement,
)
from controller.search.one_step import RandomController
from environment import GraphSubstitutionEnv

COSTS = st.lists(st.floats(0.1, 100.0), min_size=1, max_size=8)


def record(costs_ms: list[float], **fields: Any) -> EpisodeRecord:
    steps = range(len(costs_ms) - 1)
    actions = tuple((step, 2 * step) for step in steps)
    names, rewards = tuple(f"rule-{step}" for step in steps), tuple(0.5 for _ in steps)
    logs = {"actions": actions, "rule_names": names, "rewards": rewards, "costs_ms": tuple(costs_ms)}
    return EpisodeRecord(**{"kind": "sampled", "seed": 3, **logs, "terminated": True, "truncated": False, **fields})


@settings(deadline=None)
@given(COSTS)
def test_best_is_the_cheapest_graph_visited_and_its_prefix_leads_there(costs_ms: list[float]) -> None:
    episode = record(costs_ms)
    assert episode.best_cost_ms == pytest.approx(min(costs_ms), rel=1e-8)
    assert episode.costs_ms[len(episode.best_actions)] == episode.best_cost_ms
    assert 0 <= episode.improvement == 1 - episode.best_cost_ms / costs_ms[0] < 1


def test_rounding_is_no_improvement_however_often_it_is_repeated() -> None:
    costs_ms = [10.0 * (1 - 4e-10) ** step for step in range(3)]
    assert record(costs_ms).improvement == 0
    assert record(costs_ms).best_actions == ()
    assert not is_improvement(10.0 * (1 - 1e-10), 10.0)
    assert is_improvement(10.0 * (1 - 1e-8), 10.0)


def test_many_steps_below_the_resolution_may_add_up() -> None:
    costs_ms = [10.0 * (1 - 4e-10) ** step for step in range(100)]
    assert record(costs_ms).improvement == pytest.approx(99 * 4e-10, rel=0.05)


@pytest.mark.parametrize("name", ["no-op", "NO-OP"])
def test_a_graph_that_noop_has_measured_is_reached_without_it(name: str) -> None:
    """Costs that are measured every few steps, and at the end, show what a rewrite saves only then."""
    episode = record([4.0, 4.0, 4.0, 3.0], rule_names=("a", "b", name))
    assert episode.best_step == 3 and episode.improvement == 0.25
    assert episode.best_actions == episode.actions[:2] and episode.action_names[:2] == ("a", "b")


def test_of_equal_graphs_the_first_counts() -> None:
    assert record([4.0, 3.0, 3.0 * (1 - 1e-12), 5.0]).best_step == 1
    first, second = record([4.0, 3.0], seed=1), record([4.0, 3.0 - 1e-12], seed=2)
    assert best_record([first, second]) is first
    assert best_record([]) is None
    assert best_improvement([]) == 0


@given(st.floats(0.2, 5.0))
def test_the_best_record_has_the_best_ratio_whatever_the_clock_said_that_day(speed: float) -> None:
    better, worse = record([4.0, 2.0], seed=1), record([4.0 * speed, 3.0 * speed], seed=2)
    assert best_record([worse, better]) is better and best_record([better, worse]) is better


@settings(deadline=None)
@given(COSTS, st.booleans(), st.booleans())
def test_json_round_trip(costs_ms: list[float], terminated: bool, truncated: bool) -> None:
    episode = record(costs_ms, terminated=terminated, truncated=truncated)
    assert EpisodeRecord.from_json(json.loads(json.dumps(episode.to_json()))) == episode


def test_records_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="2 costs"):
        record([3.0, 2.0], rewards=())
    fields = record([3.0, 2.0]).to_json()
    with pytest.raises(ValueError, match="fields"):
        EpisodeRecord.from_json({**fields, "score": 1})


def measured(costs_ms: list[float], cost_noise: list[float], reward_noise: list[float]) -> EpisodeRecord:
    """Returns a record that is logged step by step from the facts that an environment returns."""
    first, *rest = [{"cost_ms": ms, "cost_noise": noise} for ms, noise in zip(costs_ms, cost_noise, strict=True)]
    log = EpisodeLog("sampled", 0, first)
    for info, noise in zip(rest, reward_noise, strict=True):
        log.add((0, 0), 1.0, False, True, {**info, "reward_noise": noise, "rule_name": "rule"})
    return log.record()


def test_noise_is_kept_and_says_how_sure_the_improvement_is() -> None:
    found = measured([4.0, 3.0, 3.5], [0.0, 0.02, 0.05], [2.0, 6.5])
    assert (found.cost_noise, found.reward_noise) == ((0.0, 0.02, 0.05), (2.0, 6.5))
    assert found.improvement_noise == pytest.approx(0.75 * 0.02)
    assert measured([4.0, 3.0], [0.03, 0.04], [1.0]).improvement_noise == pytest.approx(0.75 * 0.05)
    assert measured([4.0, 5.0], [0.03, 0.04], [1.0]).improvement_noise == 0, "the start graph beside itself"
    assert found.until(1) == measured([4.0, 3.0], [0.0, 0.02], [2.0])
    assert EpisodeRecord.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_what_two_costs_share_does_not_make_their_ratio_unsure() -> None:
    first = {"cost_ms": 4.0, "cost_noise": 0.1, "ratio_noise": 0.0}
    log = EpisodeLog("sampled", 0, first)
    log.add((0, 0), 1.0, False, True, {"cost_ms": 3.0, "cost_noise": 0.1, "ratio_noise": 0.01, "rule_name": "rule"})
    found = log.record()
    assert found.improvement_noise == 0.01 < independent_noise(0.75, 0.1, 0.1)
    assert found.until(0).improvement_noise == 0
    assert EpisodeRecord.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_exact_costs_have_no_noise_nor_had_older_records() -> None:
    exact = measured([4.0, 3.0], [0.0, 0.0], [0.0])
    assert exact.cost_noise == exact.reward_noise == () and exact.improvement_noise == exact.noise_at(1) == 0
    newer = {"cost_noise", "reward_noise", "graph_hash", "rules", "ratio_noise"}
    older = {name: value for name, value in exact.to_json().items() if name not in newer}
    assert EpisodeRecord.from_json(older) == exact


def test_a_record_says_where_it_can_be_replayed() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=2)
    found = play_episode(env, RandomController(), seed=0)
    assert (found.graph_hash, found.rules) == (env.model.graph.hash, env.rules.fingerprint)
    assert found.until(1).rules == found.rules
    assert EpisodeRecord.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("fields", [{"cost_noise": (0.1,)}, {"reward_noise": (0.1, 0.1)}, {"ratio_noise": (0.1,)}])
def test_noise_is_of_every_step_or_of_none(fields: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="noise"):
        record([4.0, 3.0], **fields)


def test_an_everywhere_action_is_one_step_of_several_actions() -> None:
    """What an environment without everywhere-actions replays has the same costs after each step."""
    env, agent = GraphSubstitutionEnv("bert-base-tiny", max_steps=5), RandomController(0.0, 0.5)
    episode = play_episode(env, agent, seed=1)
    assert max(episode.everywhere) > 1 and episode.num_steps == 5
    assert len(episode.actions) == len(episode.action_names) == sum(max(1, count) for count in episode.everywhere)
    single = GraphSubstitutionEnv("bert-base-tiny", max_steps=99, everywhere=False)
    replay_record(single, episode)
    assert EpisodeRecord.from_json(json.loads(json.dumps(episode.to_json()))) == episode
    played = episode.played(env.num_locations)
    assert env.replay(played).hash == env.replay(episode.actions).hash == env.state.hash
    for step in range(6):
        until = episode.until(step)
        assert until.num_steps == step and env.replay(until.actions).hash == env.replay(played[:step]).hash
    with pytest.raises(ValueError, match="has none"):
        episode.played(None)
    wrong = dataclasses.replace(episode, costs_ms=(*episode.costs_ms[:-1], 99.0))
    with pytest.raises(ReplayError, match=r"99\.0 ms"):
        replay_record(single, wrong)
    with pytest.raises(ValueError, match="everywhere-actions carried out"):
        dataclasses.replace(episode, actions=episode.actions[:-1])
