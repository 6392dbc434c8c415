"""From episodes to a trained `WorldModel`: encoder first, then frozen, standardised and cached, then the MDN-RNN."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from worldmodel.actions import ActionTable
from worldmodel.config import WorldModelConfig
from worldmodel.encoder import GraphEncoder
from worldmodel.encoder_training import EncoderTraining
from worldmodel.episodes import EpisodeBuffer
from worldmodel.mdn_rnn import MdnRnn, MdnRnnConfig
from worldmodel.mdn_rnn_training import MdnRnnTraining
from worldmodel.neighbourhood import neighbour_table
from worldmodel.reward_table import mean_reward_per_action, reward_spread_per_rule
from worldmodel.training import Metrics, OnStep
from worldmodel.world_model import Scaler, Signature, WorldModel, embed_all, embedder, used_graphs

# (stage, metrics of the step): stage is "encoder" or "mdn_rnn".
OnStageStep = Callable[[str, Metrics], None]


def fit_world_model(
    buffer: EpisodeBuffer,
    signature: Signature,
    config: WorldModelConfig,
    *,
    seed: int,
    directory: str | os.PathLike[str] | None = None,
    on_step: OnStageStep | None = None,
) -> WorldModel:
    """Trains a world model on episodes.

    Args:
      buffer: training episodes; hold some out beforehand (`EpisodeBuffer.split`) to measure accuracy.
      signature: rule names and features of the environment they come from.
      config: sizes and budgets.
      seed: of every random draw.
      directory: checkpoints go to its "encoder" and "mdn_rnn"; called again with the same arguments, training goes on
        from there and ends with the same weights, bit for bit, as if it had not stopped.
      on_step: called after every training step with the stage's name and metrics.
    Raises:
      ValueError: if the episodes hold no rewrite.
      NonFiniteLoss: if a loss term becomes NaN or infinite; it is named.
    """
    table = buffer.action_table()
    tf.random.set_seed(seed)  # some layers draw their weights when they are built, others at the first call
    encoder = GraphEncoder(config.encoder, signature.features)
    training = EncoderTraining(
        encoder,
        signature.features,
        buffer,
        table,
        config.encoder_training,
        seed=seed,
        directory=_part(directory, "encoder"),
    )
    training.run(on_step=_stage("encoder", on_step))
    graphs = used_graphs(buffer)
    raw = embed_all(embedder(encoder, signature.features), graphs.values())
    scaler = Scaler.of(raw)
    tf.random.set_seed(seed)  # again: a resumed run has drawn other numbers by now
    mdn_rnn = make_mdn_rnn(config.mdn_rnn, buffer, table, config.encoder.latent)
    model = WorldModel(signature, table, encoder, scaler, mdn_rnn, latents=dict(zip(graphs, scaler(raw), strict=True)))
    dynamics = MdnRnnTraining(
        mdn_rnn, model.sequences(buffer), config.mdn_rnn_training, seed=seed, directory=_part(directory, "mdn_rnn")
    )
    dynamics.run(on_step=_stage("mdn_rnn", on_step))
    return model


def make_mdn_rnn(config: MdnRnnConfig, buffer: EpisodeBuffer, table: ActionTable, latent: int) -> MdnRnn:
    """An untrained MDN-RNN with what it takes from the data directly: neighbourhoods and mean rewards."""
    rewards = np.concatenate([episode.rewards for episode in buffer])
    return MdnRnn(
        config,
        table,
        latent,
        neighbours=neighbour_table(buffer, table, config.neighbours, config.neighbour_reach),
        reward_table=mean_reward_per_action(buffer, table),
        reward_spread=reward_spread_per_rule(buffer)[table.rules],
        reward_scale=float(rewards.std()) or 1.0,
    )


def _part(directory: str | os.PathLike[str] | None, name: str) -> Path | None:
    return None if directory is None else Path(directory) / name


def _stage(name: str, on_step: OnStageStep | None) -> OnStep | None:
    return None if on_step is None else lambda metrics: on_step(name, metrics)
