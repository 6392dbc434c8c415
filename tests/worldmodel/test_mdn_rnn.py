from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from toy_world import SMALL

from worldmodel.actions import ActionTable
from worldmodel.episodes import EpisodeBuffer
from worldmodel.fit import make_mdn_rnn
from worldmodel.mdn_rnn import MdnRnn, Prediction
from worldmodel.reward_table import mean_reward_per_action
from worldmodel.world_model import WorldModel


@pytest.fixture(scope="module")
def table(episodes: EpisodeBuffer) -> ActionTable:
    return episodes.action_table()


@pytest.fixture(scope="module")
def untrained(episodes: EpisodeBuffer, table: ActionTable) -> MdnRnn:
    tf.random.set_seed(0)
    return make_mdn_rnn(SMALL.mdn_rnn, episodes, table, 8)


def some_step(model: MdnRnn, n: int = 64, seed: int = 0) -> tuple[Prediction, np.ndarray, np.ndarray]:
    """A prediction from random latents, actions and masks; and those actions and masks."""
    generator = np.random.default_rng(seed)
    actions = generator.integers(0, model.num_actions + 1, n).astype(np.int32)
    mask = generator.random((n, model.num_actions + 1)) < 0.5
    z, codes = tf.random.stateless_normal([n, 8], [seed, 1]), model.action_codes()
    h = model.advance(z, tf.constant(actions), model.initial_state(n), codes).hidden
    return model.predict(h, z, tf.constant(actions), tf.constant(mask, tf.float32), codes), actions, mask


def test_unrolling_is_one_lstm_step_per_step(world_model: WorldModel) -> None:
    model, codes = world_model.mdn_rnn, world_model.mdn_rnn.action_codes()
    z = tf.random.stateless_normal([5, 3, 8], [1, 2])
    actions = tf.random.stateless_uniform([5, 3], [3, 4], maxval=model.num_actions + 1, dtype=tf.int32)
    states, state = model.unroll(z, actions, codes), model.initial_state(3)
    for t in range(5):
        state = model.advance(z[t], actions[t], state, codes)
        np.testing.assert_allclose(states.hidden[t], state.hidden, atol=1e-6)
        np.testing.assert_allclose(states.cell[t], state.cell, atol=1e-6)


def test_before_training_bits_keep_their_value_outside_the_neighbourhood(untrained: MdnRnn) -> None:
    prediction, actions, mask = some_step(untrained)
    kept = untrained.next_mask(prediction).numpy() == mask
    reached = untrained._neighbourhood.neighbours.numpy()[actions]
    for row, slots in zip(kept, reached, strict=True):
        outside = np.setdiff1d(np.arange(untrained.num_actions), slots)
        assert row[outside].all()


def test_noop_is_always_legal(world_model: WorldModel) -> None:
    prediction, _, _ = some_step(world_model.mdn_rnn)
    assert world_model.mdn_rnn.next_mask(prediction).numpy()[:, -1].all()


def test_before_training_rewards_are_the_mean_of_the_data(
    untrained: MdnRnn, episodes: EpisodeBuffer, table: ActionTable
) -> None:
    prediction, actions, _ = some_step(untrained)
    np.testing.assert_allclose(prediction.reward, mean_reward_per_action(episodes, table)[actions], atol=1e-5)


def test_log_scales_are_bounded_whatever_the_input(world_model: WorldModel) -> None:
    model, codes = world_model.mdn_rnn, world_model.mdn_rnn.action_codes()
    wild = tf.constant(np.random.default_rng(0).normal(size=(20, 8)) * 1e6, tf.float32)
    actions, mask = tf.zeros([20], tf.int32), tf.ones([20, model.num_actions + 1])
    h = model.advance(wild, actions, model.initial_state(20), codes).hidden
    low, high = model.config.log_sigma_range
    log_sigmas = model.predict(h, wild, actions, mask, codes).latent.log_sigmas.numpy()
    assert np.all((log_sigmas >= low) & (log_sigmas <= high))


def test_ids_enter_through_embeddings_only(episodes: EpisodeBuffer, table: ActionTable) -> None:
    """Sites renumbered by a permutation, with their embeddings moved along, give the same predictions."""
    tf.random.set_seed(0)
    model = make_mdn_rnn(SMALL.mdn_rnn, episodes, table, 8)
    before, _, _ = some_step(model)
    embedding = model._actions._site_embedding.embeddings
    order = np.random.default_rng(0).permutation(table.num_sites)
    embedding.assign(tf.gather(embedding, order))
    model._actions._sites = tf.constant(np.argsort(order)[table.sites], tf.int32)
    after, _, _ = some_step(model)
    np.testing.assert_allclose(after.reward, before.reward, atol=1e-5)
    np.testing.assert_allclose(after.mask_logits, before.mask_logits, atol=1e-4)
