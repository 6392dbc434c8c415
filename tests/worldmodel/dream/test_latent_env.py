from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from tests.worldmodel.toy_world import ToyEnv, knowing_half
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.errors import IllegalAction, IncompatibleWorldModel
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel


def test_it_shows_what_teacher_forcing_shows(world_model: WorldModel, episodes: EpisodeBuffer) -> None:
    """Along a recorded episode, z, h and the masks are the same."""
    episode = max(episodes, key=lambda e: e.num_steps)
    one = EpisodeBuffer(episodes.rule_names, episodes.graphs, [episode])
    batch = world_model.episode_data(one).trajectory([0])
    hidden, _ = world_model.teacher_forced(batch)
    env = LatentEnv(ToyEnv(8, max_steps=12), world_model)
    observation, info = env.reset(seed=0)
    for t in range(episode.num_steps + 1):
        np.testing.assert_allclose(observation.z[0], batch.state[t, 0], atol=1e-5)
        np.testing.assert_allclose(observation.h[0], hidden[t, 0], atol=1e-5)
        np.testing.assert_array_equal(observation.action_mask[0], batch.legal[t, 0])
        if t < episode.num_steps:
            observation, reward, terminated, truncated, info = env.step(int(batch.action[t, 0]))
            assert reward == pytest.approx(float(episode.rewards[t]), abs=1e-4)
            np.testing.assert_array_equal(info["action"][0], episode.actions[t, 0])
    assert (terminated, truncated) == (episode.terminated, episode.truncated)


def test_a_dream_can_go_on_from_its_state(world_model: WorldModel) -> None:
    """The recurrent state of the next observation is that of a dream which takes the same step."""
    env = LatentEnv(ToyEnv(8), world_model)
    env.reset()
    dream = DreamEnv.of_root(world_model, ToyEnv(8), DreamConfig(temperature=0.0))
    for _ in range(2):
        state = env.state
        action = int(np.flatnonzero(state.action_mask[0])[0])
        reached, _, _ = dream.step(state, tf.constant([action]), tf.constant([0, 0]))
        observation, *_ = env.step(action)
        np.testing.assert_allclose(reached.hidden, observation.h, atol=1e-5)
        np.testing.assert_array_equal(env.state.action_mask, observation.action_mask)
        np.testing.assert_array_equal(env.state.z, observation.z)


def test_a_new_episode_forgets_the_old(world_model: WorldModel) -> None:
    env = LatentEnv(ToyEnv(8), world_model)
    first, _ = env.reset()
    env.step(int(np.flatnonzero(first.action_mask[0])[0]))
    again, _ = env.reset()
    assert not again.h.numpy().any()
    np.testing.assert_array_equal(again.z, first.z)


def test_illegal_actions_are_refused(world_model: WorldModel) -> None:
    env = LatentEnv(ToyEnv(8), world_model)
    observation, _ = env.reset()
    illegal = int(np.flatnonzero(~observation.action_mask.numpy()[0])[0])
    with pytest.raises(IllegalAction, match="illegal in this state"):
        env.step(illegal)
    for outside in (-1, env.num_actions + 1):
        with pytest.raises(IllegalAction, match="NO-OP"):
            env.step(outside)


def test_options_are_those_of_the_real_environment(world_model: WorldModel) -> None:
    env = LatentEnv(ToyEnv(8, max_steps=10), world_model)
    for options, limit in (({"max_steps": 2}, 2), (None, 10)):
        observation, _ = env.reset(options=options)
        steps, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            first = int(np.flatnonzero(observation.action_mask[0])[0])
            observation, _, terminated, truncated, _ = env.step(first)
            steps += 1
        assert truncated == (steps == limit) and (steps <= 2) == (limit == 2)


def test_noop_ends_the_episode(world_model: WorldModel) -> None:
    env = LatentEnv(ToyEnv(8), world_model)
    env.reset()
    _, reward, terminated, _, _ = env.step(env.num_actions)
    assert terminated and reward == 0.0


def test_actions_outside_the_table_are_masked_and_counted(world_model: WorldModel) -> None:
    real = ToyEnv(8)
    legal = len(real.legal_actions())
    env = LatentEnv(real, knowing_half(world_model))
    observation, info = env.reset()
    shown = int(observation.action_mask.numpy()[0, :-1].sum())
    assert 0 < info["untabled_actions"] == legal - shown


def test_another_start_graph_is_refused(world_model: WorldModel) -> None:
    with pytest.raises(IncompatibleWorldModel, match=r"starts from the graph .* but the world model is bound to"):
        LatentEnv(ToyEnv(11), world_model).reset()


def test_another_rule_set_is_refused(world_model: WorldModel) -> None:
    class OtherRules(ToyEnv):
        rule_names = ("raise", "swap", "fuse")

    with pytest.raises(IncompatibleWorldModel, match="another order"):
        LatentEnv(OtherRules(8), world_model)


@pytest.mark.parametrize("said", ["that say something else", "version of the features"])
def test_what_rules_say_and_features_mean_is_compared_too(said: str, world_model: WorldModel) -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    here = Signature.of(env)
    old_features = dataclasses.replace(here.features, version=here.features.version - 1)
    old_rules = dataclasses.replace(here, rules="of old")
    trained_for = dataclasses.replace(here, features=old_features) if "features" in said else old_rules
    parts = world_model.encoder, world_model.mdn_rnn, world_model.statistics, list(world_model.start_graphs.values())
    with pytest.raises(IncompatibleWorldModel, match=said):
        LatentEnv(env, WorldModel(trained_for, *parts))
