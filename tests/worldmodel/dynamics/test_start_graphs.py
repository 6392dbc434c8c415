from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from environment.statistics.paired import spearman
from tests.worldmodel.toy_world import LENIENT, SIGNATURE, SMALL, ToyEnv, UniformPolicy, uniform_policy
from worldmodel.accuracy.baselines import Trivial
from worldmodel.accuracy.latents import next_latents
from worldmodel.accuracy.open_loop import cut_windows, open_loop, play
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.players import PolicyPlayer
from worldmodel.dream.recollection import recollect
from worldmodel.dynamics.start_graphs import UNKNOWN, StartGraph, changes_per_rule, nodes_at_sites
from worldmodel.errors import IncompatibleWorldModel, NonFinitePrediction
from worldmodel.fitting import fit, refit
from worldmodel.from_episodes import adapt
from worldmodel.world_model import WorldModel


@pytest.fixture
def third() -> EpisodeBuffer:
    """Play from a string that no model here was trained on."""
    return collect(ToyEnv(start=(0, 1, 1, 0, 0, 1, 0), max_steps=12), uniform_policy(0.02), 20, seed=3)


def test_start_graphs_share_no_row_of_the_learned_tables(world_of_two: WorldModel) -> None:
    sites, actions = [], []
    for graph in world_of_two.start_graphs.values():
        inputs = world_of_two.inputs(graph)
        sites.append(set(inputs.actions.sites.numpy().tolist()))
        actions.append(set(inputs.actions.rows.numpy().tolist()))
    sizes = world_of_two.mdn_rnn.sizes
    for rows, count in ((sites, sizes.num_sites), (actions, sizes.num_actions)):
        assert not rows[0] & rows[1] and rows[0] | rows[1] == set(range(1, count))


def test_latents_are_centred_on_every_start_graph_alone(world_of_two: WorldModel, two_starts: EpisodeBuffer) -> None:
    for start, part in two_starts.by_start().items():
        graphs = {h: part.graphs[h] for episode in part for h in episode.hashes}
        latents = np.stack(list(world_of_two.encode(graphs, world_of_two.start_graphs[start]).values()))
        np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.02)


def test_the_node_at_a_site_is_the_one_that_the_start_graph_has_there() -> None:
    buffer = collect(ToyEnv(6), uniform_policy(0.0), 5, seed=0)
    table, embedded = buffer.action_table(), np.arange(12.0).reshape(6, 2)
    rows = nodes_at_sites(table, embedded, num_locations=6)
    np.testing.assert_array_equal(rows[:-1], embedded[table.locations[:-1]])
    assert not rows[-1].any(), "NO-OP is nowhere"
    few = nodes_at_sites(table, embedded[:2], num_locations=6)
    assert few[:-1][table.locations[:-1] < 2].any() and not few[:-1][table.locations[:-1] >= 2].any()


def test_a_location_that_stands_for_several_operators_says_nothing_of_a_node() -> None:
    buffer = collect(ToyEnv(6), uniform_policy(0.0), 5, seed=0)
    assert not nodes_at_sites(buffer.action_table(), np.ones((6, 2)), num_locations=5).any()


def test_what_was_not_trained_on_has_only_what_all_share(world_of_two: WorldModel, third: EpisodeBuffer) -> None:
    before = list(world_of_two.start_graphs)
    for _ in range(2):  # whatever it has met before
        model = adapt(world_of_two, third)
        graph = model.start_graph()
        inputs = model.inputs(graph)
        assert not graph.is_trained and list(world_of_two.start_graphs) == before
        assert set(inputs.actions.sites.numpy().tolist()) == set(inputs.actions.rows.numpy().tolist()) == {UNKNOWN}
    dream = DreamEnv(model, start_states(model, third), LENIENT)
    rollout = dream.rollout(UniformPolicy(), batch=8, horizon=5, seed=0)
    assert np.isfinite(rollout.reward.numpy()).all() and rollout.legal.shape[-1] == len(graph.table.rules)
    observation, _ = LatentEnv(ToyEnv(start=(0, 1, 1, 0, 0, 1, 0)), model).reset()
    assert observation.action_mask.shape == (1, graph.table.num_actions + 1)


def test_what_training_never_saw_vary_says_nothing_of_another_graph(
    world_model: WorldModel, third: EpisodeBuffer
) -> None:
    """A model of one start graph has not learned what start graphs differ in, and is as good where it can be."""
    model = adapt(world_model, third)
    assert np.abs(model.start_graph().embedding - world_model.start_graph().embedding).max() > 0.1
    assert not model.inputs(model.start_graph()).embedding.numpy().any()
    played = open_loop(model, third, steps=3)
    wrong, copied = (np.mean(mask != played.real.mask()[3]) for mask in (played.legal()[3], played.real.mask()[0]))
    assert wrong < 0.2 * copied


def test_a_model_of_several_graphs_is_bound_to_one_to_be_judged_and_recollected(
    world_of_two: WorldModel, two_starts: EpisodeBuffer
) -> None:
    envs = [ToyEnv(8, max_steps=6), ToyEnv(start=(1, 0, 0, 1, 0, 1), max_steps=6)]
    for (start, part), env in zip(two_starts.by_start().items(), envs, strict=True):
        bound = world_of_two.bind(start)
        assert bound.start_graph() is world_of_two.start_graphs[start] and bound.mdn_rnn is world_of_two.mdn_rnn
        played = open_loop(bound, part, steps=2)
        assert spearman(played.dreamed.reward[0], played.real.trajectory.reward[0]) > 0.5
        assert Trivial.of(part, bound).usual_mask.shape == (bound.num_actions,)
        collected = recollect(
            bound, env, PolicyPlayer(UniformPolicy()), episodes=3, seed=0, dream=DreamEnv.of_root(bound, env, LENIENT)
        )
        assert {episode.start for episode in collected} == {start}


def test_an_unknown_start_graph_is_refused_by_name(world_of_two: WorldModel, third: EpisodeBuffer) -> None:
    with pytest.raises(IncompatibleWorldModel, match=f"does not know the start graph {third[0].start}"):
        world_of_two.episode_data(third)
    with pytest.raises(IncompatibleWorldModel, match="knows 2 start graphs: bind"):
        world_of_two.start_graph()


def test_episodes_of_several_start_graphs_are_no_sequence(world_of_two: WorldModel, two_starts: EpisodeBuffer) -> None:
    with pytest.raises(ValueError, match=r"got 2; part them with by_start\(\)"):
        world_of_two.episode_data(two_starts)


def test_a_start_graph_survives_its_arrays(world_of_two: WorldModel, tmp_path: Path) -> None:
    world_of_two.save(tmp_path / "model")
    loaded = WorldModel.load(tmp_path / "model", SIGNATURE)
    for graph, other in zip(world_of_two.start_graphs.values(), loaded.start_graphs.values(), strict=True):
        assert isinstance(other, StartGraph) and other.start == graph.start
        np.testing.assert_array_equal(other.table.codes, graph.table.codes)
        inputs = (tf.nest.flatten(model.inputs(each)) for model, each in ((world_of_two, graph), (loaded, other)))
        for mine, theirs in zip(*inputs, strict=True):
            np.testing.assert_array_equal(mine, theirs)


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
