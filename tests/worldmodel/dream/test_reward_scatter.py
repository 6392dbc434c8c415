"""Tests of rewards that scatter, as those of costs that are drawn from recorded timings do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import LENIENT, QUICK, SIGNATURE
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dynamics.heads import RewardPrediction, reward_loss
from worldmodel.fitting import fit, refit
from worldmodel.world_model import WorldModel

ROWS, STEPS = 2000, 5
SCATTERING = dataclasses.replace(QUICK.mdn_rnn, reward_scatter=True, dynamics="deterministic")


@pytest.fixture(scope="module", params=["step", "state"])
def model(request: pytest.FixtureRequest, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    dynamics = dataclasses.replace(SCATTERING, features=request.param)
    return fit(split[0], SIGNATURE, dataclasses.replace(QUICK, mdn_rnn=dynamics), seed=0)


def totals(model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer], temperature: float, seed: int) -> np.ndarray:
    """Returns the sums of rewards [T, B] of one plan that is dreamed B times from the start."""
    config = dataclasses.replace(LENIENT, temperature=temperature, telescoping=False, root_fraction=1.0)
    dream = DreamEnv.of_episodes(model, split[0], config)
    state = dream.start(ROWS, tf.constant([0, 0], tf.int32))
    plan = np.random.default_rng(1).integers(0, model.num_actions, (STEPS, 1)).astype(np.int32)
    return np.cumsum(dream.follow(state, plan.repeat(ROWS, axis=1), seed).reward, axis=0)


def test_totals_scatter_as_much_as_single_rewards(
    model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """Each state's cost has one noise, so that nothing adds up; a Laplace distribution has √2 times its scale."""
    exact, warm, hot = (totals(model, split, temperature, 0) for temperature in (0.0, 1.0, 2.0))
    assert np.allclose(exact, exact[:, :1]), "nothing is drawn at temperature 0"
    noise = warm - exact
    np.testing.assert_allclose(hot - exact, 2 * noise, atol=1e-3)
    scatter = noise.std(axis=1) / np.sqrt(2)
    assert (scatter > 0.1).all()
    assert np.abs(np.corrcoef(noise) - np.eye(STEPS)).max() < 0.1, "nothing adds up"
    np.testing.assert_allclose(np.abs(noise).mean(axis=1), scatter, rtol=0.1)
    assert not np.allclose(totals(model, split, 1.0, 7), warm)


def test_noop_earns_no_noise(model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    dream = DreamEnv.of_episodes(model, split[0], dataclasses.replace(LENIENT, telescoping=False))
    state = dream.start(8, tf.constant([0, 0], tf.int32))
    reached, _, _ = dream.step(state, tf.zeros([8], tf.int32), tf.constant([0, 1]))
    noop = tf.fill([8], model.num_actions)
    stayed, reward, _ = dream.step(reached, noop, tf.constant([0, 2]))
    assert np.abs(reached.noise).min() > 0
    np.testing.assert_array_equal(stayed.noise, reached.noise)
    _, without, _ = dream.step(reached._replace(noise=tf.zeros([8])), noop, tf.constant([0, 2]))
    np.testing.assert_array_equal(reward, without)


def test_the_likeliest_scatter_is_the_mean_error() -> None:
    errors = tf.constant(np.random.default_rng(0).laplace(0, 3.0, 4000), tf.float32)
    scales = np.linspace(1.0, 6.0, 51)
    losses = [
        float(tf.reduce_mean(reward_loss(RewardPrediction(errors, errors, scale * tf.ones(4000)), 0.0 * errors, 2.0)))
        for scale in scales.astype(np.float32)
    ]
    assert scales[int(np.argmin(losses))] == pytest.approx(float(tf.reduce_mean(tf.abs(errors))), abs=0.15)


def test_such_a_model_is_stored_and_learns_further(
    model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    again = WorldModel.load(tmp_path / "model", SIGNATURE)
    assert again.mdn_rnn.config.reward_scatter
    np.testing.assert_array_equal(totals(again, split, 1.0, 0), totals(model, split, 1.0, 0))
    further = refit(again, split[0], QUICK.mdn_rnn_training, seed=1)
    assert np.isfinite(totals(further, split, 1.0, 0)).all()
