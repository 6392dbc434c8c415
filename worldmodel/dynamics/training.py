"""Training the MDN-RNN: teacher forcing over whole episodes, and open-loop stretches on its own predictions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnTrainingConfig
from worldmodel.data.batches import SequenceBatch, SequenceData
from worldmodel.data.schedule import Schedule, bootstrap_counts
from worldmodel.dynamics.latent_heads import LatentHead
from worldmodel.dynamics.mdn_rnn import MdnRnn, Prediction, next_mask
from worldmodel.dynamics.reward_table import ActionRewards
from worldmodel.dynamics.start_graphs import SceneInputs, scene_signature
from worldmodel.networks.action_embedding import ActionCodes
from worldmodel.training import OnStep, Optimiser, TrainingLoop


class StepTargets(NamedTuple):
    """What n steps really brought: z [n, Z], reward, idle and terminal [n], mask float32 [n, A + 1] after the step."""

    z: tf.Tensor
    reward: tf.Tensor
    idle: tf.Tensor
    terminal: tf.Tensor
    mask: tf.Tensor


REWARD_PRECISION = 0.03
"""Units of the reward loss below which it is quadratic. A policy adds up small errors that are all to its liking: for
100 plans of 28 steps on SqueezeNet a model that had learned by squared error promised 6.6 percent too much, with ten
times the weight 5.8, and one by this loss 3.6; for plans that all were trained on, 1.3, 0.5 and -0.2."""
_TERMS = ("latent", "mean", "reward", "idle", "terminal", "mask")


def step_losses(
    head: LatentHead,
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
      head: what the latent was predicted by.
      prediction, targets: n steps.
      taken: float32 [n], 0 for padding; how often each counts.
      is_rewrite: float32 [n], 0 for NO-OP: it ends the episode by definition, so only its reward is learned.
      reward_unit: float32 [n], what an error of 1 means.
      bit_weights: float32 [n, A], which bits count; all by default.
    Returns:
      Scalars "latent" (nats per dimension), "mean" (squared error per dimension), "reward" (see `reward_losses`),
      "idle" and "terminal" (nats), "mask" (nats, summed over a state's bits).
    """
    rewrites = taken * is_rewrite
    bits = tf.nn.sigmoid_cross_entropy_with_logits(targets.mask[:, :-1], prediction.mask_logits)
    bits = bits if bit_weights is None else bits * bit_weights
    terminal = tf.nn.sigmoid_cross_entropy_with_logits(targets.terminal, prediction.terminal_logit)
    latent = head.losses(prediction.latent, targets.z)
    idle = tf.nn.sigmoid_cross_entropy_with_logits(targets.idle, prediction.idle_logit)
    return {
        "latent": _weighted_mean(latent["latent"], rewrites),
        "mean": _weighted_mean(latent["mean"], rewrites),
        "reward": _weighted_mean(reward_losses((prediction.reward - targets.reward) / reward_unit), taken),
        "idle": _weighted_mean(idle, taken),
        "terminal": _weighted_mean(terminal, rewrites),
        "mask": _weighted_mean(tf.reduce_sum(bits, axis=-1), rewrites),
    }


def reward_losses(errors: tf.Tensor) -> tf.Tensor:
    """The pseudo-Huber loss: |error|, but smooth around 0. Rewards are deterministic, and can be learned exactly.

    Args:
      errors: in units of `MdnRnn.reward_unit`.
    """
    return tf.sqrt(tf.square(errors) + REWARD_PRECISION**2) - REWARD_PRECISION


def _weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean over the rows that count; 0 where none does."""
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


class SceneData(NamedTuple):
    """The training episodes of one start graph, and what is known of it."""

    inputs: SceneInputs
    sequences: SequenceData
    rewards: ActionRewards

    def batch(self, rows: Sequence[int] | np.ndarray, model: MdnRnn) -> SequenceBatch:
        """The episodes `rows` as `model` learns from them: see `ActionRewards.without_own`."""
        batch = self.sequences.batch(rows)
        z = batch.z[:-1].reshape(-1, batch.z.shape[-1])
        leverage = model.leverage(tf.constant(z), self.inputs).numpy().reshape(batch.rewards.shape)
        rewards = self.rewards.without_own(batch.rewards / leverage, batch.actions, batch.masks[:-1])
        return batch._replace(rewards=leverage * rewards)


class MdnRnnTraining:
    """One resumable training of an MDN-RNN.

        MdnRnnTraining(model, scenes, MdnRnnTrainingConfig(), seed=0).run(on_step=print)

    Every step's episodes are of one start graph.

    Args:
      model: changed in place.
      scenes: training episodes.
      config: how to train.
      seed: of every random draw; weights that exist already, as some of the model's do, are left as they are.
      directory: where checkpoints go.
    """

    def __init__(
        self,
        model: MdnRnn,
        scenes: Sequence[SceneData],
        config: MdnRnnTrainingConfig,
        *,
        seed: int,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model, self._scenes, self._config, self._seed = model, list(scenes), config, seed
        self._schedule = Schedule([len(scene.sequences) for scene in self._scenes], config.batch, seed)
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
        return self._scenes[number].sequences.in_words(rows)

    def _arguments(self, step: int) -> tuple[SceneInputs, SequenceBatch, tf.Tensor, tf.Tensor]:
        """Scene, episodes, how often each of them counts for each member, and the seed of a step."""
        number, rows = self._schedule.batch(step)
        scene = self._scenes[number]
        batch = SequenceBatch(*map(tf.constant, scene.batch(rows, self.model)))
        counts = bootstrap_counts(len(self.model.members), number, rows, self._seed)
        return scene.inputs, batch, tf.constant(counts), tf.constant([self._seed, step], tf.int32)

    def _update_eagerly(
        self, inputs: SceneInputs, batch: SequenceBatch, counts: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses = self._losses(inputs, batch, counts, seed)
            loss = tf.add_n([self._weight(name) * value for name, value in losses.items()])
        return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}

    def _weight(self, name: str) -> float:
        term = name.removeprefix("open_loop_")
        weight: float = getattr(self._config, f"{term}_weight")
        return weight * self._config.open_loop_weight if term != name else weight

    def _losses(
        self, inputs: SceneInputs, batch: SequenceBatch, counts: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """All loss terms of a batch, by name; means over the members."""
        codes = self.model.action_codes(inputs)
        states = self.model.unroll(batch.z[:-1], batch.actions, codes)
        losses = self._teacher_forced_losses(batch, counts, states, codes)
        if self._config.open_loop_steps > 0:
            open_loop = self._open_loop_losses(batch, counts, states, codes, seed)
            losses.update({f"open_loop_{name}": value for name, value in open_loop.items()})
        return losses

    def _teacher_forced_losses(
        self, batch: SequenceBatch, counts: tf.Tensor, states: snt.LSTMState, codes: ActionCodes
    ) -> dict[str, tf.Tensor]:
        """Losses of all steps that were taken; padding is cut out before the heads see it."""
        times, columns = tf.unstack(tf.cast(tf.where(batch.valid), tf.int32), axis=1)
        actions = _at(batch.actions, times, columns)
        hidden, z = _at(states.hidden, times, columns), _at(batch.z, times, columns)
        bits = tf.cast(_at(batch.masks, times, columns), tf.float32)
        targets, is_rewrite = _targets_at(batch, times, columns), _is_rewrite(actions, codes)
        unit = self.model.reward_unit(actions, z, codes.inputs)
        return _mean_of_members(
            step_losses(
                member.latent,
                self.model.predict_freely(i, hidden, z, actions, bits, codes),
                targets,
                taken=tf.gather(counts[:, i], columns),
                is_rewrite=is_rewrite,
                reward_unit=unit,
            )
            for i, member in enumerate(self.model.members)
        )

    def _open_loop_losses(
        self, batch: SequenceBatch, counts: tf.Tensor, states: snt.LSTMState, codes: ActionCodes, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Losses along a stretch of every episode in which the model lives on its own latents and masks.

        Each member goes its own way.
        """
        start = self._draw_starts(batch.valid, seed)
        return _mean_of_members(
            self._open_loop_of(i, batch, counts[:, i], states, codes, start) for i in range(len(self.model.members))
        )

    def _open_loop_of(
        self,
        member: int,
        batch: SequenceBatch,
        counts: tf.Tensor,
        states: snt.LSTMState,
        codes: ActionCodes,
        start: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        columns, head = tf.range(tf.shape(batch.valid)[1]), self.model.members[member]

        def advance(step: tf.Tensor, z: tf.Tensor, mask: tf.Tensor, state: snt.LSTMState, totals: Any) -> Any:
            now = tf.minimum(start + step, tf.shape(batch.valid)[0] - 1)
            actions = _at(batch.actions, now, columns)
            state = self.model.advance(z, actions, state, codes)
            bits = tf.cast(mask, tf.float32)
            prediction = self.model.predict_freely(member, state.hidden, z, actions, bits, codes)
            losses = step_losses(
                head.latent,
                prediction,
                _targets_at(batch, now, columns),
                taken=tf.where(_at(batch.valid, now, columns) & (now == start + step), counts, 0.0),
                is_rewrite=_is_rewrite(actions, codes),
                reward_unit=self.model.reward_unit(actions, z, codes.inputs),
                # A bit that is wrong already cannot be told right from here, and must not teach bits to let go.
                bit_weights=tf.cast(tf.equal(mask, _at(batch.masks, now, columns))[:, :-1], tf.float32),
            )
            totals = [total + losses[name] for name, total in zip(_TERMS, totals, strict=True)]
            return (
                step + 1,
                head.latent.most_likely(prediction.latent),
                next_mask(prediction.mask_logits),
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
        idle=tf.cast(_at(batch.idle, times, columns), tf.float32),
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


def _is_rewrite(actions: tf.Tensor, codes: ActionCodes) -> tf.Tensor:
    """float32 [n], 0 for NO-OP, the last of the actions."""
    return tf.cast(actions < tf.shape(codes.inputs.rules)[0] - 1, tf.float32)


def _mean_of_members(losses: Iterable[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    of_members = list(losses)
    return {name: tf.add_n([each[name] for each in of_members]) / len(of_members) for name in of_members[0]}


def _signature(model: MdnRnn) -> list[object]:
    batch = SequenceBatch(
        z=tf.TensorSpec([None, None, model.latent], tf.float32),
        masks=tf.TensorSpec([None, None, None], tf.bool),
        actions=tf.TensorSpec([None, None], tf.int32),
        rewards=tf.TensorSpec([None, None], tf.float32),
        idle=tf.TensorSpec([None, None], tf.bool),
        terminals=tf.TensorSpec([None, None], tf.bool),
        valid=tf.TensorSpec([None, None], tf.bool),
    )
    scene = scene_signature(model.latent, model.sizes.node_width, model.sizes.slots)
    counts = tf.TensorSpec([None, len(model.members)], tf.float32)
    return [scene, batch, counts, tf.TensorSpec([2], tf.int32)]
