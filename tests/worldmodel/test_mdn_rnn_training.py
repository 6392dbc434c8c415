from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from toy_world import SMALL

from worldmodel.episodes import EpisodeBuffer
from worldmodel.mdn_rnn_training import MdnRnnTraining
from worldmodel.sequences import SequenceBatch
from worldmodel.training import NonFiniteLoss
from worldmodel.world_model import WorldModel


@pytest.fixture(scope="module")
def eager(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> MdnRnnTraining:
    """The trained model's losses, to be called without tracing."""
    config = dataclasses.replace(SMALL.mdn_rnn_training, open_loop_steps=3)
    return MdnRnnTraining(world_model.mdn_rnn, world_model.sequences(split[0]), config, seed=0)


def losses_of(training: MdnRnnTraining, batch: SequenceBatch) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in training._losses(SequenceBatch(*map(tf.constant, batch)), tf.constant([0, 1])).items()
    }


def test_every_variable_gets_a_gradient(eager: MdnRnnTraining) -> None:
    batch = SequenceBatch(*map(tf.constant, eager._data.batch(range(8))))
    with tf.GradientTape() as tape:
        loss = tf.add_n(list(eager._losses(batch, tf.constant([0, 1])).values()))
    for variable, gradient in zip(
        eager.model.trainable_variables, tape.gradient(loss, eager.model.trainable_variables), strict=True
    ):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0.0, variable.name


def test_padding_changes_no_loss(eager: MdnRnnTraining) -> None:
    batch = eager._data.batch([0, 1, 2])
    padded = SequenceBatch(*(np.concatenate([part, np.ones_like(part[:4])]) for part in batch))
    padded.valid[-4:] = False
    for name, value in losses_of(eager, batch).items():
        assert losses_of(eager, padded)[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_noop_teaches_its_reward_only(eager: MdnRnnTraining) -> None:
    """What follows NO-OP is not learned: changing it changes no loss but the reward's."""
    rows = [row for row, e in enumerate(eager._data._episodes) if e.actions[-1, 0] == 3][:1]
    batch = eager._data.batch(rows)
    altered = batch._replace(z=batch.z.copy(), masks=batch.masks.copy(), terminals=batch.terminals.copy())
    altered.z[-1] += 1.0
    altered.masks[-1, :, :-1] ^= True
    altered.terminals[-1] = True
    before, after = losses_of(eager, batch), losses_of(eager, altered)
    for name in ("latent", "mean", "reward", "terminal", "mask"):
        assert after[name] == pytest.approx(before[name], rel=1e-5), name


def test_a_broken_term_is_named(eager: MdnRnnTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reward that is not a number stops training with the name of its loss."""
    poisoned = eager._data.batch([0, 1])
    poisoned.rewards[0, 0] = np.nan
    training = eager
    monkeypatch.setattr(training._data, "batch", lambda rows: poisoned)
    monkeypatch.setattr(training, "_update", lambda batch, seed: training._losses(batch, seed))
    with pytest.raises(NonFiniteLoss, match=r"step 0 gave reward = nan"):
        training.run()
