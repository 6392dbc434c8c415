"""Training the MDN-RNN: teacher forcing over whole episodes, and open-loop stretches on its own predictions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnTrainingConfig
from worldmodel.data.batches import EpisodeData, Schedule, bootstrap_counts
from worldmodel.data.trajectory import Trajectory
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.mask_head import next_mask
from worldmodel.dynamics.mdn_rnn import MdnRnn, Member, Predictions
from worldmodel.dynamics.start_graphs import ActionCodes, StartGraphInputs, inputs_signature
from worldmodel.training import OnStep, Optimiser, TrainingLoop

OPEN_LOOP = "open_loop_"
"""The prefix of the names of loss terms along the model's own predictions."""


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
    noop = tf.shape(real.inputs.actions.rules)[0] - 1
    rewrites = counts * tf.cast(real.action < noop, tf.float32)
    losses = {}
    for name, head in member.heads.items():
        terms = head.loss(predictions[name], head.target(real), seen, real)
        weights = counts if head.learns_noop else rewrites
        losses.update({term: _weighted_mean(values, weights) for term, values in terms.items()})
    return losses


def loss_names(member: Member) -> list[str]:
    """Returns the names of all loss terms of a step."""
    return [term for head in member.heads.values() for term in head.weight(MdnRnnTrainingConfig())]


def _weights(member: Member, config: MdnRnnTrainingConfig) -> dict[str, float]:
    """Returns the weight of every loss term, teacher forced and open loop."""
    alone = {term: weight for head in member.heads.values() for term, weight in head.weight(config).items()}
    return alone | {OPEN_LOOP + term: config.open_loop_weight * weight for term, weight in alone.items()}


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
        self._weights = _weights(model.members[0], config)
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

    def _arguments(self, step: int) -> tuple[StartGraphInputs, Trajectory, tf.Tensor, tf.Tensor]:
        """Returns the start graph of a step, its episodes, how often each counts for each member, and the seed."""
        number, rows = self._schedule.batch(step)
        data = self._data[number]
        real = tf.nest.map_structure(tf.constant, data.episodes.trajectory(rows))
        counts = bootstrap_counts(len(self.model.members), number, rows, self._seed)
        return data.inputs, real, tf.constant(counts), tf.constant([self._seed, step], tf.int32)

    def _update_eagerly(
        self, inputs: StartGraphInputs, real: Trajectory, counts: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = self._losses(inputs, real, counts, seed)
            loss = tf.add_n([self._weights[name] * value for name, value in losses.items()])
        return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}

    def _losses(
        self, inputs: StartGraphInputs, real: Trajectory, counts: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns all loss terms of a batch by name, averaged over the members."""
        codes = self.model.action_codes(inputs)
        states = self.model.unroll(real.state[:-1], real.action, codes)
        losses = self._teacher_forced_losses(real, counts, states, codes)
        if self._config.open_loop_steps > 0:
            open_loop = self._open_loop_losses(real, counts, states, codes, seed)
            losses.update({OPEN_LOOP + name: value for name, value in open_loop.items()})
        return losses

    def _teacher_forced_losses(
        self, real: Trajectory, counts: tf.Tensor, states: snt.LSTMState, codes: ActionCodes
    ) -> dict[str, tf.Tensor]:
        """Returns the losses of all real steps. Padding is cut out before the heads see it."""
        times, columns = tf.unstack(tf.cast(tf.where(real.alive), tf.int32), axis=1)
        steps = self._real_steps(real, times, columns, codes)
        hidden, z, legal = _at(states.hidden, times, columns), _at(real.state, times, columns), _as_bits(steps.legal)
        losses = []
        for number, member in enumerate(self.model.members):
            seen = self.model.see(number, hidden, z, steps.action, legal, codes)
            predictions = self.model.predict_freely(number, seen)
            losses.append(step_losses(member, predictions, seen, steps, tf.gather(counts[:, number], columns)))
        return _mean_of_members(losses)

    def _open_loop_losses(
        self, real: Trajectory, counts: tf.Tensor, states: snt.LSTMState, codes: ActionCodes, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the losses along a stretch of every episode in which the model sees only its own latents and masks.

        Each member of the ensemble follows its own predictions.
        """
        start = self._draw_starts(real.alive, seed)
        return _mean_of_members(
            [self._open_loop_of(i, real, counts[:, i], states, codes, start) for i in range(len(self.model.members))]
        )

    def _open_loop_of(
        self,
        number: int,
        real: Trajectory,
        counts: tf.Tensor,
        states: snt.LSTMState,
        codes: ActionCodes,
        start: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        columns, member = tf.range(tf.shape(real.alive)[1]), self.model.members[number]
        stretch = self._config.open_loop_steps

        def advance(step: tf.Tensor, z: tf.Tensor, mask: tf.Tensor, state: snt.LSTMState, totals: Any) -> Any:
            now = tf.minimum(start + step, tf.shape(real.alive)[0] - 1)
            steps = self._real_steps(real, now, columns, codes)
            state = self.model.advance(z, steps.action, state, codes)
            seen = self.model.see(number, state.hidden, z, steps.action, _as_bits(mask), codes)
            predictions = self.model.predict_freely(number, seen)
            taken = tf.where(_at(real.alive, now, columns) & (now == start + step), counts, 0.0)
            losses = step_losses(member, predictions, seen, steps, taken)
            z, mask = member.latent.kind.most_likely(predictions["latent"]), next_mask(predictions["mask"])
            return step + 1, z, mask, state, {name: total + losses[name] for name, total in totals.items()}

        state, nothing = _state_before(states, start, columns), dict.fromkeys(loss_names(member), 0.0)
        first = (0, _at(real.state, start, columns), _at(real.legal, start, columns), state, nothing)
        totals = tf.while_loop(lambda step, *_: step < stretch, advance, first, maximum_iterations=stretch)[-1]
        return {name: total / stretch for name, total in totals.items()}

    def _real_steps(self, real: Trajectory, times: tf.Tensor, columns: tf.Tensor, codes: ActionCodes) -> RealSteps:
        """Returns the steps at `times` of the episodes `columns`, int32 [n] each."""
        return RealSteps(
            action=_at(real.action, times, columns),
            legal=_at(real.legal, times, columns),
            reward=_at(real.reward, times, columns),
            terminal=tf.cast(_at(real.terminal, times, columns), tf.float32),
            next_z=_at(real.state, times + 1, columns),
            next_legal=_as_bits(_at(real.legal, times + 1, columns)),
            reward_scale=self.model.cost.reward_scale(_at(real.state, times, columns), codes.inputs),
            inputs=codes.inputs,
        )

    def _draw_starts(self, valid: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws a start time for every episode, early enough that the stretch fits if the episode is long enough."""
        lengths = tf.reduce_sum(tf.cast(valid, tf.int32), axis=0)
        latest = tf.maximum(lengths - self._config.open_loop_steps, 0)
        uniform = tf.random.stateless_uniform(tf.shape(latest), seed)
        return tf.cast(uniform * tf.cast(latest + 1, tf.float32), tf.int32)


def _at(values: tf.Tensor, times: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns values[times[i], columns[i]] for every i: [n, ...], from values [T, B, ...]."""
    return tf.gather_nd(values, tf.stack([times, columns], axis=-1))


def _state_before(states: snt.LSTMState, times: tf.Tensor, columns: tf.Tensor) -> snt.LSTMState:
    """Returns the recurrent state before step `times`: the state after the previous step, or zero at the start."""
    begun = tf.cast(times > 0, tf.float32)[:, tf.newaxis]
    before = tf.maximum(times - 1, 0)
    return snt.LSTMState(_at(states.hidden, before, columns) * begun, _at(states.cell, before, columns) * begun)


def _as_bits(mask: tf.Tensor) -> tf.Tensor:
    return tf.cast(mask, tf.float32)


def _mean_of_members(losses: Sequence[Mapping[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    return {name: tf.add_n([each[name] for each in losses]) / len(losses) for name in losses[0]}


def _signature(model: MdnRnn) -> list[object]:
    rewards, flags = tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None, None], tf.bool)
    real = Trajectory(
        state=tf.TensorSpec([None, None, model.sizes.latent], tf.float32),
        legal=tf.TensorSpec([None, None, None], tf.bool),
        action=tf.TensorSpec([None, None], tf.int32),
        reward=rewards,
        terminal=flags,
        alive=flags,
    )
    counts = tf.TensorSpec([None, len(model.members)], tf.float32)
    return [inputs_signature(model.sizes), real, counts, tf.TensorSpec([2], tf.int32)]
