from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import SMALL
from worldmodel.data.batches import SequenceBatch
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.table_episode import TableEpisode
from worldmodel.dynamics.reward_table import mean_reward_per_action, mean_reward_per_rule
from worldmodel.dynamics.start_graphs import Scene
from worldmodel.dynamics.training import MdnRnnTraining, SceneData
from worldmodel.errors import NonFiniteLoss
from worldmodel.world_model import WorldModel


def data_of(model: WorldModel, scene: Scene, part: EpisodeBuffer) -> SceneData:
    return SceneData(model.inputs(scene), model.sequences(part), scene.rewards)


@pytest.fixture(scope="module")
def eager(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> MdnRnnTraining:
    """The trained model's losses, to be called without tracing."""
    config = dataclasses.replace(SMALL.mdn_rnn_training, open_loop_steps=3)
    scene = data_of(world_model, world_model.scene(), split[0])
    return MdnRnnTraining(world_model.mdn_rnn, [scene], config, seed=0)


def arguments_of(training: MdnRnnTraining, batch: SequenceBatch) -> tuple[Any, ...]:
    counts = tf.ones([batch.actions.shape[1], 1])
    return training._scenes[0].inputs, SequenceBatch(*map(tf.constant, batch)), counts, tf.constant([0, 1])


def losses_of(training: MdnRnnTraining, batch: SequenceBatch) -> dict[str, float]:
    return {name: float(value) for name, value in training._losses(*arguments_of(training, batch)).items()}


def test_every_variable_gets_a_gradient(world_of_two: WorldModel, two_starts: EpisodeBuffer) -> None:
    model, parts = world_of_two, two_starts.by_start()
    scenes = [data_of(model, scene, parts[start]) for start, scene in model.scenes.items()]
    training = MdnRnnTraining(model.mdn_rnn, scenes, SMALL.mdn_rnn_training, seed=0)
    variables = model.mdn_rnn.trainable_variables
    with tf.GradientTape() as tape:
        losses = []
        for scene in scenes:
            batch = SequenceBatch(*map(tf.constant, scene.sequences.batch(range(16))))
            losses += training._losses(scene.inputs, batch, tf.ones([16, 1]), tf.constant([0, 1])).values()
        loss = tf.add_n(losses)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0.0, variable.name


def test_padding_changes_no_loss(eager: MdnRnnTraining) -> None:
    batch = eager._scenes[0].sequences.batch([0, 1, 2])
    padded = SequenceBatch(*(np.concatenate([part, np.ones_like(part[:4])]) for part in batch))
    padded.valid[-4:] = False
    for name, value in losses_of(eager, batch).items():
        assert losses_of(eager, padded)[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_noop_teaches_its_reward_only(eager: MdnRnnTraining, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    """What follows NO-OP is not learned: changing it changes no loss but the reward's."""
    rows = [row for row, e in enumerate(split[0]) if e.actions[-1, 0] == 3][:1]
    batch = eager._scenes[0].sequences.batch(rows)
    altered = batch._replace(z=batch.z.copy(), masks=batch.masks.copy(), terminals=batch.terminals.copy())
    altered.z[-1] += 1.0
    altered.masks[-1, :, :-1] ^= True
    altered.terminals[-1] = True
    before, after = losses_of(eager, batch), losses_of(eager, altered)
    for name in ("latent", "mean", "reward", "idle", "terminal", "mask"):
        assert after[name] == pytest.approx(before[name], rel=1e-5), name


def test_open_loop_stretches_look_at_reality_once(eager: MdnRnnTraining) -> None:
    """What is predicted along them depends on the real state that they start from, and on none after it."""
    batch = eager._scenes[0].sequences.batch(range(8))
    start = eager._draw_starts(tf.constant(batch.valid), tf.constant([0, 1])).numpy()
    times = np.arange(len(batch.z))[:, np.newaxis]

    def losses_with(altered: np.ndarray) -> dict[str, float]:
        masks = batch.masks.copy()
        masks[..., :-1] ^= altered[..., np.newaxis]
        return losses_of(eager, batch._replace(z=batch.z + altered[..., np.newaxis], masks=masks))

    usual, later, at_start = (losses_with(rows) for rows in (times < 0, times > start, times == start))
    assert later["reward"] != pytest.approx(usual["reward"], rel=1e-3)  # teacher forcing sees them all
    for name in ("open_loop_reward", "open_loop_idle", "open_loop_terminal"):
        assert later[name] == pytest.approx(usual[name], rel=1e-5), name
        assert at_start[name] != pytest.approx(usual[name], rel=1e-3), name
    assert later["open_loop_mean"] > usual["open_loop_mean"] + 0.5  # they are what is to be predicted


def test_a_step_is_not_told_its_own_reward(eager: MdnRnnTraining, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    """What is left to be learned is what the mean of its action's other steps leaves, its telling bit being alike."""
    scene, training = eager._scenes[0], split[0]
    table, bit = scene.sequences.table, scene.rewards.bit
    known = [TableEpisode(one, table) for one in training]
    actions, masks = np.concatenate([one.actions for one in known]), np.concatenate([one.masks()[:-1] for one in known])
    rewards, is_on = np.concatenate([one.rewards for one in training]), masks[np.arange(len(actions)), bit[actions]]
    by_rule, by_action = mean_reward_per_rule(training)[table.rules], mean_reward_per_action(training, table)
    prior = np.where(bit == table.num_actions, by_rule, by_action)
    batch, plain = scene.batch(range(4), eager.model), scene.sequences.batch(range(4))
    for t, column in np.argwhere(plain.valid).tolist():
        action, reward = plain.actions[t, column], plain.rewards[t, column]
        now = plain.masks[t, column, bit[action]]
        alike = (actions == action) & (is_on == now)
        without = (rewards[alike].sum() - reward + prior[action]) / alike.sum()
        left = batch.rewards[t, column] - scene.rewards.mean[action, int(now)]
        assert left == pytest.approx(reward - without, rel=1e-3, abs=1e-3)


def test_a_broken_term_is_named(eager: MdnRnnTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reward that is not a number stops training with the name of its loss."""
    sequences, training = eager._scenes[0].sequences, eager
    whole = sequences.batch

    def poisoned(rows: np.ndarray) -> SequenceBatch:
        batch = whole(rows)
        batch.rewards[0, 0] = np.nan
        return batch

    monkeypatch.setattr(sequences, "batch", poisoned)
    monkeypatch.setattr(training, "_update", training._losses)
    with pytest.raises(NonFiniteLoss, match=r"step 0 gave reward = nan.* on episodes \d+, .* from the graph"):
        training.run()
