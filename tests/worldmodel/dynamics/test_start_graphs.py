from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from environment.statistics.paired import spearman
from tests.worldmodel.dream.test_dream_env import UniformPolicy
from tests.worldmodel.toy_world import SIGNATURE, ToyEnv, uniform_policy
from worldmodel.accuracy.baselines import Trivial
from worldmodel.accuracy.open_loop import open_loop
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.recollection import recollect
from worldmodel.dynamics.start_graphs import UNKNOWN, StartGraph, nodes_at_sites
from worldmodel.errors import IncompatibleWorldModel
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
    dream = DreamEnv(model, start_states(model, third))
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
        collected = recollect(bound, env, UniformPolicy(), episodes=3, seed=0, dream=DreamEnv.of_root(bound, env))
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
