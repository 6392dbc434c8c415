"""Training of a `WorldModel` on episodes, and further training of such a model on more episodes.

The encoder is trained first. Then it is frozen, its latents are standardised and kept, and the MDN-RNN is trained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from environment import GraphSubstitutionEnv
from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig, WorldModelConfig
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.neighbourhood import NO_SLOT, neighbour_slots, neighbourhood_rows
from worldmodel.dynamics.reward_table import reward_deviation
from worldmodel.dynamics.start_graphs import ModelSizes
from worldmodel.dynamics.training import GraphData, MdnRnnTraining
from worldmodel.dynamics.warm_start import warm_start
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.encoder.training import EncoderDataset, EncoderTraining
from worldmodel.errors import NothingToLearn
from worldmodel.from_episodes import TrainingData, extended, untrained
from worldmodel.signature import Signature
from worldmodel.training import Metrics, OnStep
from worldmodel.world_model import WorldModel

OnStageStep = Callable[[str, Metrics], None]
"""A callback that gets the stage, "encoder", "embeddings" or "mdn_rnn", and the metrics of a step.

A step of "embeddings" is an encoded graph, and has no metrics but their number.
"""


def fit(
    episodes: EpisodeBuffer,
    trained_for: Signature | GraphSubstitutionEnv,
    config: WorldModelConfig | None = None,
    *,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    on_step: OnStageStep | None = None,
) -> WorldModel:
    """Trains a world model on episodes.

    Args:
      episodes: episodes of one or several start graphs; to measure accuracy, hold some out beforehand
        (`EpisodeBuffer.split`).
      trained_for: the environment of the episodes, or its signature.
      config: sizes and budgets; `WorldModelConfig()` by default.
      seed: the seed of every random draw.
      directory: the directory of the checkpoints, in "encoder" and "mdn_rnn". If `fit` is called again with the same
        arguments, it resumes from them and ends with the same weights, bit for bit, as if it had not stopped.
      on_step: called after every training step with the stage's name and metrics.
    Raises:
      NothingToLearn: if the episodes hold no rewrite.
      NonFiniteLoss: if a loss term becomes NaN or infinite; the error names it.
    """
    config = config or WorldModelConfig()
    signature = trained_for if isinstance(trained_for, Signature) else Signature.of(trained_for)
    cost_in_latent = config.encoder.holds_time and signature.log_cost_rewards
    data = TrainingData.of(episodes, cost_in_latent=cost_in_latent, telescopes=signature.telescopes)
    tf.random.set_seed(seed)  # some layers draw their weights when they are built, others at the first call
    encoder = GraphEncoder(config.encoder, signature.features)
    datasets = encoder_datasets(data.parts, data.tables, config.encoder_training.most_states, seed)
    EncoderTraining(
        encoder,
        signature.features,
        datasets,
        config.encoder_training,
        seed=seed,
        directory=_part(directory, "encoder"),
    ).run(on_step=_stage("encoder", on_step))
    encoded = _stage("embeddings", on_step)
    model = with_untrained_dynamics(
        data,
        signature,
        config,
        encoder,
        seed=seed,
        datasets=datasets,
        on_encoded=None if encoded is None else lambda graphs: encoded({"step": graphs}),
    )
    _train_dynamics(model, data, config.mdn_rnn_training, seed, directory, on_step)
    return model


def refit(
    before: WorldModel,
    episodes: EpisodeBuffer,
    config: MdnRnnTrainingConfig,
    *,
    seed: int,
    directory: str | os.PathLike[str] | None = None,
    on_step: OnStageStep | None = None,
) -> WorldModel:
    """Trains the dynamics of a world model further, on more episodes, and returns the new model.

    The encoder stays as it is.

    Args:
      before: a trained world model; it is not changed.
      episodes: the episodes that it was trained on and new ones, of the same start graphs.
      config: how to train further.
      seed, directory, on_step: see `fit`; there is no stage "encoder".
    Raises:
      ValueError: if the episodes have other start graphs.
      NonFiniteLoss: see `fit`.
    """
    sizes_before = before.mdn_rnn.sizes
    data = TrainingData.of(episodes, cost_in_latent=sizes_before.cost_in_latent, telescopes=sizes_before.telescopes)
    if set(data.parts) != {graph.start for graph in before.start_graphs.values() if graph.is_trained}:
        raise ValueError(
            f"expected episodes from the start graphs {', '.join(before.start_graphs)}, got {', '.join(data.parts)}; "
            "for other graphs train a world model anew"
        )
    tf.random.set_seed(seed)
    slots = _slots(data, before.mdn_rnn.config)
    # The weights were learned in this unit.
    sizes = _sizes(data, before.encoder, slots)._replace(reward_deviation=sizes_before.reward_deviation)
    model = extended(before, MdnRnn(before.mdn_rnn.config, sizes), data, slots)
    model.create_variables()
    warm_start(model, before)
    _train_dynamics(model, data, config, seed, directory, on_step)
    return model


def encoder_datasets(
    parts: Mapping[str, EpisodeBuffer], tables: Mapping[str, ActionTable], most_states: int, seed: int
) -> list[EncoderDataset]:
    """Returns the data sets of the start graphs that have transitions to learn from.

    Args:
      most_states: how many distinct states all data sets have together. If there are more, each data set keeps the
        same share of its states, at least 2 of them.
      seed: the seed of the draw if there are more states.
    Raises:
      NothingToLearn: if no start graph has transitions.
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


def with_untrained_dynamics(
    data: TrainingData,
    signature: Signature,
    config: WorldModelConfig,
    encoder: GraphEncoder,
    *,
    seed: int,
    datasets: list[EncoderDataset],
    on_encoded: Callable[[int], None] | None = None,
) -> WorldModel:
    """Returns a world model with untrained dynamics, which hold what they take from the data without training.

    Args:
      datasets: the data sets that the encoder was trained on.
      on_encoded: called with the number of graphs that are encoded by then.
    """
    tf.random.set_seed(seed)  # again: a resumed run has drawn other numbers by now
    slots = _slots(data, config.mdn_rnn)
    dynamics = MdnRnn(config.mdn_rnn, _sizes(data, encoder, slots))
    encoder_states = sum(each.num_states for each in datasets)
    model = untrained(signature, encoder, dynamics, data, slots, encoder_states=encoder_states, on_encoded=on_encoded)
    if dynamics.cost.per_reward is not None:
        dynamics.cost.per_reward.assign(_cost_per_reward(model, data.parts))
    return model


def _train_dynamics(
    model: WorldModel,
    data: TrainingData,
    config: MdnRnnTrainingConfig,
    seed: int,
    directory: str | os.PathLike[str] | None,
    on_step: OnStageStep | None,
) -> None:
    graphs = [
        GraphData(model.inputs(graph), model.episode_data(data.parts[graph.start]))
        for graph in model.start_graphs.values()
    ]
    training = MdnRnnTraining(model.mdn_rnn, graphs, config, seed=seed, directory=_part(directory, "mdn_rnn"))
    training.run(on_step=_stage("mdn_rnn", on_step))


def _cost_per_reward(model: WorldModel, parts: Mapping[str, EpisodeBuffer]) -> float:
    """Returns `CostInLatent.per_reward`, fitted by least squares over all steps; 0 if all rewards are 0."""
    products = squares = 0.0
    for start, part in parts.items():
        latents = model.encode(part.used_graphs(), model.start_graph(start))
        for episode in part:
            moved = np.diff([float(latents[graph_hash][-1]) for graph_hash in episode.hashes])
            products += float(moved @ episode.rewards)
            squares += float(np.square(episode.rewards, dtype=float).sum())
    return products / squares if squares else 0.0


def _slots(data: TrainingData, config: MdnRnnConfig) -> np.ndarray:
    if config.features == "state":
        return np.full((data.buffer.num_rules, 1, 2), NO_SLOT, np.int32)
    return neighbour_slots(data.buffer, config.neighbours, config.neighbour_reach)


def _sizes(data: TrainingData, encoder: GraphEncoder, slots: np.ndarray) -> ModelSizes:
    """Returns the sizes that the data decides; for `slots` see `neighbour_slots`."""
    tables = data.tables.values()
    return ModelSizes(
        num_rules=data.buffer.num_rules,
        neighbourhoods=1 + int(neighbourhood_rows(slots).max()),
        slots=slots.shape[1],
        num_sites=1 + sum(table.num_sites for table in tables),
        num_actions=1 + sum(table.num_actions + 1 for table in tables),
        latent=encoder.config.latent,
        categories=encoder.config.categories,
        node_width=encoder.config.hidden,
        reward_deviation=reward_deviation(data.scaled),
        cost_in_latent=data.cost_in_latent,
        telescopes=data.telescopes,
        cost_noise=data.cost_noise,
        everywhere=any(table.everywhere is not None for table in tables),
    )


def _part(directory: str | os.PathLike[str] | None, name: str) -> Path | None:
    return None if directory is None else Path(directory) / name


def _stage(name: str, on_step: OnStageStep | None) -> OnStep | None:
    return None if on_step is None else lambda metrics: on_step(name, metrics)
