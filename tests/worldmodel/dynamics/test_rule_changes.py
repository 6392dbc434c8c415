from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import SIGNATURE, SMALL, ToyEnv, uniform_policy
from worldmodel.accuracy.latents import next_latents
from worldmodel.accuracy.open_loop import cut_windows, play
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dynamics.start_graphs import changes_per_rule
from worldmodel.errors import NonFinitePrediction
from worldmodel.fitting import fit, refit
from worldmodel.world_model import WorldModel

RAISE, FUSE, SWAP, NOOP = range(4)
UNTRAINED = dataclasses.replace(
    SMALL,
    encoder_training=dataclasses.replace(SMALL.encoder_training, steps=0),
    mdn_rnn_training=dataclasses.replace(SMALL.mdn_rnn_training, steps=0),
)


def test_the_range_of_a_rule_is_of_what_it_did() -> None:
    buffer = collect(ToyEnv(6), uniform_policy(0.1), 20, seed=0)
    sizes = {h: np.array([len(graph.nodes), graph.nodes[:, 0].sum()]) for h, graph in buffer.used_graphs().items()}
    known = changes_per_rule(buffer, sizes)
    np.testing.assert_array_equal(known[RAISE], [[0, 1], [0, 1]], "one more, of as many cells")
    np.testing.assert_array_equal(known[FUSE], [[-1, -1], [-1, -1]], "two cells of 2 become one of 3")
    np.testing.assert_array_equal(known[[SWAP, NOOP]], np.zeros((2, 2, 2)))
    assert known.dtype == np.float32


def test_a_rule_that_was_never_taken_may_do_what_all_others_did() -> None:
    def never_swap(observation: dict[str, np.ndarray], generator: np.random.Generator) -> np.ndarray:
        others = observation["legal"][observation["legal"][:, 0] != SWAP]
        return generator.choice(others) if len(others) else np.array([NOOP, 0])

    buffer = collect(ToyEnv(6), never_swap, 20, seed=0)
    sizes = {h: np.array([float(graph.nodes.shape[0])]) for h, graph in buffer.used_graphs().items()}
    np.testing.assert_array_equal(changes_per_rule(buffer, sizes)[SWAP], [[-1], [0]])


@pytest.fixture(scope="module")
def wild(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    """One whose network moves every dimension of the latent by 1,000."""
    model = fit(split[0], SIGNATURE, UNTRAINED, seed=0)
    (member,) = model.mdn_rnn.members
    linear = member.latent.kind._linear  # type: ignore[attr-defined]
    linear.b.assign(tf.fill(linear.b.shape, 1000.0))
    return model


def test_dreams_go_no_further_than_rules_went(wild: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    windows = cut_windows(wild, split[1], steps=3, stride=1)
    rules = wild.table.rules[windows.trajectory.action]
    reached = wild.statistics.rule_changes[rules, 1]
    np.testing.assert_allclose(np.diff(play(wild, windows).dreamed.state, axis=0), reached, atol=1e-4)
    moved = next_latents(wild, windows).means - windows.trajectory.state[0][:, np.newaxis]
    np.testing.assert_allclose(moved, np.broadcast_to(reached[0][:, np.newaxis], moved.shape), atol=1e-4)


def test_predictions_that_are_not_held_go_where_the_network_says(
    wild: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    windows = cut_windows(wild, split[1], steps=1, stride=4)
    free = WorldModel(*wild._parts()[:5], embeddings=wild.embeddings)  # nothing of it is traced yet
    held = wild.mdn_rnn.config
    wild.mdn_rnn.config = dataclasses.replace(held, hold_changes=False)
    try:
        moved = np.diff(play(free, windows).dreamed.state, axis=0)[0]
    finally:
        wild.mdn_rnn.config = held
    rewrites = wild.table.rules[windows.trajectory.action[0]] < NOOP
    assert rewrites.any() and (moved[rewrites] > 900.0).all()


def test_what_is_infinite_is_found_and_not_held(wild: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    bias = wild.mdn_rnn.members[0].latent.kind._linear.b  # type: ignore[attr-defined]
    before = tf.identity(bias)
    windows = cut_windows(wild, split[1], steps=2, stride=4)
    bias.assign(tf.fill(bias.shape, np.inf))
    try:
        for predict in (play, next_latents):
            with pytest.raises(NonFinitePrediction):
                predict(wild, windows)
    finally:
        bias.assign(before)


def test_what_was_trained_on_is_within_reach(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    windows = cut_windows(world_model, split[0], steps=1, stride=1)
    rules = world_model.table.rules[windows.trajectory.action[0]]
    least, most = np.moveaxis(world_model.statistics.rule_changes[rules], 1, 0)
    changes = windows.trajectory.state[1] - windows.trajectory.state[0]
    assert (changes >= least - 1e-5).all() and (changes <= most + 1e-5).all()
    assert len(np.unique(least, axis=0)) > 2, "rules differ"


def test_more_data_say_more_of_what_rules_do(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    training, _ = split
    few = EpisodeBuffer(training.rule_names, training.graphs, training[:5])
    before = fit(few, SIGNATURE, UNTRAINED, seed=0)
    after = refit(before, training, UNTRAINED.mdn_rnn_training, seed=0)
    narrow, wide = before.statistics.rule_changes, after.statistics.rule_changes
    assert (wide[:, 0] <= narrow[:, 0] + 1e-5).all() and (wide[:, 1] >= narrow[:, 1] - 1e-5).all()
    assert not np.allclose(narrow, wide)
