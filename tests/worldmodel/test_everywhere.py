"""Everywhere-actions in a world model: actions of their rule, of a kind of their own, at a site of their own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from tests.worldmodel.golden_world_model import TINY
from worldmodel.data.actions import kinds_of, unpack
from worldmodel.data.episodes import EpisodeBuffer, collect, indexed_by_rank
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dynamics.neighbourhood import neighbour_slots
from worldmodel.dynamics.reward_table import mean_reward_per_rule
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.fitting import fit
from worldmodel.from_episodes import adapt
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel


def make_env(name: str = "bert-base-tiny", everywhere: bool = True) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(name, max_steps=6, strict=True, everywhere=everywhere)


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return make_env()


@pytest.fixture(scope="module")
def buffer(env: GraphSubstitutionEnv) -> EpisodeBuffer:
    return collect(env, RandomAgent(0, 0.0, everywhere_probability=0.5), 8, seed=0)


@pytest.fixture(scope="module")
def world_model(env: GraphSubstitutionEnv, buffer: EpisodeBuffer) -> WorldModel:
    return fit(buffer, Signature.of(env), TINY, seed=0)


def test_the_default_policy_takes_them(env: GraphSubstitutionEnv) -> None:
    taken = [episode.actions[:, 1] == env.num_locations for episode in collect(env, None, 10, seed=0)]
    assert 0.02 < np.concatenate(taken).mean() < 0.5


def test_stored_episodes_hold_their_single_rewrites(buffer: EpisodeBuffer, tmp_path: Path) -> None:
    buffer.save(tmp_path / "episodes.npz")
    single, largest = make_env(everywhere=False), 0
    for episode, loaded in zip(buffer, EpisodeBuffer.load(tmp_path / "episodes.npz"), strict=True):
        assert loaded.everywhere == episode.everywhere == single.num_locations
        assert loaded.rewrites_of_steps() == episode.rewrites_of_steps()
        rewrites = []
        for action, carried_out, after in zip(
            loaded.actions.tolist(), loaded.rewrites_of_steps(), loaded.hashes[1:], strict=True
        ):
            assert bool(carried_out) == (action[1] == loaded.everywhere)
            rewrites += carried_out or [action]
            largest = max(largest, len(carried_out))
            assert single.replay(rewrites).hash == after
    assert largest > 1


def test_they_have_a_kind_and_a_site_of_their_own(world_model: WorldModel, buffer: EpisodeBuffer) -> None:
    graph, num_rules = world_model.start_graph(), buffer.num_rules
    table = graph.table
    there = table.is_everywhere
    assert there.any() and not there.all() and not there[-1]
    assert np.array_equal(table.kinds[there], num_rules + 1 + table.rules[there])
    assert np.array_equal(table.kinds[~there], table.rules[~there])
    assert len(set(table.sites[there])) == 1 and not set(table.sites[there]) & set(table.sites[~there])
    assert not graph.nodes[there].any() and graph.nodes[:-1][~there[:-1]].any(axis=1).all()
    assert not graph.neighbours.rows[there].any()
    slots = graph.neighbours.slots
    assert (slots[there] == table.num_actions).all(), "they have no neighbours"
    assert not there[slots].any(), "and are nobody's"
    assert len(world_model.statistics.rule_mean) == len(world_model.statistics.rule_changes) == 2 * num_rules + 1


def test_rewards_are_averaged_apart_from_those_at_sites(buffer: EpisodeBuffer) -> None:
    mean = mean_reward_per_rule(buffer)
    pairs = np.concatenate([episode.actions for episode in buffer])
    rewards = np.concatenate([episode.rewards for episode in buffer])
    kinds = kinds_of(pairs, buffer.num_rules, buffer[0].everywhere)
    for kind in np.unique(kinds):
        assert mean[kind] == pytest.approx(rewards[kinds == kind].mean(), rel=1e-5)


def test_neighbourhoods_are_as_without_them(buffer: EpisodeBuffer) -> None:
    """Single rewrites switch the same slots whether or not there are everywhere-actions."""
    policy = RandomAgent(0, 0.0)
    with_them = collect(make_env(), lambda seen, rng: policy(_sites_only(seen), rng), 3, seed=1)
    without = collect(make_env(everywhere=False), policy, 3, seed=1)
    assert [e.hashes for e in with_them] == [e.hashes for e in without]
    np.testing.assert_array_equal(neighbour_slots(with_them, 8, 4), neighbour_slots(without, 8, 4))


def _sites_only(observation: dict) -> dict:
    return observation | {"location_mask": observation["location_mask"][:, :-1]}


def test_match_counts_leave_them_out(buffer: EpisodeBuffer) -> None:
    for episode in buffer[:2]:
        for t in range(episode.num_steps + 1):
            legal = unpack(episode.codes_at(t))
            sites = legal[legal[:, 1] != episode.everywhere]
            counts = episode.match_counts(t, buffer.num_rules)
            assert np.array_equal(counts, np.bincount(sites[:, 0], minlength=buffer.num_rules))
            assert np.array_equal(np.flatnonzero(counts >= 2), legal[legal[:, 1] == episode.everywhere, 0])


def test_ranks_leave_their_location_alone(buffer: EpisodeBuffer) -> None:
    for episode, ranked in zip(buffer, indexed_by_rank(buffer), strict=True):
        before, after = (unpack(each.legal_codes) for each in (episode, ranked))
        there = before[:, 1] == episode.everywhere
        assert np.array_equal(after[:, 1] == ranked.everywhere, there)
        assert (np.diff(ranked.codes_at(0)) > 0).all()


def test_the_real_environment_takes_them_through_the_world_model(
    env: GraphSubstitutionEnv, world_model: WorldModel
) -> None:
    view = LatentEnv(env, world_model)
    observation, info = view.reset(seed=0)
    mask = observation.action_mask.numpy()[0]
    assert info["untabled_actions"] == 0
    action = int(np.flatnonzero(mask & world_model.table.is_everywhere)[0])
    *_, info = view.step(action)
    assert info["action"].tolist() == [world_model.table.rules[action], env.num_locations]
    assert len(info["rewrites"]) >= 1


def test_what_is_past_is_the_same_for_real_and_in_stored_episodes(
    env: GraphSubstitutionEnv, world_model: WorldModel, buffer: EpisodeBuffer
) -> None:
    data, view = world_model.episode_data(buffer), LatentEnv(env, world_model)
    for real in data:
        view.reset(seed=0)
        for t in range(int(real.alive.sum())):
            np.testing.assert_array_equal(view.state.past[0], real.past[t, 0])
            view.step(int(real.action[t, 0]))
    assert any(real.past.any() for real in data)


def test_a_dream_remembers_what_it_carries_out(world_model: WorldModel, buffer: EpisodeBuffer) -> None:
    """A rewrite is past after it, unless the dream offers it again; nothing is past that the dream offers."""
    dream = DreamEnv.of_episodes(world_model, buffer)
    state = dream.start(16, tf.constant([0, 1]))
    for t in range(3):
        action = tf.argmax(tf.cast(state.action_mask, tf.int32), axis=1, output_type=tf.int32)
        reached, _, _ = dream.step(state, action, tf.constant([1, t]))
        past, before, legal = (each.numpy() for each in (reached.past, state.past, reached.action_mask))
        assert not (past & legal).any() and not (before & ~past & ~legal).any()
        rows = np.flatnonzero(~world_model.table.is_everywhere[action])
        assert (past | legal)[rows, action.numpy()[rows]].all()
        state = reached


def test_dreams_take_them(env: GraphSubstitutionEnv, world_model: WorldModel) -> None:
    """A policy that prefers them does so until no legal one is left, by the dream's own masks."""
    everywhere = tf.constant(world_model.table.is_everywhere)

    def prefers_everywhere(observation, seed):  # type: ignore[no-untyped-def]
        scores = tf.cast(observation.action_mask, tf.float32) * (1.0 + tf.cast(everywhere, tf.float32))
        action = tf.argmax(scores, axis=1, output_type=tf.int32)
        return action, tf.zeros_like(scores[:, 0]), tf.zeros_like(scores[:, 0])

    rollout = DreamEnv.of_root(world_model, env).rollout(prefers_everywhere, batch=2, horizon=4, seed=0)
    legal, taken = rollout.legal.numpy()[:-1], rollout.action.numpy()
    assert world_model.table.is_everywhere[taken[0]].all()
    for t, row in np.argwhere(rollout.alive.numpy()):
        assert legal[t, row, taken[t, row]]
        assert np.isfinite(rollout.reward.numpy()[t, row])


def test_a_saved_model_keeps_them(env: GraphSubstitutionEnv, world_model: WorldModel, tmp_path: Path) -> None:
    world_model.save(tmp_path / "model")
    loaded = WorldModel.load(tmp_path / "model", Signature.of(env))
    assert loaded.table.everywhere == env.num_locations
    np.testing.assert_array_equal(loaded.table.kinds, world_model.table.kinds)


def test_another_graph_has_them_at_another_location(world_model: WorldModel) -> None:
    other = make_env("vit-base-tiny")
    adapted = adapt(world_model, collect(other, None, 2, seed=0))
    assert adapted.table.everywhere == other.num_locations != world_model.table.everywhere
    assert np.isfinite(adapted.start_graph().rewards.mean).all()


def test_a_model_without_them_is_not_adapted_to_a_graph_with_them(world_model: WorldModel) -> None:
    kinds, statistics = len(world_model.signature.rule_names) + 1, world_model.statistics
    fewer = {name: getattr(statistics, name)[:kinds] for name in ("rule_mean", "rule_spread", "rule_changes")}
    model = world_model.with_start_graphs(list(world_model.start_graphs.values()))
    model.statistics = dataclasses.replace(statistics, **fewer)
    with pytest.raises(IncompatibleWorldModel, match=r"environment\.everywhere=false"):
        adapt(model, collect(make_env("vit-base-tiny"), None, 2, seed=0))
    plain = adapt(model, collect(make_env("vit-base-tiny", everywhere=False), None, 2, seed=0))
    assert plain.table.everywhere is None
