"""Training the MDN-RNN: teacher forcing over whole episodes, and open-loop stretches on its own predictions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel import mdn
from worldmodel.config import MdnRnnTrainingConfig
from worldmodel.mdn_rnn import ActionCodes, MdnRnn, Prediction
from worldmodel.sequences import SequenceBatch, SequenceData
from worldmodel.training import OnStep, Optimiser, TrainingLoop


class StepTargets(NamedTuple):
    """What n steps really brought: z [n, Z], reward [n], terminal [n], mask float32 [n, A + 1] after the step."""

    z: tf.Tensor
    reward: tf.Tensor
    terminal: tf.Tensor
    mask: tf.Tensor


_TERMS = ("latent", "mean", "reward", "terminal", "mask")


def step_losses(
    prediction: Prediction,
    targets: StepTargets,
    *,
    taken: tf.Tensor,
    is_rewrite: tf.Tensor,
    reward_unit: tf.Tensor,
    bit_weights: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Mean losses of n predicted steps.

    Args:
      prediction, targets: n steps.
      taken: float32 [n], 0 for padding.
      is_rewrite: float32 [n], 0 for NO-OP: it ends the episode by definition, so only its reward is learned.
      reward_unit: float32 [n], what an error of 1 means.
      bit_weights: float32 [n, A], which bits count; all by default.
    Returns:
      Scalars "latent" (nats per dimension), "mean" (squared error per dimension), "reward" (squared error in units of
      `reward_unit`), "terminal" (nats), "mask" (nats, summed over a state's bits).
    """
    rewrites = taken * is_rewrite
    bits = tf.nn.sigmoid_cross_entropy_with_logits(targets.mask[:, :-1], prediction.mask_logits)
    bits = bits if bit_weights is None else bits * bit_weights
    latent = -mdn.log_prob(targets.z, *prediction.latent) / tf.cast(tf.shape(targets.z)[-1], tf.float32)
    terminal = tf.nn.sigmoid_cross_entropy_with_logits(targets.terminal, prediction.terminal_logit)
    deviation = mdn.mixture_mean(*prediction.latent[:2]) - targets.z
    return {
        "latent": _weighted_mean(latent, rewrites),
        "mean": _weighted_mean(tf.reduce_mean(tf.square(deviation), axis=-1), rewrites),
        "reward": _weighted_mean(tf.square((prediction.reward - targets.reward) / reward_unit), taken),
        "terminal": _weighted_mean(terminal, rewrites),
        "mask": _weighted_mean(tf.reduce_sum(bits, axis=-1), rewrites),
    }


def _weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean over the rows that count; 0 where none does."""
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


class MdnRnnTraining:
    """One resumable training of an MDN-RNN.

        MdnRnnTraining(model, data, MdnRnnTrainingConfig(), seed=0).run(on_step=print)

    Args:
      model: changed in place.
      data: training episodes.
      config: how to train.
      seed: of every random draw; weights that exist already, as some of the model's do, are left as they are.
      directory: where checkpoints go.
    """

    def __init__(
        self,
        model: MdnRnn,
        data: SequenceData,
        config: MdnRnnTrainingConfig,
        *,
        seed: int,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model, self._data, self._config, self._seed = model, data, config, seed
        self._update = tf.function(self._update_eagerly, input_signature=_batch_signature(model), autograph=False)
        tf.random.set_seed(seed)
        self._losses(SequenceBatch(*map(tf.constant, data.batch([0]))), tf.constant([seed, 0]))  # creates all variables
        self._optimiser = Optimiser(config.optimiser, list(model.trainable_variables))
        self.loop = TrainingLoop(
            self._train_step,
            {"model": model, "optimiser": self._optimiser},
            num_steps=config.steps,
            directory=directory,
            checkpoint_every=config.checkpoint_every,
        )

    def run(self, *, until: int | None = None, on_step: OnStep | None = None) -> None:
        """Trains to the end (or step `until`) from where the last checkpoint is."""
        self.loop.run(until=until, on_step=on_step)

    def _train_step(self, step: int) -> Mapping[str, float]:
        self._optimiser.set_rate(step, self._config.steps)
        batch = SequenceBatch(*map(tf.constant, self._data.batch(self._rows(step))))
        metrics = self._update(batch, tf.constant([self._seed, step], tf.int32))
        return {name: float(value) for name, value in metrics.items()}

    def _rows(self, step: int) -> np.ndarray:
        """Episodes of a step: shuffled passes over the data, each pass a function of (seed, pass)."""
        size, episodes = min(self._config.batch, len(self._data)), len(self._data)
        positions = step * size + np.arange(size)
        passes, places = np.divmod(positions, episodes)
        orders = {int(p): np.random.default_rng([self._seed, int(p)]).permutation(episodes) for p in passes}
        return np.array([orders[int(p)][place] for p, place in zip(passes, places, strict=True)])

    def _update_eagerly(self, batch: SequenceBatch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = self._losses(batch, seed)
            loss = tf.add_n([self._weight(name) * value for name, value in losses.items()])
        return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}

    def _weight(self, name: str) -> float:
        term = name.removeprefix("open_loop_")
        weight: float = getattr(self._config, f"{term}_weight")
        return weight * self._config.open_loop_weight if term != name else weight

    def _losses(self, batch: SequenceBatch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """All loss terms of a batch, by name."""
        codes = self.model.action_codes()
        states = self.model.unroll(batch.z[:-1], batch.actions, codes)
        losses = self._teacher_forced_losses(batch, states, codes)
        if self._config.open_loop_steps > 0:
            open_loop = self._open_loop_losses(batch, states, codes, seed)
            losses.update({f"open_loop_{name}": value for name, value in open_loop.items()})
        return losses

    def _teacher_forced_losses(
        self, batch: SequenceBatch, states: snt.LSTMState, codes: ActionCodes
    ) -> dict[str, tf.Tensor]:
        """Losses of all steps that were taken; padding is cut out before the heads see it."""
        times, columns = tf.unstack(tf.cast(tf.where(batch.valid), tf.int32), axis=1)
        actions = _at(batch.actions, times, columns)
        prediction = self.model.predict(
            _at(states.hidden, times, columns),
            _at(batch.z, times, columns),
            actions,
            tf.cast(_at(batch.masks, times, columns), tf.float32),
            codes,
        )
        return step_losses(
            prediction,
            _targets_at(batch, times, columns),
            taken=tf.ones_like(prediction.reward),
            is_rewrite=self._is_rewrite(actions),
            reward_unit=self.model.reward_unit(actions),
        )

    def _is_rewrite(self, actions: tf.Tensor) -> tf.Tensor:
        return tf.cast(actions < self.model.num_actions, tf.float32)

    def _open_loop_losses(
        self, batch: SequenceBatch, states: snt.LSTMState, codes: ActionCodes, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Losses along a stretch of every episode in which the model lives on its own latents and masks."""
        columns = tf.range(tf.shape(batch.valid)[1])
        start = self._draw_starts(batch.valid, seed)

        def advance(step: tf.Tensor, z: tf.Tensor, mask: tf.Tensor, state: snt.LSTMState, totals: Any) -> Any:
            now = tf.minimum(start + step, tf.shape(batch.valid)[0] - 1)
            actions = _at(batch.actions, now, columns)
            state = self.model.advance(z, actions, state, codes)
            prediction = self.model.predict(state.hidden, z, actions, tf.cast(mask, tf.float32), codes)
            losses = step_losses(
                prediction,
                _targets_at(batch, now, columns),
                taken=tf.cast(_at(batch.valid, now, columns) & (now == start + step), tf.float32),
                is_rewrite=self._is_rewrite(actions),
                reward_unit=self.model.reward_unit(actions),
                # A bit that is wrong already cannot be told right from here, and must not teach bits to let go.
                bit_weights=tf.cast(tf.equal(mask, _at(batch.masks, now, columns))[:, :-1], tf.float32),
            )
            totals = [total + losses[name] for name, total in zip(_TERMS, totals, strict=True)]
            return (
                step + 1,
                mdn.most_likely_mean(*prediction.latent[:2]),
                self.model.next_mask(prediction),
                state,
                totals,
            )

        state = _state_before(states, start, columns)
        first = (0, _at(batch.z, start, columns), _at(batch.masks, start, columns), state, [0.0] * len(_TERMS))
        steps = self._config.open_loop_steps
        totals = tf.while_loop(lambda step, *_: step < steps, advance, first, maximum_iterations=steps)[-1]
        return {name: total / steps for name, total in zip(_TERMS, totals, strict=True)}

    def _draw_starts(self, valid: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """A start time for every episode, early enough that the stretch fits where the episode is long enough."""
        lengths = tf.reduce_sum(tf.cast(valid, tf.int32), axis=0)
        latest = tf.maximum(lengths - self._config.open_loop_steps, 0)
        uniform = tf.random.stateless_uniform(tf.shape(latest), seed)
        return tf.cast(uniform * tf.cast(latest + 1, tf.float32), tf.int32)


def _targets_at(batch: SequenceBatch, times: tf.Tensor, columns: tf.Tensor) -> StepTargets:
    """What the steps at `times` of the episodes `columns` brought."""
    return StepTargets(
        z=_at(batch.z, times + 1, columns),
        reward=_at(batch.rewards, times, columns),
        terminal=tf.cast(_at(batch.terminals, times, columns), tf.float32),
        mask=tf.cast(_at(batch.masks, times + 1, columns), tf.float32),
    )


def _at(values: tf.Tensor, times: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """values[times[n], columns[n]] for values [T, B, ...]: [n, ...]."""
    return tf.gather_nd(values, tf.stack([times, columns], axis=-1))


def _state_before(states: snt.LSTMState, times: tf.Tensor, columns: tf.Tensor) -> snt.LSTMState:
    """The recurrent state with which step `times` begins: the one after the step before it, zero at the start."""
    begun = tf.cast(times > 0, tf.float32)[:, tf.newaxis]
    before = tf.maximum(times - 1, 0)
    return snt.LSTMState(_at(states.hidden, before, columns) * begun, _at(states.cell, before, columns) * begun)


def _batch_signature(model: MdnRnn) -> list[object]:
    bits = model.num_actions + 1
    batch = SequenceBatch(
        z=tf.TensorSpec([None, None, model.latent], tf.float32),
        masks=tf.TensorSpec([None, None, bits], tf.bool),
        actions=tf.TensorSpec([None, None], tf.int32),
        rewards=tf.TensorSpec([None, None], tf.float32),
        terminals=tf.TensorSpec([None, None], tf.bool),
        valid=tf.TensorSpec([None, None], tf.bool),
    )
    return [batch, tf.TensorSpec([2], tf.int32)]
