"""Tests of the replay of episodes whose rewards are made of drawn costs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from controller.evaluation import play_episode
from controller.search.one_step import RandomController
from environment import GraphSubstitutionEnv
from environment.costs.measured.cost_model import Measured
from experiments.pipeline.learning.collect import as_record
from experiments.validation.replayed_episodes import Claim, Replay, Tolerance
from tests.environment.costs.fake_kernels import price_without_a_clock
from worldmodel.data.episodes import collect, reset_seed


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GraphSubstitutionEnv:
    """An environment with made-up prices, of which rewards are drawn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    price_without_a_clock(monkeypatch)
    return GraphSubstitutionEnv("squeezenet1.1-tiny", costs=Measured("cpu", noise="resampled"), max_steps=5)


def test_drawn_rewards_are_drawn_again(env: GraphSubstitutionEnv) -> None:
    record = play_episode(env, RandomController(0.0), seed=7)
    replay = Replay(env, Tolerance())
    assert env.draws_costs and replay.of(Claim("played", record, record.seed)) is None
    assert record.graph_hash in replay.hashes and len(replay.hashes) > 1
    rewards = (*record.rewards[:2], record.rewards[2] + 0.1, *record.rewards[3:])
    changed = dataclasses.replace(record, rewards=rewards)
    difference = replay.of(Claim("changed", changed, record.seed))
    assert difference is not None and (difference.step, difference.what) == (2, "the reward")
    other = replay.of(Claim("of another seed", record, record.seed + 1))
    assert other is not None and other.what == "the reward"
    unknown = Claim("of no known seed", changed, None)
    assert replay.of(unknown) is None and not replay.compares_rewards(unknown)


def test_the_seed_of_a_collected_episode_follows_from_that_of_the_collection(env: GraphSubstitutionEnv) -> None:
    buffer = collect(env, num_episodes=2, seed=5, first=3)
    replay = Replay(env, Tolerance())
    for episode in buffer:
        record = as_record(episode, buffer.rule_names, "collection")
        assert replay.of(Claim("collected", record, reset_seed(5, episode.index), episode)) is None
        found = replay.of(Claim("collected", record, reset_seed(6, episode.index), episode))
        assert found is not None and found.what == "the reward"
