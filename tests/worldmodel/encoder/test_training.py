from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.worldmodel.toy_world import FEATURES, SMALL, ToyEnv, uniform_policy
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.encoder.embedding import to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.encoder.training import EncoderDataset, EncoderHeads, EncoderTraining
from worldmodel.errors import NonFiniteLoss
from worldmodel.fitting import encoder_datasets
from worldmodel.world_model import WorldModel


def test_targets_say_what_the_states_are(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    episode, t = episodes[3], 2
    targets = EncoderDataset(episodes, table).targets([(episode, t)])
    rules = episode.legal_actions(t)[:, 0]
    assert targets.log_cost[0] == pytest.approx(np.log(episode.cost_ms[t] / episode.cost_ms[0]), abs=1e-6)
    np.testing.assert_allclose(np.expm1(targets.match_counts[0]), np.bincount(rules, minlength=3), atol=1e-4)
    np.testing.assert_array_equal(targets.rule_mask[0] > 0, np.isin(np.arange(3), rules))
    np.testing.assert_array_equal(targets.action_mask[0] > 0, table.mask(episode.legal_actions(t))[:-1])


def test_the_cost_that_is_learned_is_the_one_that_the_agent_saw(episodes: EpisodeBuffer) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.1, len(episodes[3].cost_ms)))
    episode, t = dataclasses.replace(episodes[3], drawn_ms=episodes[3].cost_ms * noise), 2
    targets = EncoderDataset(episodes, episodes.action_table()).targets([(episode, t)])
    assert targets.log_cost[0] == pytest.approx(np.log(episode.drawn_ms[t] / episode.drawn_ms[0]), abs=1e-6)
    assert abs(targets.log_cost[0] - np.log(episode.cost_ms[t] / episode.cost_ms[0])) > 0.01


def test_noop_is_no_example_of_a_rewrite() -> None:
    buffer = collect(ToyEnv(4), uniform_policy(1.0), 3, seed=0)
    with pytest.raises(ValueError, match="no rewrite"):
        encoder_datasets(buffer.by_start(), tables_of(buffer), 100, seed=0)


def tables_of(buffer: EpisodeBuffer) -> dict[str, ActionTable]:
    return {start: part.action_table() for start, part in buffer.by_start().items()}


def visited(data: EncoderDataset) -> set[bytes]:
    graphs = data.batch(range(len(data)))[0]
    return {graph.nodes.tobytes() + graph.edges.tobytes() for graph in graphs}


def test_no_more_states_are_trained_on_than_are_asked(two_starts: EpisodeBuffer) -> None:
    """Each start graph has its share of the limit, a seed always draws the same states, and a high limit keeps all."""
    parts, tables = two_starts.by_start(), tables_of(two_starts)
    whole = encoder_datasets(parts, tables, 10**6, seed=0)
    available = [data.num_states for data in whole]
    few, again, other = (encoder_datasets(parts, tables, 40, seed=seed) for seed in (0, 0, 1))
    for number, (data, states) in enumerate(zip(few, available, strict=True)):
        wanted = int(40 * states / sum(available))
        assert wanted - 2 < data.num_states == len(visited(data)) <= wanted < states
        assert visited(data) < visited(whole[number])
        assert visited(data) == visited(again[number]) != visited(other[number])
    assert [len(data) for data in whole] == [
        sum(int((episode.actions[:, 0] < 3).sum()) for episode in part) for part in parts.values()
    ]


def test_latents_tell_costs_of_held_out_episodes(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """A least-squares reading of z, fitted on training episodes, explains most of the cost of held-out ones."""
    training, held_out = (states_of(world_model, part) for part in split)
    design, costs = np.c_[training[0], np.ones(len(training[0]))], training[1]
    weights = np.linalg.lstsq(design, costs, rcond=None)[0]
    predicted = np.c_[held_out[0], np.ones(len(held_out[0]))] @ weights
    assert 1.0 - np.var(predicted - held_out[1]) / np.var(held_out[1]) > 0.9


def test_no_dimension_has_collapsed(world_model: WorldModel, episodes: EpisodeBuffer) -> None:
    raw = world_model.encoder(to_graphs_tuple([episodes.graphs[h] for h in list(episodes.graphs)[:100]]))
    assert float(tf.reduce_min(tf.math.reduce_std(raw, axis=0))) > 0.1


def test_what_is_not_finite_is_named_and_the_checkpoint_kept(episodes: EpisodeBuffer, tmp_path: Path) -> None:
    """The error names the loss term, the step, the transitions and their episodes."""
    config = dataclasses.replace(SMALL.encoder_training, steps=4, checkpoint_every=2)
    data = EncoderDataset(episodes, episodes.action_table())
    training = EncoderTraining(
        GraphEncoder(SMALL.encoder, FEATURES), FEATURES, [data], config, seed=0, directory=tmp_path
    )
    training.run(until=2)
    stored = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    batch = data.batch

    def poisoned(rows: np.ndarray) -> tuple[object, object, object]:
        graphs, targets, actions = batch(rows)
        return graphs, targets._replace(log_cost=targets.log_cost * np.nan), actions

    data.batch = poisoned  # type: ignore[method-assign, assignment]
    with pytest.raises(
        NonFiniteLoss, match=r"step 2 gave .*cost = nan.* on transitions \d+ of episode \d+, .* from the graph"
    ):
        training.run()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == stored


def test_dimensions_that_do_not_vary_cost_as_much_as_they_lack(episodes: EpisodeBuffer) -> None:
    """The cost ends at a standard deviation of 1; this floor is what keeps latents from collapsing."""
    data = EncoderDataset(episodes, episodes.action_table())
    _, targets, actions = data.batch(data.sample(32, (0,)))
    heads = EncoderHeads(targets, data.table, SMALL.encoder_training, latent=4)
    z = np.random.default_rng(0).normal(size=(64, 4))
    z = ((z - z.mean(axis=0)) / z.std(axis=0)).astype(np.float32)
    for scales, floor in (([0, 0, 0, 0], 0.99), ([1, 1, 1, 1], 0.0), ([5, 1, 1, 0.5], 0.125), ([1, 1, 0, 0], 0.495)):
        losses = heads.losses(tf.constant(z * np.float32(scales)), targets, tf.constant(actions))
        assert float(losses["variance"]) == pytest.approx(floor, abs=2e-3)


def states_of(world_model: WorldModel, buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the latents and the log costs of all states."""
    hashes = [h for episode in buffer for h in episode.hashes]
    latents = world_model.encode({h: buffer.graphs[h] for h in hashes})
    return np.stack([latents[h] for h in hashes]), np.log(np.concatenate([episode.cost_ms for episode in buffer]))


def test_consistency_is_what_actions_do_not_explain_of_changes(episodes: EpisodeBuffer) -> None:
    """Consistency is relative to copying z. If every action moves z by a vector of its own, changes can be learned."""
    data = EncoderDataset(episodes, episodes.action_table())
    _, targets, actions = data.batch(data.sample(64, (0,)))
    heads = EncoderHeads(targets, data.table, SMALL.encoder_training, latent=4)
    generator = np.random.default_rng(0)
    before, moves = generator.normal(size=(64, 4)), generator.normal(size=(data.table.num_actions, 4))
    z = tf.Variable(np.concatenate([before, before + moves[actions]]), dtype=tf.float32)
    optimiser = snt.optimizers.Adam(1e-2)

    @tf.function(autograph=False)
    def learn() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = heads.losses(z, targets, tf.constant(actions))["consistency"]
        taught = [variable for variable in heads.trainable_variables if variable is not z]
        *gradients, of_z = tape.gradient(loss, [*taught, z])
        optimiser.apply(gradients, taught)
        return loss, of_z

    losses, gradients = zip(*(learn() for _ in range(150)), strict=True)
    assert float(losses[0]) > 0.7 and float(losses[-1]) < 0.1
    rows = tf.reduce_max(tf.abs(gradients[0]), axis=-1).numpy()
    assert (rows > 0).all()  # states before and after an action both learn from it
