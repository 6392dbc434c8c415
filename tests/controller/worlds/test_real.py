from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from controller.evaluation import evaluate, replay_record
from controller.policies.graph import GraphPolicy
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from controller.worlds.graph_view import GRAPHS, GraphView, row_of
from controller.worlds.real import RealWorld
from environment import GraphSubstitutionEnv
from worldmodel.config import EncoderConfig
from worldmodel.data.trajectory import Trajectory
from worldmodel.encoder.embedding import to_graphs_tuple

ENCODER = EncoderConfig(latent=4, hidden=8, edge_hidden=4, rounds=1)
POLICY = PolicyConfig(torso=(16,), width=4, mask_width=4, noop_logit=-2.0)
HORIZON, BATCH = 6, 8


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=4, strict=True)  # strict: an illegal action raises


@pytest.fixture(scope="module")
def world(env: GraphSubstitutionEnv) -> RealWorld:
    return RealWorld(lambda: GraphSubstitutionEnv(env.model, max_steps=4, strict=True))


@pytest.fixture(scope="module")
def policy(env: GraphSubstitutionEnv) -> GraphPolicy:
    return GraphPolicy(env, ENCODER, POLICY, seed=0)


@pytest.fixture(scope="module")
def rollout(world: RealWorld, policy: GraphPolicy) -> Trajectory:
    return world.rollout(policy, batch=BATCH, horizon=HORIZON, seed=2)


def test_graphs_are_batched_as_the_encoder_was_trained_to_see_them(env: GraphSubstitutionEnv) -> None:
    observations, rows = [], []
    env.reset()
    for action in env.legal_actions()[:2]:
        observations.append(env.step(action)[0])
        rows.append(row_of(env, observations[-1]))
    seen = GRAPHS.stack(rows).graphs()
    expected = to_graphs_tuple([observation["graph"] for observation in observations])
    for name in ("nodes", "edges", "senders", "receivers", "n_node", "n_edge", "globals"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(expected, name), err_msg=name)


def test_rows_are_whole_episodes_of_the_real_environment(rollout: Trajectory, env: GraphSubstitutionEnv) -> None:
    lengths = rollout.alive.numpy().sum(axis=0)
    np.testing.assert_array_equal(rollout.alive, np.arange(HORIZON)[:, None] < lengths)
    for row, length in enumerate(lengths):
        env_row = GraphView(env)
        env_row.reset()
        for t in range(length):
            observation, reward, terminated, truncated, _ = env_row.step(int(rollout.action[t, row]))
            assert float(rollout.reward[t, row]) == pytest.approx(reward, rel=1e-6)
            assert bool(rollout.terminal[t, row]) == terminated
            assert (terminated or truncated) == (t == length - 1)
            if t + 1 < length:
                shown = tf.gather(rollout.state.candidates, (t + 1) * BATCH + row)
                np.testing.assert_array_equal(shown, observation.candidates[0])


def test_truncated_rows_bootstrap_and_terminated_ones_do_not(rollout: Trajectory) -> None:
    lengths = rollout.alive.numpy().sum(axis=0)
    ended = rollout.terminal.numpy().any(axis=0)
    assert ended.any()
    assert not ended.all()
    behind = rollout.value.numpy()[lengths, np.arange(BATCH)]
    np.testing.assert_array_equal(behind == 0.0, ended)


def test_equal_seeds_give_equal_rollouts(world: RealWorld, policy: GraphPolicy, rollout: Trajectory) -> None:
    again, other = (world.rollout(policy, batch=BATCH, horizon=HORIZON, seed=seed) for seed in (2, 3))
    for field, same in zip(rollout[2:6], again[2:6], strict=True):
        np.testing.assert_array_equal(field, same)
    assert (other.action.numpy() != rollout.action.numpy()).any()


def test_the_log_probability_of_an_action_is_the_same_alone_and_in_a_batch(
    policy: GraphPolicy, rollout: Trajectory
) -> None:
    row = BATCH  # the first row at time 1
    alone = tf.nest.map_structure(lambda field: field[row : row + 1], rollout.state)
    log_prob = policy.distribution_and_value(alone)[0].log_prob(rollout.action[1, :1])
    np.testing.assert_allclose(log_prob, rollout.log_prob[1, :1], rtol=1e-5)


def test_ppo_learns_model_free_and_plays_what_it_learned(env: GraphSubstitutionEnv, world: RealWorld) -> None:
    config = PpoConfig(updates=12, batch=BATCH, epochs=2, minibatches=2, learning_rate=1e-2)
    assert config.horizon is None and world.longest == 4, "rollouts last until all episodes are over"
    controller, metrics = PpoController.for_real(env, config, POLICY, ENCODER, seed=0), []
    controller.train(world, on_progress=lambda done, total, values: metrics.append(values))
    assert max(each["first_ratio_error"] for each in metrics) < 1e-4
    assert np.mean([each["return"] for each in metrics[-4:]]) > np.mean([each["return"] for each in metrics[:4]])
    result = evaluate(env, controller, num_sampled=2, seed=0)
    assert result.controller_best.improvement > 0
    for record in (result.deterministic, *result.sampled):
        assert record.num_steps == len(record.rewards)
        replay_record(env, record)


def test_a_sparse_reward_shows_where_its_measurements_are(env: GraphSubstitutionEnv) -> None:
    """The globals have two more columns with a sparse reward, and the policy reads them too."""
    sparse = GraphSubstitutionEnv(env.model, max_steps=4, reward="percent:every=2")
    policy = GraphPolicy(sparse, ENCODER, POLICY, seed=0)
    played = RealWorld(lambda: GraphSubstitutionEnv(env.model, max_steps=4, reward="percent:every=2"))
    rollout = played.rollout(policy, batch=2, horizon=3, seed=0)
    assert rollout.state.summary.shape[1] == sparse.observation_space["globals"].shape[0] == 4
    assert np.isfinite(rollout.log_prob).all()


def test_figures_are_improvements_since_the_last_call(env: GraphSubstitutionEnv) -> None:
    world = RealWorld(lambda: GraphSubstitutionEnv(env.model, max_steps=4, reward="percent:every=2,bonus=5"))
    assert world.figures() == {}, "nothing was played"
    policy = GraphPolicy(world.make_env(), ENCODER, POLICY, seed=0)
    world.rollout(policy, batch=BATCH, horizon=HORIZON, seed=2)
    first = world.figures()
    assert 0 <= first["percent"] < first["best_percent"] < 100 and world.best is not None
    assert first["best_percent"] == pytest.approx(100 * world.best.improvement), "whatever bonus rewards hold"
    assert world.figures() == {}
    world.rollout(policy, batch=1, horizon=1, seed=3)
    assert world.figures()["best_percent"] >= first["best_percent"]
