"""A world model that goes on learning keeps what it has learned, and has room for what is new."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tests.tracing import untraced
from tests.worldmodel.toy_world import QUICK, SIGNATURE, SMALL, ToyEnv, uniform_policy
from worldmodel.accuracy.open_loop import cut_windows, play
from worldmodel.config import MdnRnnTrainingConfig, WorldModelConfig
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dynamics.neighbourhood import NO_SLOT, neighbour_table, neighbourhood_rows
from worldmodel.fitting import fit, refit
from worldmodel.world_model import WorldModel

NOTHING = dataclasses.replace(SMALL.mdn_rnn_training, steps=0)
FEW = 2


@pytest.fixture(autouse=True, scope="module")
def without_traces() -> Iterator[None]:
    with untraced():
        yield


def settings(neighbours: int) -> WorldModelConfig:
    return dataclasses.replace(QUICK, mdn_rnn=dataclasses.replace(QUICK.mdn_rnn, neighbours=neighbours))


def first(episodes: EpisodeBuffer, count: int = FEW) -> EpisodeBuffer:
    return EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:count])


def shaken(model: WorldModel, seed: int = 0) -> WorldModel:
    """Other weights, none of them zero: what is not carried over is noticed."""
    rng = np.random.default_rng(seed)
    for weights in model.mdn_rnn.trainable_variables:
        weights.assign_add(0.05 * rng.normal(size=weights.shape))
    return model


@pytest.fixture(scope="module")
def before(episodes: EpisodeBuffer) -> WorldModel:
    """It has seen so few episodes that there are actions that it does not know, and has room for all slots."""
    return shaken(fit(first(episodes), SIGNATURE, settings(64), seed=0))


@pytest.fixture(scope="module")
def after(before: WorldModel, episodes: EpisodeBuffer) -> WorldModel:
    return refit(before, episodes, NOTHING, seed=1)


def test_the_same_data_and_no_step_change_nothing(before: WorldModel, episodes: EpisodeBuffer) -> None:
    again = refit(before, first(episodes), NOTHING, seed=1)
    assert again.mdn_rnn is not before.mdn_rnn
    assert_same_predictions(before, again, episodes)


def test_more_data_and_no_step_change_no_prediction_of_what_is_known(
    before: WorldModel, after: WorldModel, episodes: EpisodeBuffer
) -> None:
    """Asked of the same actions; with more of them, bits that were not there are there, and not set. What holds a dream
    is not looked at: more data have rules go further."""
    assert after.num_actions > before.num_actions and after.statistics.slots.shape[1] > before.statistics.slots.shape[1]
    known = np.append(after.table.find_codes(before.table.codes), after.num_actions)
    whole = after.inputs(after.start_graph())
    own = before.inputs(before.start_graph()).actions
    unnumbered = {"places": whole.actions.first, "group_numbers": whole.actions.first}  # these are not by action
    actions, neighbours, rewards = (
        tf.nest.map_structure(lambda part: tf.gather(part, known), group)
        for group in (whole.actions._replace(**unnumbered), whole.neighbours, whole.rewards)
    )
    of_known = whole._replace(
        actions=actions._replace(**{name: getattr(own, name) for name in ("first", "spans", *unnumbered)}),
        neighbours=neighbours._replace(slots=tf.constant(neighbour_table(after.statistics.slots, before.table))),
        rewards=rewards,
    )
    inputs = before.inputs(before.start_graph()), of_known
    actions, n = tf.range(len(known)), len(known)
    z = tf.random.stateless_normal([n, 8], [0, 1])
    legal, past = (tf.cast(tf.random.stateless_uniform([n, n], [0, seed]) < 0.5, tf.float32) for seed in (2, 3))
    found = []
    for model, graph in zip((before, after), inputs, strict=True):
        dynamics, codes = model.mdn_rnn, model.mdn_rnn.action_codes(graph)
        h = dynamics.advance(z, actions, dynamics.initial_state(n), codes).hidden
        seen = dynamics.see(0, h, z, actions, legal, past, codes)
        found.append(tf.nest.flatten(dynamics.predict_freely(0, seen)))
    for old, new in zip(*found, strict=True):
        np.testing.assert_allclose(new, old, atol=1e-4)


def assert_same_predictions(one: WorldModel, other: WorldModel, episodes: EpisodeBuffer) -> None:
    played = [play(model, cut_windows(model, first(episodes), steps=3, stride=1)) for model in (one, other)]
    for mine, theirs in zip(played[0].dreamed[:6], played[1].dreamed[:6], strict=True):
        np.testing.assert_allclose(theirs, mine, atol=1e-4)


def test_slots_that_are_new_say_nothing_and_known_ones_move_along(before: WorldModel, after: WorldModel) -> None:
    places = [slot_places(model) for model in (before, after)]
    assert places[0].keys() < places[1].keys()
    old, new = (slot_weights(model) for model in (before, after))
    for slot, (row, number) in places[1].items():
        expected = old[places[0][slot]] if slot in places[0] else np.zeros_like(new[row, number])
        np.testing.assert_array_equal(new[row, number], expected)


def slot_weights(model: WorldModel) -> np.ndarray:
    """All weights of every slot: [rows, P, weights]."""
    tables = model.mdn_rnn.tables()
    (read, bias), (write,) = (tables[kind] for kind in ("slots", "slots last"))
    of_kinds = np.reshape(read, [*read.shape[:2], -1])
    return np.concatenate([of_kinds, bias[..., tf.newaxis], np.moveaxis(write, 1, 2)], axis=-1)


def slot_places(model: WorldModel) -> dict[tuple[int, ...], tuple[int, int]]:
    slots = model.statistics.slots
    rows = neighbourhood_rows(slots)
    there = np.argwhere(slots[:, :, 0] != NO_SLOT).tolist()
    return {(rule, *slots[rule, slot].tolist()): (int(rows[rule]), slot) for rule, slot in there}


def test_known_actions_keep_what_their_rewards_are_told_from(
    before: WorldModel, after: WorldModel, episodes: EpisodeBuffer
) -> None:
    known = after.table.find_codes(before.table.codes)
    old, new = (model.start_graph().rewards for model in (before, after))
    for name in ("mean", "spread"):
        np.testing.assert_array_equal(getattr(new, name)[:-1][known], getattr(old, name)[:-1])
    assert np.isinf(new.counts[known]).all()
    unknown = np.setdiff1d(np.arange(after.num_actions), known)
    actions = after.table.encode(np.concatenate([e.actions for e in episodes]))
    taken = np.bincount(actions, minlength=after.num_actions + 1)
    np.testing.assert_array_equal(new.counts[unknown], taken[unknown])


def test_what_is_new_is_learned(before: WorldModel, after: WorldModel, episodes: EpisodeBuffer) -> None:
    config = dataclasses.replace(SMALL.mdn_rnn_training, steps=3, batch=64)
    trained = refit(before, episodes, config, seed=1)
    known = after.table.find_codes(before.table.codes)
    unknown = np.setdiff1d(np.arange(after.num_actions), known)
    taken = np.unique(after.table.encode(np.concatenate([e.actions for e in episodes])))
    rows = after.start_graph().first_action + np.intersect1d(unknown, taken)
    changes = [model.mdn_rnn.members[0].reward.change.numpy()[rows] for model in (after, trained)]
    assert len(rows) and (changes[0] != changes[1]).mean() > 0.5


def test_without_any_slot_there_is_nothing_to_carry(episodes: EpisodeBuffer) -> None:
    model = shaken(fit(first(episodes), SIGNATURE, settings(0), seed=0))
    assert_same_predictions(model, refit(model, first(episodes), NOTHING, seed=1), episodes)


def test_other_start_graphs_are_refused(before: WorldModel) -> None:
    elsewhere = collect(ToyEnv(5, max_steps=4), uniform_policy(), 3, seed=0)
    with pytest.raises(ValueError, match="train a world model anew"):
        refit(before, elsewhere, MdnRnnTrainingConfig(), seed=0)
