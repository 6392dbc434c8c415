"""`DreamEnv`: whole rollouts inside the world model, without any call into the real environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sonnet as snt
import tensorflow as tf

from worldmodel.mdn_rnn import Prediction, next_mask
from worldmodel.rollout import LatentObservation, Policy, Rollout, StartStates
from worldmodel.scenes import Scene
from worldmodel.world_model import WorldModel


class DreamState(NamedTuple):
    """The whole state of a dream: z [B, latent], the LSTM's hidden and cell [B, hidden], mask bool [B, A + 1]."""

    z: tf.Tensor
    hidden: tf.Tensor
    cell: tf.Tensor
    action_mask: tf.Tensor

    def observation(self) -> LatentObservation:
        return LatentObservation(self.z, self.hidden, self.action_mask)


class DreamEnv:
    """Vectorised rollouts in the world model.

        dream = DreamEnv(world_model, world_model.start_states(buffer), temperature=1.0)
        rollout = dream.rollout(policy, batch=128, horizon=50, seed=epoch)

    A row ends by NO-OP, by a predicted terminal, by a predicted mask without any rewrite, or at the horizon.

    Attributes: latent_size, hidden_size, num_actions (A, NO-OP not counted).
    """

    def __init__(
        self,
        world_model: WorldModel,
        starts: StartStates,
        *,
        scene: Scene | None = None,
        temperature: float = 1.0,
        root_fraction: float = 0.5,
        pessimism: float = 0.0,
        legal_from: float = 0.5,
    ) -> None:
        """
        Args:
          world_model: a trained bundle; only its networks are used, as they are now.
          starts: the states to start from.
          scene: that they belong to; None: the model's only one.
          temperature: τ ≥ 0 of the sampled latents; 0 is the most likely mean.
          root_fraction: share of the rows that start at depth 0; the others start uniformly anywhere.
          pessimism: standard deviations between the members of an ensemble by which rewards are lowered.
          legal_from: predicted probability from which a rewrite counts as legal.
        Raises:
          ValueError: if there are no start states, or none at depth 0 although `root_fraction` asks for them.
        """
        roots = tf.cast(tf.where(starts.depth == 0)[:, 0], tf.int32)
        if not len(starts.depth) or (root_fraction > 0 and not len(roots)):
            raise ValueError(
                f"{len(starts.depth)} start states, {len(roots)} of them at depth 0, root_fraction={root_fraction}: a "
                "dream needs a state to start from; give start_states() episodes with something to rewrite"
            )
        if not 0 < legal_from < 1:
            raise ValueError(f"legal_from must be a probability between 0 and 1, got {legal_from}")
        if temperature < 0:
            raise ValueError(f"temperature must not be negative, got {temperature}")
        self.latent_size, self.hidden_size = world_model.latent_size, world_model.hidden_size
        scene = scene or world_model.scene()
        self.num_actions = scene.table.num_actions
        self._model = world_model.mdn_rnn
        self._codes = self._model.action_codes(world_model.inputs(scene))
        self._pessimism, self._threshold = pessimism, math.log(legal_from / (1.0 - legal_from))
        self._starts, self._roots, self._root_fraction = starts, roots, root_fraction
        self._temperature = tf.constant(temperature, tf.float32)
        self._compiled_step = tf.function(self._step, reduce_retracing=True, autograph=False)
        self._programs: dict[tuple[Policy, int], Callable[..., Any]] = {}

    def start(self, batch: int, seed: tf.Tensor) -> DreamState:
        """Draws `batch` start states; seed int32 [2]."""
        which, anywhere, root = tf.unstack(tf.random.split(seed, 3))
        deep = tf.random.stateless_uniform([batch], anywhere, maxval=tf.shape(self._starts.depth)[0], dtype=tf.int32)
        if self._root_fraction > 0:
            drawn = tf.random.stateless_uniform([batch], root, maxval=tf.shape(self._roots)[0], dtype=tf.int32)
            at_root = tf.random.stateless_uniform([batch], which) < self._root_fraction
            deep = tf.where(at_root, tf.gather(self._roots, drawn), deep)
        return DreamState(*(tf.gather(values, deep) for values in self._starts[:4]))

    def step(self, state: DreamState, action: tf.Tensor, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """One step of every row (for planners; `rollout` loops over it).

        Args:
          state: as from `start` or the last `step`.
          action: int32 [B] in [0, A].
          seed: int32 [2].
        Returns:
          (next state, reward float32 [B], terminal bool [B]). NO-OP leaves z and the mask as they are.
        """
        result: tuple[DreamState, tf.Tensor, tf.Tensor] = self._compiled_step(state, action, seed)
        return result

    def _step(
        self, state: DreamState, action: tf.Tensor, seed: tf.Tensor, predict: Callable[..., Any] | None = None
    ) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        recurrent = self._model.advance(state.z, action, snt.LSTMState(state.hidden, state.cell), self._codes)
        bits = tf.cast(state.action_mask, tf.float32)
        predictions = (predict or self._model.predict)(recurrent.hidden, state.z, action, bits, self._codes)
        reward, terminal_logit, mask_logits = self._agreed(predictions)
        stays = (action == self.num_actions)[:, tf.newaxis]
        z = tf.where(stays, state.z, self._drawn(predictions, seed))
        mask = tf.where(stays, state.action_mask, next_mask(mask_logits, self._threshold))
        nothing_left = ~tf.reduce_any(mask[:, :-1], axis=-1)
        terminal = stays[:, 0] | (terminal_logit > 0.0) | nothing_left
        return DreamState(z, recurrent.hidden, recurrent.cell, mask), reward, terminal

    def _agreed(self, predictions: Sequence[Prediction]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Reward, terminal logit and mask logits of all members: means, the reward lowered by their disagreement."""
        rewards = tf.stack([each.reward for each in predictions])
        reward = tf.reduce_mean(rewards, axis=0) - self._pessimism * tf.math.reduce_std(rewards, axis=0)
        logits = ([each.terminal_logit for each in predictions], [each.mask_logits for each in predictions])
        terminal, mask = (tf.add_n(parts) / len(parts) for parts in logits)
        return reward, terminal, mask

    def _drawn(self, predictions: Sequence[Prediction], seed: tf.Tensor) -> tf.Tensor:
        """Next latents [B, Z], every row's from a member drawn for it."""
        drawn = [
            member.latent.sample(each.latent, self._temperature, seed)
            for member, each in zip(self._model.members, predictions, strict=True)
        ]
        if len(drawn) == 1:
            return drawn[0]
        rows = tf.shape(drawn[0])[0]
        which = tf.random.stateless_uniform([rows], seed + 1, maxval=len(drawn), dtype=tf.int32)
        return tf.gather(tf.stack(drawn, axis=1), which, batch_dims=1)

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Rollout:
        """Plays `policy` from `batch` start states for at most `horizon` steps, in one `tf.function`.

        Args:
          policy: traced once per (policy, batch); see `Policy`.
          batch, horizon: rows and steps; both at least 1.
          seed: every random draw is a function of it: equal seeds and weights give equal rollouts.
        """
        if batch < 1 or horizon < 1:
            raise ValueError(f"batch and horizon must be at least 1, got {batch} and {horizon}")
        if (policy, batch) not in self._programs:
            self._programs[policy, batch] = self._compile(policy, batch)
        result: Rollout = self._programs[policy, batch](tf.constant(horizon), tf.constant([seed, 0], tf.int32))
        return result

    def _compile(self, policy: Policy, batch: int) -> Callable[[tf.Tensor, tf.Tensor], Rollout]:
        return tf.function(lambda horizon, seed: self._play(policy, batch, horizon, seed), autograph=False)

    def _play(self, policy: Policy, batch: int, horizon: tf.Tensor, seed: tf.Tensor) -> Rollout:
        start_seed, policy_seed, dream_seed = tf.unstack(tf.random.split(seed, 3))

        def unfinished(t: tf.Tensor, state: DreamState, ended: tf.Tensor, *_: Any) -> tf.Tensor:
            return (t < horizon) & ~tf.reduce_all(ended)

        def advance(t: tf.Tensor, state: DreamState, ended: tf.Tensor, states: Any, steps: Any) -> tuple[Any, ...]:
            observation = state.observation()
            action, log_prob, value = policy(observation, tf.random.fold_in(policy_seed, t))
            action = tf.where(ended, self.num_actions, action)
            reached, reward, terminal = self._step(
                state, action, tf.random.fold_in(dream_seed, t), self._model.compiled_predict
            )
            step = _Step(action, log_prob, value, reward, terminal, ~ended).without(ended)
            state = DreamState(
                *(tf.where(ended[:, tf.newaxis], old, new) for old, new in zip(state, reached, strict=True))
            )
            return t + 1, state, ended | terminal, _write(states, t, observation), _write(steps, t, step)

        start = self.start(batch, start_seed)
        arrays = _arrays_like(start.observation()), _arrays_like(_Step.blank(batch))
        never = tf.zeros([batch], tf.bool)
        taken, last, ended, states, steps = tf.while_loop(unfinished, advance, (0, start, never, *arrays))
        z, h, mask = (
            _finish(array, final, horizon + 1) for array, final in zip(states, last.observation(), strict=True)
        )
        blank = _Step.blank(batch, self.num_actions)
        done = _Step(*(_finish(array, rest, horizon) for array, rest in zip(steps, blank, strict=True)))
        value = tf.where(ended, 0.0, policy(last.observation(), tf.random.fold_in(policy_seed, taken))[2])
        values = tf.tensor_scatter_nd_add(tf.pad(done.values, [[0, 1], [0, 0]]), [[taken]], [value])
        return Rollout(
            z, h, mask, done.actions, done.log_probs, values, done.rewards, done.terminals, done.alive, truncated=~ended
        )


class _Step(NamedTuple):
    """What `Rollout` keeps of one step, for B rows."""

    actions: tf.Tensor
    log_probs: tf.Tensor
    values: tf.Tensor
    rewards: tf.Tensor
    terminals: tf.Tensor
    alive: tf.Tensor

    @classmethod
    def blank(cls, batch: int, noop: int = 0) -> _Step:
        """A step that no row takes."""
        zero, no = tf.zeros([batch]), tf.zeros([batch], tf.bool)
        return cls(tf.fill([batch], noop), zero, zero, zero, no, no)

    def without(self, ended: tf.Tensor) -> _Step:
        """This step with nothing but the action left of the rows that have ended."""
        numbers = (tf.where(ended, 0.0, values) for values in (self.log_probs, self.values, self.rewards))
        log_probs, values, rewards = numbers
        return _Step(self.actions, log_probs, values, rewards, self.terminals & ~ended, self.alive)


def _arrays_like(values: Any) -> tuple[tf.TensorArray, ...]:
    return tuple(tf.TensorArray(v.dtype, size=0, dynamic_size=True, element_shape=v.shape) for v in values)


def _write(arrays: tuple[tf.TensorArray, ...], t: tf.Tensor, values: Any) -> tuple[tf.TensorArray, ...]:
    return tuple(array.write(t, value) for array, value in zip(arrays, values, strict=True))


def _finish(array: tf.TensorArray, rest: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The array's rows, and `rest` repeated until there are `length` of them."""
    rows = array.stack()
    missing = length - tf.shape(rows)[0]
    return tf.concat([rows, tf.repeat(rest[tf.newaxis], missing, axis=0)], axis=0)
