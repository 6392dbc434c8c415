"""`MdnRnnConfig.features` "state": heads read z and h alone, as in the papers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.tracing import untraced
from tests.worldmodel.toy_world import SIGNATURE, SMALL
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.fitting import fit, refit
from worldmodel.world_model import WorldModel

STATE = dataclasses.replace(
    SMALL,
    encoder_training=dataclasses.replace(SMALL.encoder_training, steps=5),
    mdn_rnn=dataclasses.replace(SMALL.mdn_rnn, features="state", neighbours=0, hold_changes=False),
    mdn_rnn_training=dataclasses.replace(SMALL.mdn_rnn_training, steps=60),
)
N = 16


@pytest.fixture(scope="module")
def losses() -> list[float]:
    """Of the reward, step by step; filled while `published` is trained."""
    return []


@pytest.fixture(scope="module")
def published(episodes: EpisodeBuffer, losses: list[float]) -> WorldModel:
    def note(stage: str, metrics: dict[str, float]) -> None:
        if stage == "mdn_rnn":
            losses.append(metrics["reward"])

    return fit(episodes, SIGNATURE, STATE, seed=0, on_step=note)


def test_predictions_read_z_and_h_alone(published: WorldModel) -> None:
    dynamics = published.mdn_rnn
    codes = dynamics.action_codes(published.inputs(published.start_graph()))
    h, z = tf.random.stateless_normal([N, 48], [0, 1]), tf.random.stateless_normal([N, 8], [0, 2])
    rng = np.random.default_rng(0)

    def some_prediction() -> dict[str, object]:
        actions = tf.constant(rng.integers(0, published.num_actions + 1, N), tf.int32)
        legal, past = (tf.constant(rng.random((N, published.num_actions + 1)) < 0.5, tf.float32) for _ in range(2))
        (prediction,) = dynamics.predict(h, z, actions, legal, past, codes)
        return {name: part for name, part in prediction.items() if name != "taken"}

    one, other = some_prediction(), some_prediction()
    assert set(one) == {"latent", "reward", "terminal", "mask"}
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_the_network_learns_rewards(published: WorldModel, losses: list[float]) -> None:
    """The start is a network that knows nothing, whose loss is half the variance and its mean squared."""
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:3])


def test_it_is_saved_and_goes_on_learning(published: WorldModel, episodes: EpisodeBuffer, tmp_path: Path) -> None:
    published.save(tmp_path / "model")
    loaded = WorldModel.load(tmp_path / "model", SIGNATURE)
    with untraced():
        again = refit(loaded, episodes, dataclasses.replace(STATE.mdn_rnn_training, steps=0), seed=1)
    for one, other in zip(published.mdn_rnn.variables, again.mdn_rnn.variables, strict=True):
        np.testing.assert_array_equal(one, other)
