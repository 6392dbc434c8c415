"""From episodes to a trained `WorldModel`: encoder first, then frozen, standardised and cached, then the MDN-RNN; and
from such a model and more episodes to a better one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from worldmodel.config import EncoderConfig, MdnRnnConfig, MdnRnnTrainingConfig, WorldModelConfig
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.graphs import LOG_TIME_UNIT, TIME, FeatureSpec
from worldmodel.dynamics.mdn_rnn import MdnRnn, ModelSizes
from worldmodel.dynamics.neighbourhood import neighbour_slots, neighbourhood_rows
from worldmodel.dynamics.reward_table import in_percent_of_start, reward_deviation
from worldmodel.dynamics.training import MdnRnnTraining, SceneData
from worldmodel.dynamics.warm_start import carry_over
from worldmodel.encoder.embedding import used_graphs
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.encoder.training import EncoderDataset, EncoderTraining
from worldmodel.errors import NothingToLearn
from worldmodel.signature import Signature
from worldmodel.training import Metrics, OnStep
from worldmodel.world_model import WorldModel

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
      buffer: training episodes, of one start graph or of several; hold some out beforehand (`EpisodeBuffer.split`) to
        measure accuracy.
      signature: rule names and features of the environment they come from.
      config: sizes and budgets.
      seed: of every random draw.
      directory: checkpoints go to its "encoder" and "mdn_rnn"; called again with the same arguments, training goes on
        from there and ends with the same weights, bit for bit, as if it had not stopped.
      on_step: called after every training step with the stage's name and metrics.
    Raises:
      NothingToLearn: if the episodes hold no rewrite.
      NonFiniteLoss: if a loss term becomes NaN or infinite; it is named.
    """
    parts = buffer.by_start()
    tables = {start: part.action_table() for start, part in parts.items()}
    tf.random.set_seed(seed)  # some layers draw their weights when they are built, others at the first call
    encoder = GraphEncoder(config.encoder, signature.features)
    datasets = encoder_datasets(parts, tables, config.encoder_training.most_states, seed)
    training = EncoderTraining(
        encoder,
        signature.features,
        datasets,
        config.encoder_training,
        seed=seed,
        directory=_part(directory, "encoder"),
    )
    training.run(on_step=_stage("encoder", on_step))
    encoder_states = sum(data.num_states for data in datasets)
    model = untrained_world_model(buffer, signature, config, encoder, tables, seed=seed, encoder_states=encoder_states)
    _train_dynamics(model, parts, config.mdn_rnn_training, seed, directory, on_step)
    return model


def refit_world_model(
    before: WorldModel,
    buffer: EpisodeBuffer,
    config: MdnRnnTrainingConfig,
    *,
    seed: int,
    directory: str | os.PathLike[str] | None = None,
    on_step: OnStageStep | None = None,
) -> WorldModel:
    """A world model whose dynamics go on learning, from more episodes; its encoder stays as it is.

    Args:
      before: a trained world model; not changed.
      buffer: those that it was trained on and new ones, of the same start graphs.
      config: of the further training.
      seed, directory, on_step: see `fit_world_model`; there is no stage "encoder".
    Raises:
      ValueError: if the start graphs are others.
      NonFiniteLoss: see `fit_world_model`.
    """
    parts = buffer.by_start()
    if set(parts) != {scene.start for scene in before.scenes.values() if scene.is_trained}:
        raise ValueError(
            f"expected episodes from the start graphs {', '.join(before.scenes)}, got {', '.join(parts)}; for other "
            "graphs train a world model anew"
        )
    tables = {start: part.action_table() for start, part in parts.items()}
    tf.random.set_seed(seed)
    config_before, sizes_before = before.mdn_rnn.config, before.mdn_rnn.sizes
    sizes, slots = _sizes(buffer, config_before, tables, before.encoder.config, sizes_before.cost_is_told)
    sizes = sizes._replace(reward_scale=sizes_before.reward_scale)  # weights have been learned in that unit
    model = before.grown(MdnRnn(config_before, sizes), buffer, tables, slots)
    model.create_variables()
    carry_over(before, model)
    _train_dynamics(model, parts, config, seed, directory, on_step)
    return model


def _train_dynamics(
    model: WorldModel,
    parts: Mapping[str, EpisodeBuffer],
    config: MdnRnnTrainingConfig,
    seed: int,
    directory: str | os.PathLike[str] | None,
    on_step: OnStageStep | None,
) -> None:
    scenes = model.scenes.values()
    training = MdnRnnTraining(
        model.mdn_rnn,
        [SceneData(model.inputs(scene), model.sequences(parts[scene.start]), scene.rewards) for scene in scenes],
        config,
        seed=seed,
        directory=_part(directory, "mdn_rnn"),
    )
    training.run(on_step=_stage("mdn_rnn", on_step))


def encoder_datasets(
    parts: Mapping[str, EpisodeBuffer], tables: Mapping[str, ActionTable], most_states: int, seed: int
) -> list[EncoderDataset]:
    """The start graphs that have transitions to learn from.

    Args:
      most_states: distinct states of all together, shared out as they have them; at least 2 of each.
      seed: of what is drawn where there are more.
    Raises:
      NothingToLearn: if none has any.
    """
    datasets = [EncoderDataset(part, tables[start]) for start, part in parts.items()]
    with_rewrites = [data for data in datasets if len(data)]
    if not with_rewrites:
        raise NothingToLearn(
            "the episodes hold no rewrite to learn from: play that takes NO-OP less often (collect.noop_probability), "
            "or rules that match the graph, would make some"
        )
    share = min(1.0, most_states / sum(data.num_states for data in with_rewrites))
    return [
        data.within(max(2, int(share * data.num_states)), (seed, 3, number))  # 0 to 2: `EncoderTraining`'s own draws
        for number, data in enumerate(with_rewrites)
    ]


def untrained_world_model(
    buffer: EpisodeBuffer,
    signature: Signature,
    config: WorldModelConfig,
    encoder: GraphEncoder,
    tables: Mapping[str, ActionTable],
    *,
    seed: int,
    encoder_states: int = 0,
) -> WorldModel:
    """A world model whose dynamics are still to be trained, with what they take from the data directly.

    Args:
      encoder_states: distinct states that the encoder's training drew from.
    """
    tf.random.set_seed(seed)  # again: a resumed run has drawn other numbers by now
    cost_is_told = config.encoder.holds_time and rewards_are_time_changes(buffer, signature.features)
    sizes, slots = _sizes(buffer, config.mdn_rnn, tables, config.encoder, cost_is_told)
    dynamics = MdnRnn(config.mdn_rnn, sizes)
    model = WorldModel.of_buffer(signature, encoder, dynamics, buffer, tables, slots, encoder_states=encoder_states)
    if dynamics.cost_per_reward is not None:
        dynamics.cost_per_reward.assign(_cost_per_reward(model, buffer.by_start()))
    return model


def _cost_per_reward(model: WorldModel, parts: Mapping[str, EpisodeBuffer]) -> float:
    """See `MdnRnn`: by least squares, over all steps."""
    products = squares = 0.0
    for start, part in parts.items():
        latents = model.encode(used_graphs(part), model.scene(start))
        for episode in part:
            moved = np.diff([float(latents[graph_hash][-1]) for graph_hash in episode.hashes])
            products += float(moved @ episode.rewards)
            squares += float(np.square(episode.rewards, dtype=float).sum())
    return products / squares if squares else 0.0


def _sizes(
    buffer: EpisodeBuffer,
    config: MdnRnnConfig,
    tables: Mapping[str, ActionTable],
    encoder: EncoderConfig,
    cost_is_told: bool,
) -> tuple[ModelSizes, np.ndarray]:
    """Sizes of the dynamics, and the slots of every rule, see `neighbour_slots`."""
    slots = neighbour_slots(buffer, config.neighbours, config.neighbour_reach)
    sizes = ModelSizes(
        num_rules=buffer.num_rules,
        neighbourhoods=1 + int(neighbourhood_rows(slots).max()),
        slots=slots.shape[1],
        num_sites=1 + sum(table.num_sites for table in tables.values()),
        num_actions=1 + sum(table.num_actions + 1 for table in tables.values()),
        latent=encoder.latent,
        categories=encoder.categories,
        node_width=encoder.hidden,
        reward_scale=reward_deviation(in_percent_of_start(buffer) if cost_is_told else buffer),
        cost_is_told=cost_is_told,
    )
    return sizes, slots


def rewards_are_time_changes(buffer: EpisodeBuffer, features: FeatureSpec) -> bool:
    """Whether every reward is 100 · ln(total time of the nodes before / after).

    So it is where the reward is `log_ratio` and costs are added up over nodes, and not where whole graphs are timed.
    """
    column = features.node_features.index(TIME)
    logs = {
        h: np.log(np.expm1(graph.nodes[:, column] * LOG_TIME_UNIT, dtype=float).sum())
        for h, graph in used_graphs(buffer).items()
    }
    return all(
        np.allclose(-100.0 * np.diff([logs[h] for h in episode.hashes]), episode.rewards, rtol=1e-3, atol=5e-3)
        for episode in buffer
    )


def _part(directory: str | os.PathLike[str] | None, name: str) -> Path | None:
    return None if directory is None else Path(directory) / name


def _stage(name: str, on_step: OnStageStep | None) -> OnStep | None:
    return None if on_step is None else lambda metrics: on_step(name, metrics)
