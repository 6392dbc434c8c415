"""Training the MDN-RNN by teacher forcing over whole episodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from worldmodel.config import MdnRnnTrainingConfig
from worldmodel.data.batches import EpisodeData, Schedule, bootstrap_counts
from worldmodel.data.trajectory import Trajectory
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.mdn_rnn import MdnRnn, Member, Predictions
from worldmodel.dynamics.start_graphs import StartGraphInputs, inputs_signature
from worldmodel.training import OnStep, Optimiser, TrainingLoop


def step_losses(
    member: Member, predictions: Predictions, seen: Seen, real: RealSteps, counts: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the mean losses of n predicted steps by name: scalars.

    Args:
      member: the member of the ensemble that predicts.
      predictions: its predictions of n steps.
      seen: the inputs of the predictions.
      real: the real outcome of the steps.
      counts: float32 [n], how often each step counts.
    """
    noop = tf.shape(seen.codes.inputs.actions.rules)[0] - 1
    rewrites = counts * tf.cast(seen.action < noop, tf.float32)
    losses = {}
    for name, head in member.heads.items():
        terms = head.loss(predictions[name], head.target(seen, real), seen)
        weights = counts if head.learns_noop else rewrites
        losses.update({term: _weighted_mean(values, weights) for term, values in terms.items()})
    return losses


def _weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the weighted mean; 0 if all weights are 0."""
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


class GraphData(NamedTuple):
    """The training episodes of one start graph, and the start graph as input of the networks."""

    inputs: StartGraphInputs
    episodes: EpisodeData


class MdnRnnTraining:
    """One resumable training of an MDN-RNN.

        MdnRnnTraining(model, data, MdnRnnTrainingConfig(), seed=0).run(on_step=print)

    Every step's episodes are of one start graph.

    Args:
      model: the model, which is changed in place. Weights that exist already keep their values.
      data: the training episodes by start graph.
      config: how to train.
      seed: the seed of every random draw.
      directory: where checkpoints go.
    """

    def __init__(
        self,
        model: MdnRnn,
        data: Sequence[GraphData],
        config: MdnRnnTrainingConfig,
        *,
        seed: int,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model, self._data, self._config, self._seed = model, list(data), config, seed
        self._schedule = Schedule([len(each.episodes) for each in self._data], config.batch, seed)
        heads = model.members[0].heads.values()
        self._weights = {term: weight for head in heads for term, weight in head.weight(config).items()}
        self._update = tf.function(self._update_eagerly, input_signature=_signature(model), autograph=False)
        tf.random.set_seed(seed)
        self._losses(*self._arguments(0))  # creates all variables
        self._optimiser = Optimiser(config.optimiser, list(model.trainable_variables))
        self.loop = TrainingLoop(
            self._train_step,
            {"model": model, "optimiser": self._optimiser},
            num_steps=config.steps,
            directory=directory,
            checkpoint_every=config.checkpoint_every,
            batch_of=self._batch_in_words,
        )

    def run(self, *, until: int | None = None, on_step: OnStep | None = None) -> None:
        """Trains to the end (or step `until`) from where the last checkpoint is."""
        self.loop.run(until=until, on_step=on_step)

    def _train_step(self, step: int) -> Mapping[str, float]:
        self._optimiser.set_rate(step, self._config.steps)
        metrics = self._update(*self._arguments(step))
        return {name: float(value) for name, value in metrics.items()}

    def _batch_in_words(self, step: int) -> str:
        number, rows = self._schedule.batch(step)
        return self._data[number].episodes.in_words(rows)

    def _arguments(self, step: int) -> tuple[StartGraphInputs, Trajectory, tf.Tensor]:
        """Returns the start graph of a step, its episodes, and how often each of them counts for each member."""
        number, rows = self._schedule.batch(step)
        data = self._data[number]
        real = tf.nest.map_structure(tf.constant, data.episodes.trajectory(rows))
        counts = bootstrap_counts(len(self.model.members), number, rows, self._seed)
        return data.inputs, real, tf.constant(counts)

    def _update_eagerly(self, inputs: StartGraphInputs, real: Trajectory, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = self._losses(inputs, real, counts)
            loss = tf.add_n([self._weights[name] * value for name, value in losses.items()])
        return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}

    def _losses(self, inputs: StartGraphInputs, real: Trajectory, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns all loss terms of a batch by name, averaged over the members.

        Padding is cut out before the heads see it.
        """
        codes = self.model.action_codes(inputs)
        states = self.model.unroll(real.state[:-1], real.action, codes)
        times, columns = tf.unstack(tf.cast(tf.where(real.alive), tf.int32), axis=1)
        hidden, z = _at(states.hidden, times, columns), _at(real.state, times, columns)
        action = _at(real.action, times, columns)
        legal, past = (_as_bits(_at(each, times, columns)) for each in (real.legal, real.past))
        carried = () if isinstance(real.carried, tuple) else _at(real.carried, times, columns)
        brought = RealSteps(
            reward=_at(real.reward, times, columns),
            terminal=tf.cast(_at(real.terminal, times, columns), tf.float32),
            next_z=_at(real.state, times + 1, columns),
            next_legal=_as_bits(_at(real.legal, times + 1, columns)),
        )
        losses = []
        for number, member in enumerate(self.model.members):
            seen = self.model.see(number, hidden, z, action, legal, past, codes, carried)
            predictions = self.model.predict_freely(number, seen)
            losses.append(step_losses(member, predictions, seen, brought, tf.gather(counts[:, number], columns)))
        return {name: tf.add_n([each[name] for each in losses]) / len(losses) for name in losses[0]}


def _at(values: tf.Tensor, times: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns values[times[i], columns[i]] for every i: [n, ...], from values [T, B, ...]."""
    return tf.gather_nd(values, tf.stack([times, columns], axis=-1))


def _as_bits(mask: tf.Tensor) -> tf.Tensor:
    return tf.cast(mask, tf.float32)


def _signature(model: MdnRnn) -> list[object]:
    rewards, flags = tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None, None], tf.bool)
    real = Trajectory(
        state=tf.TensorSpec([None, None, model.sizes.latent], tf.float32),
        legal=tf.TensorSpec([None, None, None], tf.bool),
        action=tf.TensorSpec([None, None], tf.int32),
        reward=rewards,
        terminal=flags,
        alive=flags,
        past=tf.TensorSpec([None, None, None], tf.bool),
        carried=tf.TensorSpec([None, None, None], tf.bool) if model.sizes.everywhere else (),
    )
    return [inputs_signature(model.sizes), real, tf.TensorSpec([None, len(model.members)], tf.float32)]
