"""Tests of dreams whose rewards scatter, as those of costs that are drawn from recorded timings do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import LENIENT, SIGNATURE, SMALL, UniformPolicy
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.noise import cost_noise, draw_keys, noise_of
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

ROWS, SCALE = 3000, 5.0


def drawn(episodes: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with costs that are drawn once for each graph of an episode."""
    rng, found = np.random.default_rng(0), []
    for episode in episodes:
        noise = {graph: rng.laplace(0, SCALE) for graph in dict.fromkeys(episode.hashes)}
        percent = np.array([noise[graph] for graph in episode.hashes])
        rewards = (episode.rewards - np.diff(percent)).astype(np.float32)
        costs = episode.cost_ms * np.exp(percent / 100)
        found.append(dataclasses.replace(episode, rewards=rewards, drawn_ms=costs))
    return EpisodeBuffer(episodes.rule_names, episodes.graphs, found)


@pytest.fixture(scope="module")
def noisy(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> EpisodeBuffer:
    return drawn(split[0])


@pytest.fixture(scope="module")
def model(noisy: EpisodeBuffer) -> WorldModel:
    """Returns a model that knows that rewrites change what is legal: a state that looks the same is the same."""
    certain = dataclasses.replace(SMALL.mdn_rnn, dynamics="deterministic")
    return fit(noisy, SIGNATURE, dataclasses.replace(SMALL, mdn_rnn=certain), seed=0)


def dreamed(
    model: WorldModel,
    episodes: EpisodeBuffer,
    plan: list[int],
    temperature: float = 1.0,
    seed: int = 0,
    **settings: bool,
) -> np.ndarray:
    """Returns the rewards [T, B] of a plan that is dreamed B times from the start."""
    config = dataclasses.replace(LENIENT, temperature=temperature, root_fraction=1.0, **settings)
    dream = DreamEnv.of_episodes(model, episodes, config)
    actions = np.array(plan, np.int32)[:, np.newaxis].repeat(ROWS, axis=1)
    return dream.follow(dream.start(ROWS, tf.constant([0, seed], tf.int32)), actions).reward


def some_plan(model: WorldModel, episodes: EpisodeBuffer) -> list[int]:
    return model.table.encode(episodes[0].actions[:4]).tolist()


def test_the_scale_is_that_of_the_drawn_costs(split: tuple[EpisodeBuffer, EpisodeBuffer], model: WorldModel) -> None:
    assert cost_noise(split[0]) == 0.0
    assert model.mdn_rnn.sizes.cost_noise == pytest.approx(SCALE, rel=0.1)


def test_single_rewards_and_totals_scatter_as_in_reality(model: WorldModel, noisy: EpisodeBuffer) -> None:
    """Both are differences of two costs. Each has a Laplace noise, so their difference has 1.5 times its mean size."""
    plan = some_plan(model, noisy)
    exact, warm, hot = (dreamed(model, noisy, plan, temperature) for temperature in (0.0, 1.0, 2.0))
    assert np.allclose(exact, exact[:, :1]), "nothing is drawn at temperature 0"
    noise = warm - exact
    np.testing.assert_allclose(hot - exact, 2 * noise, atol=1e-3)
    for each in (noise, np.cumsum(noise, axis=0)):
        np.testing.assert_allclose(np.abs(each).mean(axis=1), 1.5 * model.mdn_rnn.sizes.cost_noise, rtol=0.08)
    assert np.corrcoef(noise[0], noise[1])[0, 1] == pytest.approx(-0.5, abs=0.08), "a high cost between two low ones"
    assert not np.allclose(dreamed(model, noisy, plan, seed=1), warm)


@pytest.mark.parametrize("settings", [{"noise": False}, {"telescoping": False}])
def test_noise_can_be_left_out(model: WorldModel, noisy: EpisodeBuffer, settings: dict[str, bool]) -> None:
    plan = some_plan(model, noisy)
    np.testing.assert_array_equal(dreamed(model, noisy, plan, **settings), dreamed(model, noisy, plan, 0.0, **settings))


def test_a_state_has_its_noise_again_and_noop_none(model: WorldModel, noisy: EpisodeBuffer) -> None:
    keys, states = draw_keys(ROWS, tf.constant([1, 2])), tf.fill([ROWS], tf.constant(12345.0, tf.float64))
    np.testing.assert_array_equal(noise_of(keys, states), noise_of(keys, states))
    assert np.abs(np.corrcoef(noise_of(keys, states), noise_of(keys, states + 1.0))[0, 1]) < 0.1
    one_key = noise_of(tf.repeat(keys[:1], ROWS), tf.range(ROWS, dtype=tf.float64))
    assert np.abs(one_key).mean() == pytest.approx(1.0, rel=0.08) and len(np.unique(one_key)) == ROWS
    plan = [*some_plan(model, noisy)[:1], model.num_actions]
    np.testing.assert_array_equal(dreamed(model, noisy, plan)[1], dreamed(model, noisy, plan, 0.0)[1])


def test_rollouts_scatter_too_and_such_a_model_is_stored(
    model: WorldModel, noisy: EpisodeBuffer, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    again = WorldModel.load(tmp_path / "model", SIGNATURE)
    found = []
    for each, noise in ((model, True), (again, True), (again, False)):
        dream = DreamEnv.of_episodes(each, noisy, dataclasses.replace(LENIENT, noise=noise))
        found.append(dream.rollout(UniformPolicy(), batch=64, horizon=4, seed=3).reward.numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).mean() > 1.0
