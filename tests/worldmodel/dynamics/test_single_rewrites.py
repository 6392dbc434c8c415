"""An everywhere-step does what its single rewrites do, whether it is learned from, dreamed or compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from tests.worldmodel.golden_world_model import TINY
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dynamics.mask_head import next_mask
from worldmodel.dynamics.reward_table import ActionRewards
from worldmodel.dynamics.single_rewrites import MATCHES_OF_STEP, CarriedOut, Neighbourhood
from worldmodel.dynamics.start_graphs import ActionCodes
from worldmodel.fitting import fit
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

STEPS = 40
"""Enough that a step has more matches than a chunk on average, since all of them are everywhere."""


@pytest.fixture(scope="module")
def buffer() -> EpisodeBuffer:
    env = GraphSubstitutionEnv("bert-base-tiny", max_steps=6, strict=True)
    return collect(env, RandomAgent(0, 0.0, everywhere_probability=0.5), 12, seed=0)


@pytest.fixture(scope="module")
def model(buffer: EpisodeBuffer) -> WorldModel:
    env = GraphSubstitutionEnv("bert-base-tiny", max_steps=6, strict=True)
    return fit(buffer, Signature.of(env), TINY, seed=0)


@pytest.fixture(scope="module")
def codes(model: WorldModel) -> ActionCodes:
    return model.mdn_rnn.action_codes(model.inputs(model.start_graph()))


@pytest.fixture(scope="module")
def neighbourhood(model: WorldModel) -> Neighbourhood:
    near = model.mdn_rnn.members[0].mask.neighbourhood
    assert near is not None
    generator = np.random.default_rng(1)
    for weights in near.trainable_variables:
        weights.assign(generator.standard_normal(weights.shape) / 3.0)
    return near


@pytest.fixture(scope="module")
def steps(model: WorldModel) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, everywhere-actions, masks in which about half of all actions are legal, and what is past."""
    generator, table = np.random.default_rng(2), model.table
    action = generator.choice(np.flatnonzero(table.is_everywhere), STEPS).astype(np.int32)
    legal = generator.random((STEPS, table.num_actions + 1)) < 0.5
    past = ~legal & (generator.random(legal.shape) < 0.3)
    features = generator.standard_normal((STEPS, model.mdn_rnn.config.neighbour_hidden)).astype(np.float32)
    return features, action, legal.astype(np.float32), past.astype(np.float32)


def sites_of(model: WorldModel, action: int) -> np.ndarray:
    """The actions of the same rule at single sites."""
    table = model.table
    return np.flatnonzero((table.rules == table.rules[action]) & ~table.is_everywhere)


def assert_same(found: CarriedOut, expected: CarriedOut) -> None:
    for name, one, other in zip(CarriedOut._fields, found, expected, strict=True):
        pair = (each.numpy()[:, :-1] if name == "changes" else each.numpy() for each in (one, other))
        np.testing.assert_allclose(*pair, atol=2e-4, err_msg=name)


def test_all_matches_together_change_what_each_alone_changes(
    model: WorldModel, codes: ActionCodes, neighbourhood: Neighbourhood, steps: Any
) -> None:
    features, action, legal, past = steps
    told = np.ones_like(legal, bool)
    together = neighbourhood(features, *map(tf.constant, (action, legal, past)), codes, tf.constant(told))
    for row in range(STEPS):
        sites = [site for site in sites_of(model, action[row]) if legal[row, site]]
        assert together.count[row] == len(sites)
        if not sites:
            continue
        rows = np.full(len(sites), row)
        alone = neighbourhood(
            tf.constant(features[rows]),
            tf.constant(sites, tf.int32),
            tf.constant(legal[rows]),
            tf.constant(past[rows]),
            codes,
        )
        assert (alone.count.numpy() == 1).all()
        np.testing.assert_allclose(together.changes[row, :-1], alone.changes.numpy().sum(axis=0)[:-1], atol=2e-4)
        np.testing.assert_allclose(together.features[row], alone.features.numpy().mean(axis=0), atol=1e-5)


def test_what_matches_earn_adds_up(
    model: WorldModel, codes: ActionCodes, neighbourhood: Neighbourhood, steps: Any
) -> None:
    features, action, legal, past = map(tf.constant, steps)
    told = tf.ones_like(legal, tf.bool)
    price = np.random.default_rng(4).standard_normal(model.num_actions + 1).astype(np.float32)

    def earned(rows: tf.Tensor, matches: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        return tf.gather(price, matches) * tf.reduce_sum(features, axis=1)

    found = neighbourhood(features, action, legal, past, codes, told, earned)
    for row in range(STEPS):
        sites = [site for site in sites_of(model, int(action[row])) if legal[row, site]]
        total = 0.0
        for site in sites:
            one = tf.constant([site], tf.int32)
            here = slice(row, row + 1)
            alone = neighbourhood(features[here], one, legal[here], past[here], codes)
            total += float(price[site] * tf.reduce_sum(alone.features))
        np.testing.assert_allclose(found.earned[row], total, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_matches_in_chunks_do_the_same(
    codes: ActionCodes, neighbourhood: Neighbourhood, steps: Any, compiled: bool
) -> None:
    arguments = tuple(map(tf.constant, steps))

    @tf.function(jit_compile=compiled, autograph=False)
    def foreseen(*arguments: tf.Tensor) -> CarriedOut:
        return neighbourhood(*arguments, codes)

    unknown = [tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in arguments]

    @tf.function(input_signature=unknown, autograph=False)
    def at_once(*arguments: tf.Tensor) -> CarriedOut:
        return neighbourhood(*arguments, codes)

    assert_same(foreseen(*arguments), at_once(*arguments))
    standing = np.asarray(arguments[2]).sum() / len(codes.inputs.actions.first) * len(codes.inputs.actions.places)
    few = [each[:2] for each in arguments]
    assert standing > MATCHES_OF_STEP, "one chunk would not do"
    assert_same(foreseen(*few), at_once(*few))


def test_only_what_is_carried_out_counts(
    model: WorldModel, codes: ActionCodes, neighbourhood: Neighbourhood, steps: Any
) -> None:
    features, action, legal, past = steps
    carried = np.zeros_like(legal, bool)
    for row in range(STEPS):
        carried[row, [site for site in sites_of(model, action[row]) if legal[row, site]][:1]] = True
    arguments = features, *map(tf.constant, (action, legal, past)), codes
    told, predicted = neighbourhood(*arguments, tf.constant(carried)), neighbourhood(*arguments)
    np.testing.assert_array_equal(told.count, carried.sum(axis=1))
    np.testing.assert_array_equal(told.taken, carried)
    assert (told.surprise.numpy()[carried.any(axis=1)] > 0).all() and not predicted.surprise.numpy().any()
    _, bias = neighbourhood.tables["rules"]
    saved = bias.numpy()
    bias.assign(np.full_like(saved, -1e6))
    nothing = neighbourhood(*arguments)
    bias.assign(saved)
    assert not any(each.numpy().any() for each in (nothing.count, nothing.taken, nothing.changes[:, :-1]))


def test_what_is_past_matters_if_the_model_remembers(
    model: WorldModel, codes: ActionCodes, neighbourhood: Neighbourhood, steps: Any
) -> None:
    features, action, legal, past = map(tf.constant, steps)
    found = [neighbourhood(features, action, legal, bits, codes).changes.numpy() for bits in (past, 0.0 * past)]
    assert not np.allclose(*found)
    near = model.mdn_rnn.config.neighbour_hidden
    rows, slots, *_ = neighbourhood.tables["slots"][0].shape
    forgetful = Neighbourhood(rows, slots, near, everywhere=True, remembers=False)
    found = [forgetful(features, action, legal, bits, codes).changes.numpy() for bits in (past, 0.0 * past)]
    np.testing.assert_array_equal(*found)


def test_masks_offer_everywhere_what_stands_at_two_sites(
    model: WorldModel, codes: ActionCodes, buffer: EpisodeBuffer
) -> None:
    """As in reality, in all states, whatever the logits of everywhere-actions are."""
    table, generator = model.table, np.random.default_rng(3)
    for real in EpisodeData(buffer, table):
        legal = real.legal[:, 0]
        logits = np.where(legal[:, :-1], 1.0, -1.0)
        noise = generator.standard_normal(logits.shape)
        logits = np.where(table.is_everywhere[:-1], noise, logits).astype(np.float32)
        np.testing.assert_array_equal(next_mask(tf.constant(logits), 0.0, codes.inputs.actions), legal)


def test_trajectories_hold_what_was_carried_out(model: WorldModel, buffer: EpisodeBuffer) -> None:
    table, seen = model.table, 0
    for episode, real in zip(buffer, EpisodeData(buffer, table), strict=True):
        for step, rewrites in enumerate(episode.rewrites_of_steps()):
            carried = table.decode(np.flatnonzero(real.carried[step, 0]))
            assert set(map(tuple, carried.tolist())) == {pair for pair in rewrites if table.encode([pair])[0] >= 0}
            seen += len(carried)
    assert seen > 20


def test_rewards_everywhere_begin_with_those_of_the_sites(model: WorldModel, buffer: EpisodeBuffer) -> None:
    """The unit of what is learned beside is the root mean square of what is left of each rule's rewards."""
    table = buffer.action_table()
    found, raw = ActionRewards.of_single_rewrites(buffer, table), ActionRewards.of(buffer, table)
    single = ~table.is_everywhere
    np.testing.assert_array_equal(found.mean[single], raw.mean[single])
    assert not found.mean[table.is_everywhere].any() and np.isinf(found.counts[table.is_everywhere]).all()
    left: dict[int, list[float]] = {}
    for episode in buffer:
        for pair, rewrites, reward in zip(episode.actions, episode.rewrites_of_steps(), episode.rewards, strict=True):
            if rewrites:
                earned = found.mean[table.encode(np.array(rewrites))].sum()
                left.setdefault(int(table.encode(pair)[0]), []).append(reward - earned)
    assert len(left) > 3
    for action, values in left.items():  # each everywhere-action is the only one of its kind
        assert found.spread[action] == pytest.approx(np.sqrt(np.mean(np.square(values))), rel=0.02, abs=0.3)
    taken = list(left)
    assert found.spread[taken].mean() < raw.mean[taken].max()
