from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import FEATURES, SIGNATURE, SMALL
from worldmodel.config import MdnRnnConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.heads import RewardPrediction
from worldmodel.dynamics.mask_head import next_mask
from worldmodel.dynamics.mdn_rnn import Predictions
from worldmodel.dynamics.start_graphs import ActionCodes
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.fitting import with_untrained_dynamics
from worldmodel.from_episodes import TrainingData
from worldmodel.world_model import WorldModel


def make_untrained(episodes: EpisodeBuffer, config: MdnRnnConfig = SMALL.mdn_rnn) -> WorldModel:
    tf.random.set_seed(0)
    settings = dataclasses.replace(SMALL, mdn_rnn=config)
    encoder = GraphEncoder(SMALL.encoder, FEATURES)
    data = TrainingData.of(episodes, cost_in_latent=False, telescopes=True)
    return with_untrained_dynamics(data, SIGNATURE, settings, encoder, seed=0, datasets=[])


@pytest.fixture(scope="module")
def untrained(episodes: EpisodeBuffer) -> WorldModel:
    return make_untrained(episodes)


def codes_of(model: WorldModel) -> ActionCodes:
    return model.mdn_rnn.action_codes(model.inputs(model.start_graph()))


def some_step(
    model: WorldModel, n: int = 64, seed: int = 0, codes: ActionCodes | None = None
) -> tuple[Predictions, np.ndarray, np.ndarray]:
    """A prediction from random latents, actions and masks; and those actions and masks."""
    generator = np.random.default_rng(seed)
    actions = generator.integers(0, model.num_actions + 1, n).astype(np.int32)
    mask = generator.random((n, model.num_actions + 1)) < 0.5
    z, codes, dynamics = tf.random.stateless_normal([n, 8], [seed, 1]), codes or codes_of(model), model.mdn_rnn
    h = dynamics.advance(z, tf.constant(actions), dynamics.initial_state(n), codes).hidden
    legal, past = tf.constant(mask, tf.float32), tf.zeros(mask.shape)
    (prediction, *_) = dynamics.predict(h, z, tf.constant(actions), legal, past, codes)
    return prediction, actions, mask


def test_unrolling_is_one_lstm_step_per_step(world_model: WorldModel) -> None:
    model, codes = world_model.mdn_rnn, codes_of(world_model)
    z = tf.random.stateless_normal([5, 3, 8], [1, 2])
    actions = tf.random.stateless_uniform([5, 3], [3, 4], maxval=world_model.num_actions + 1, dtype=tf.int32)
    states, state = model.unroll(z, actions, codes), model.initial_state(3)
    for t in range(5):
        state = model.advance(z[t], actions[t], state, codes)
        np.testing.assert_allclose(states.hidden[t], state.hidden, atol=1e-6)
        np.testing.assert_allclose(states.cell[t], state.cell, atol=1e-6)


def test_before_training_bits_keep_their_value_outside_the_neighbourhood(untrained: WorldModel) -> None:
    prediction, actions, mask = some_step(untrained)
    after = next_mask(prediction["mask"], 0.0, codes_of(untrained).inputs.actions).numpy()
    kept = after == np.concatenate([mask[:, :-1], np.ones((64, 1), bool)], axis=1)
    reached = untrained.start_graph().neighbours.slots[actions]
    for row, slots in zip(kept, reached, strict=True):
        outside = np.setdiff1d(np.arange(untrained.num_actions), slots)
        assert row[outside].all()


def test_noop_is_always_legal(world_model: WorldModel) -> None:
    prediction, _, _ = some_step(world_model)
    assert next_mask(prediction["mask"], 0.0, codes_of(world_model).inputs.actions).numpy()[:, -1].all()


def test_before_training_rewards_are_the_mean_of_the_data(untrained: WorldModel) -> None:
    prediction, actions, _ = some_step(untrained)
    mean = untrained.start_graph().rewards.mean
    np.testing.assert_allclose(prediction["reward"].earned, mean[actions], atol=1e-5)


def test_log_scales_are_bounded_whatever_the_input(world_model: WorldModel) -> None:
    model, codes = world_model.mdn_rnn, codes_of(world_model)
    wild = tf.constant(np.random.default_rng(0).normal(size=(20, 8)) * 1e6, tf.float32)
    actions, mask = tf.zeros([20], tf.int32), tf.ones([20, world_model.num_actions + 1])
    h = model.advance(wild, actions, model.initial_state(20), codes).hidden
    low, high = model.config.log_sigma_range
    log_sigmas = model.predict(h, wild, actions, mask, tf.zeros_like(mask), codes)[0]["latent"].log_sigmas.numpy()
    assert np.all((log_sigmas >= low) & (log_sigmas <= high))


def test_ids_enter_through_embeddings_only(episodes: EpisodeBuffer) -> None:
    """Sites renumbered by a permutation, with their embeddings moved along, give the same predictions."""
    model = make_untrained(episodes)
    before, _, _ = some_step(model)
    embedding = model.mdn_rnn._embedding._actions._sites.embeddings
    order = np.random.default_rng(0).permutation(embedding.shape[0])
    embedding.assign(tf.gather(embedding, order))
    inputs = model.inputs(model.start_graph())
    sites = tf.constant(np.argsort(order)[inputs.actions.sites.numpy()], tf.int32)
    moved = inputs._replace(actions=inputs.actions._replace(sites=sites))
    after, _, _ = some_step(model, codes=model.mdn_rnn.action_codes(moved))
    np.testing.assert_allclose(after["reward"].earned, before["reward"].earned, atol=1e-5)
    np.testing.assert_allclose(after["mask"], before["mask"], atol=1e-4)


def test_a_separate_reward_head_leaves_the_others_alone(episodes: EpisodeBuffer) -> None:
    """The reward's gradient reaches no layer that the mask and the terminal are predicted by."""
    model = make_untrained(episodes, dataclasses.replace(SMALL.mdn_rnn, reward_head="separate"))
    (member,) = model.mdn_rnn.members
    codes = codes_of(model)
    some_step(model, codes=codes)
    shared = [*member._shared.trainable_variables, *member._outcome.trainable_variables]
    h, z = tf.random.stateless_normal([9, SMALL.mdn_rnn.hidden], [0, 2]), tf.random.stateless_normal([9, 8], [0, 3])
    bits = [9, model.num_actions + 1]
    arguments = h, z, tf.zeros([9], tf.int32), tf.ones(bits), tf.zeros(bits), codes
    with tf.GradientTape(persistent=True) as tape:
        (prediction,) = model.mdn_rnn.predict(*arguments)
    assert all(gradient is None for gradient in tape.gradient(prediction["reward"].earned, shared))
    assert all(gradient is None for gradient in tape.gradient(prediction["reward"].idle_logit, shared))
    own = tape.gradient(prediction["reward"].earned, member.reward._network.trainable_variables)
    assert all(gradient is not None for gradient in own)
    assert any(gradient is not None for gradient in tape.gradient(prediction["terminal"], shared))


def test_what_likely_earns_nothing_earns_exactly_nothing() -> None:
    prediction = RewardPrediction(tf.constant([2.0, -0.3, 0.1]), tf.constant([-1.0, 0.5, -0.1]))
    np.testing.assert_array_equal(prediction.likely, np.array([2.0, 0.0, 0.1], np.float32))
