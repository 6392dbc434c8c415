from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import SMALL
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import Trajectory
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.reward_table import mean_reward_per_rule
from worldmodel.dynamics.start_graphs import StartGraph
from worldmodel.dynamics.training import GraphData, MdnRnnTraining
from worldmodel.errors import NonFiniteLoss
from worldmodel.world_model import WorldModel


def data_of(model: WorldModel, graph: StartGraph, part: EpisodeBuffer) -> GraphData:
    return GraphData(model.inputs(graph), model.episode_data(part))


def as_tensors(real: Trajectory) -> Trajectory:
    return tf.nest.map_structure(tf.constant, real)


@pytest.fixture(scope="module")
def eager(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> MdnRnnTraining:
    """The trained model's losses, to be called without tracing; targets of rewards are the rewards themselves."""
    data = data_of(world_model, world_model.start_graph(), split[0])
    rewards = data.inputs.rewards
    plain = rewards._replace(counts=tf.fill(tf.shape(rewards.counts), np.float32(np.inf)))
    data = data._replace(inputs=data.inputs._replace(rewards=plain))
    return MdnRnnTraining(world_model.mdn_rnn, [data], SMALL.mdn_rnn_training, seed=0)


def arguments_of(training: MdnRnnTraining, batch: Trajectory) -> tuple[Any, ...]:
    counts = tf.ones([batch.action.shape[1], 1])
    return training._data[0].inputs, as_tensors(batch), counts


def losses_of(training: MdnRnnTraining, batch: Trajectory) -> dict[str, float]:
    return {name: float(value) for name, value in training._losses(*arguments_of(training, batch)).items()}


def test_every_variable_gets_a_gradient(world_of_two: WorldModel, two_starts: EpisodeBuffer) -> None:
    model, parts = world_of_two, two_starts.by_start()
    data = [data_of(model, graph, parts[start]) for start, graph in model.start_graphs.items()]
    training = MdnRnnTraining(model.mdn_rnn, data, SMALL.mdn_rnn_training, seed=0)
    variables = model.mdn_rnn.trainable_variables
    with tf.GradientTape() as tape:
        losses = []
        for each in data:
            batch = as_tensors(each.episodes.trajectory(range(16)))
            losses += training._losses(each.inputs, batch, tf.ones([16, 1])).values()
        loss = tf.add_n(losses)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0.0, variable.name


def test_padding_changes_no_loss(eager: MdnRnnTraining) -> None:
    batch = eager._data[0].episodes.trajectory([0, 1, 2])
    padded = tf.nest.map_structure(lambda part: np.concatenate([part, np.ones_like(part[:4])]), batch)
    padded.alive[-4:] = False
    for name, value in losses_of(eager, batch).items():
        assert losses_of(eager, padded)[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_noop_teaches_its_reward_only(eager: MdnRnnTraining, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    """What follows NO-OP is not learned: changing it changes no loss but the reward's."""
    rows = [row for row, e in enumerate(split[0]) if e.actions[-1, 0] == 3][:1]
    batch = eager._data[0].episodes.trajectory(rows)
    altered = batch._replace(state=batch.state.copy(), legal=batch.legal.copy(), terminal=batch.terminal.copy())
    altered.state[-1] += 1.0
    altered.legal[-1, :, :-1] ^= True
    altered.terminal[-1] = True
    before, after = losses_of(eager, batch), losses_of(eager, altered)
    for name in ("latent", "mean", "reward", "idle", "terminal", "mask"):
        assert after[name] == pytest.approx(before[name], rel=1e-5), name


def test_a_step_is_not_told_its_own_reward(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    """What is left to be learned is what the mean of its action's other steps leaves."""
    model, training, table = world_model, split[0], world_model.table
    known, rewards = list(EpisodeData(training, table)), model.start_graph().rewards
    actions, masks = (
        np.concatenate(parts) for parts in zip(*((one.action[:, 0], one.legal[:-1, 0]) for one in known), strict=True)
    )
    earned = np.concatenate([one.reward[:, 0] for one in known])
    prior = mean_reward_per_rule(training)[table.rules]
    (head,) = (member.reward for member in model.mdn_rnn.members)
    targets = head.target(seen(model, actions, masks), brought(earned)).earned.numpy()
    for step in range(0, len(actions), 7):
        alike = actions == actions[step]
        without = (earned[alike].sum() - earned[step] + prior[actions[step]]) / alike.sum()
        left = targets[step] - rewards.mean[actions[step]]
        assert left == pytest.approx(earned[step] - without, rel=1e-3, abs=1e-3)
    unmoved = dataclasses.replace(
        model.start_graph(), rewards=rewards._replace(counts=np.full_like(rewards.counts, np.inf))
    )
    unknown = model.with_start_graphs([unmoved])
    np.testing.assert_array_equal(head.target(seen(unknown, actions, masks), brought(earned)).earned, earned)


def seen(model: WorldModel, actions: np.ndarray, masks: np.ndarray) -> Seen:
    mdn_rnn = model.mdn_rnn
    h, z = (tf.zeros([len(actions), width]) for width in (mdn_rnn.config.hidden, mdn_rnn.sizes.latent))
    codes = mdn_rnn.action_codes(model.inputs(model.start_graph()))
    legal, past = tf.constant(masks, tf.float32), tf.zeros(masks.shape)
    return mdn_rnn.see(0, h, z, tf.constant(actions), legal, past, codes)


def brought(rewards: np.ndarray) -> RealSteps:
    nothing = tf.zeros([len(rewards)])
    return RealSteps(reward=tf.constant(rewards), terminal=nothing, next_z=nothing, next_legal=nothing)


def test_a_broken_term_is_named(eager: MdnRnnTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reward that is not a number stops training with the name of its loss."""
    data, training = eager._data[0].episodes, eager
    whole = data.trajectory

    def poisoned(rows: np.ndarray) -> Trajectory:
        batch = whole(rows)
        batch.reward[0, 0] = np.nan
        return batch

    monkeypatch.setattr(data, "trajectory", poisoned)
    monkeypatch.setattr(training, "_update", training._losses)
    with pytest.raises(NonFiniteLoss, match=r"step 0 gave reward = nan.* on episodes \d+, .* from the graph"):
        training.run()
