"""Tests of dreams whose rewards scatter, as those of costs that are drawn from recorded timings do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import FEATURES, LENIENT, SIGNATURE, SMALL, UniformPolicy
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.noise import cost_noise, draw_keys, noise_of
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.fitting import with_untrained_dynamics
from worldmodel.from_episodes import TrainingData
from worldmodel.world_model import WorldModel

ROWS, SCALE = 3000, 5.0


@pytest.fixture(scope="module")
def noisy(world_model: WorldModel, tmp_path_factory: pytest.TempPathFactory) -> WorldModel:
    """Returns the trained model as if its episodes had been priced by drawn costs."""
    path = tmp_path_factory.mktemp("noisy") / "model"
    world_model.save(path)
    model = WorldModel.load(path, SIGNATURE)
    model.mdn_rnn.sizes = model.mdn_rnn.sizes._replace(cost_noise=SCALE)
    return model


def dreamed(
    model: WorldModel, episodes: EpisodeBuffer, plan: list[int], temperature: float = 1.0, seed: int = 0, **more: bool
) -> np.ndarray:
    """Returns the rewards [T, B] of a plan that is dreamed B times from the start."""
    config = dataclasses.replace(LENIENT, temperature=temperature, root_fraction=1.0, **more)
    dream = DreamEnv.of_episodes(model, episodes, config)
    actions = np.array(plan, np.int32)[:, np.newaxis].repeat(ROWS, axis=1)
    return dream.follow(dream.start(ROWS, tf.constant([0, seed], tf.int32)), actions).reward


def some_plan(model: WorldModel, episodes: EpisodeBuffer) -> list[int]:
    plan: list[int] = model.table.encode(episodes[0].actions[:4]).tolist()
    return plan


def with_drawn_costs(episodes: EpisodeBuffer) -> EpisodeBuffer:
    rng, found = np.random.default_rng(0), []
    for episode in episodes:
        noise = {graph: rng.laplace(0, SCALE) for graph in dict.fromkeys(episode.hashes)}
        drawn = episode.cost_ms * np.exp(np.array([noise[graph] for graph in episode.hashes]) / 100)
        rewards = -100 * np.diff(np.log(drawn))
        found.append(dataclasses.replace(episode, drawn_ms=drawn, rewards=rewards.astype(np.float32)))
    return EpisodeBuffer(episodes.rule_names, episodes.graphs, found)


def test_the_scale_is_that_of_the_drawn_costs(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    data = TrainingData.of(with_drawn_costs(split[0]), cost_in_latent=False, telescopes=True)
    model = with_untrained_dynamics(data, SIGNATURE, SMALL, GraphEncoder(SMALL.encoder, FEATURES), seed=0, datasets=[])
    assert model.mdn_rnn.sizes.cost_noise == pytest.approx(SCALE, rel=0.1)
    assert cost_noise(split[0]) == 0.0


def test_where_nodes_show_costs_rewards_are_learned_without_noise(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    drawn = TrainingData.of(with_drawn_costs(split[0]), cost_in_latent=True, telescopes=True)
    frozen = TrainingData.of(split[0], cost_in_latent=True, telescopes=True)
    assert drawn.cost_noise == pytest.approx(SCALE, rel=0.1) and frozen.cost_noise == 0.0
    for one, other in zip(drawn.scaled, frozen.scaled, strict=True):
        np.testing.assert_allclose(one.rewards, other.rewards, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(one.seen_ms, other.seen_ms)
    noisy = TrainingData.of(with_drawn_costs(split[0]), cost_in_latent=False, telescopes=True)
    assert np.abs(noisy.scaled[0].rewards - split[0][0].rewards).max() > 1.0


def test_single_rewards_and_totals_scatter_as_in_reality(
    noisy: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """Both are differences of two costs. Each has a Laplace noise, so their difference has 1.5 times its mean size."""
    plan = some_plan(noisy, split[0])
    with_noise, without = dreamed(noisy, split[0], plan), dreamed(noisy, split[0], plan, noise=False)
    noise = with_noise - without
    for each in (noise, np.cumsum(noise, axis=0)):
        np.testing.assert_allclose(np.abs(each).mean(axis=1), 1.5 * SCALE, rtol=0.08)
    assert np.corrcoef(noise[0], noise[1])[0, 1] == pytest.approx(-0.5, abs=0.08), "a high cost between two low ones"
    assert not np.allclose(dreamed(noisy, split[0], plan, seed=1), with_noise)


def test_noise_can_be_left_out(
    noisy: WorldModel, world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    plan = some_plan(noisy, split[0])
    for settings in ({"noise": False}, {"telescoping": False}):
        np.testing.assert_array_equal(
            dreamed(noisy, split[0], plan, **settings), dreamed(world_model, split[0], plan, **settings)
        )
    np.testing.assert_array_equal(dreamed(noisy, split[0], plan, 0.0), dreamed(world_model, split[0], plan, 0.0))


def test_a_state_has_its_noise_again_and_noop_none(
    noisy: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    keys, states = draw_keys(ROWS, tf.constant([1, 2])), tf.fill([ROWS], tf.constant(12345.0, tf.float64))
    np.testing.assert_array_equal(noise_of(keys, states), noise_of(keys, states))
    assert np.abs(np.corrcoef(noise_of(keys, states), noise_of(keys, states + 1.0))[0, 1]) < 0.1
    one_key = noise_of(tf.repeat(keys[:1], ROWS), tf.range(ROWS, dtype=tf.float64))
    assert np.abs(one_key).mean() == pytest.approx(1.0, rel=0.08) and len(np.unique(one_key)) == ROWS
    plan = [*some_plan(noisy, split[0])[:1], noisy.num_actions]
    np.testing.assert_array_equal(dreamed(noisy, split[0], plan)[1], dreamed(noisy, split[0], plan, noise=False)[1])


def test_rollouts_scatter_and_such_a_model_is_stored(
    noisy: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    noisy.save(tmp_path / "model")
    again = WorldModel.load(tmp_path / "model", SIGNATURE)
    found = []
    for each, noise in ((noisy, True), (again, True), (again, False)):
        dream = DreamEnv.of_episodes(each, split[0], dataclasses.replace(LENIENT, noise=noise))
        found.append(dream.rollout(UniformPolicy(), batch=64, horizon=4, seed=3).reward.numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).mean() > 1.0
