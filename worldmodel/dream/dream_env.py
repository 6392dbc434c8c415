"""`DreamEnv`: whole rollouts inside the world model, without any call into the real environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from worldmodel.dream.rollout import DreamState, Policy, Rollout, StartStates
from worldmodel.dynamics.mixture import ALGORITHM
from worldmodel.dynamics.start_graphs import Scene
from worldmodel.dynamics.step import DreamSettings
from worldmodel.world_model import WorldModel


class DreamEnv:
    """Vectorised rollouts in the world model.

        dream = DreamEnv(world_model, world_model.start_states(buffer), temperature=1.0)
        rollout = dream.rollout(policy, batch=128, horizon=50, seed=epoch)

    A row ends by NO-OP, by a predicted terminal, or by a predicted mask without any rewrite. It is truncated at the
    horizon, and as deep as the longest episode that the model was trained on: it knows nothing of what lies beyond.

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
        xla: bool = False,
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
          xla: compile whole rollouts, policies with them, and not only what is dreamed: several times as many steps a
            second of a single row. Policies must have operations of XLA only, every horizon is compiled anew, and under
            the same seed rows start elsewhere.
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
        self._model, self._longest = world_model, world_model.statistics.longest
        self._codes = world_model.mdn_rnn.action_codes(world_model.inputs(scene))
        scalars = temperature, pessimism, math.log(legal_from / (1.0 - legal_from))
        self._settings = DreamSettings(*(tf.constant(scalar, tf.float32) for scalar in scalars))
        self._starts, self._roots, self._root_fraction = starts, roots, root_fraction
        self._xla = xla
        self._programs: dict[tuple[Policy, int, int | None], Callable[[tf.Tensor, tf.Tensor], Rollout]] = {}

    def start(self, batch: int, seed: tf.Tensor) -> DreamState:
        """Draws `batch` start states; seed int32 [2]."""
        return self._state_of(self._draw(batch, seed))

    def _state_of(self, starts: tf.Tensor) -> DreamState:
        return DreamState(*(tf.gather(values, starts) for values in self._starts[:4]))

    def _draw(self, batch: int, seed: tf.Tensor) -> tf.Tensor:
        """Which of the start states: int32 [batch]."""
        which, anywhere, root = tf.unstack(tf.random.split(seed, 3, ALGORITHM))
        deep = tf.random.stateless_uniform(
            [batch], anywhere, maxval=tf.shape(self._starts.depth)[0], dtype=tf.int32, alg=ALGORITHM
        )
        if self._root_fraction == 0:
            return deep
        drawn = tf.random.stateless_uniform(
            [batch], root, maxval=tf.shape(self._roots)[0], dtype=tf.int32, alg=ALGORITHM
        )
        at_root = tf.random.stateless_uniform([batch], which, alg=ALGORITHM) < self._root_fraction
        return tf.where(at_root, tf.gather(self._roots, drawn), deep)

    def step(self, state: DreamState, action: tf.Tensor, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """One step of every row (for planners; `rollout` loops over it).

        Args:
          state: as from `start` or the last `step`.
          action: int32 [B] in [0, A].
          seed: int32 [2].
        Returns:
          (next state, reward float32 [B], terminal bool [B]). NO-OP leaves z and the mask as they are.
        """
        arguments = state, action, seed, self._codes, self._settings
        result: tuple[DreamState, tf.Tensor, tf.Tensor] = self._model.dream_step(*arguments)
        return result

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Rollout:
        """Plays `policy` from `batch` start states for at most `horizon` steps, in one `tf.function`.

        Args:
          policy: traced once per (policy, batch), with `xla` per horizon; see `Policy`.
          batch, horizon: rows and steps; both at least 1.
          seed: every random draw is a function of it: equal seeds and weights give equal rollouts.
        """
        if batch < 1 or horizon < 1:
            raise ValueError(f"batch and horizon must be at least 1, got {batch} and {horizon}")
        kind = policy, batch, horizon if self._xla else None
        if kind not in self._programs:
            self._programs[kind] = self._compile(*kind)
        return self._programs[kind](tf.constant(horizon), tf.constant([seed, 0], tf.int32))

    def _compile(self, policy: Policy, batch: int, horizon: int | None) -> Callable[[tf.Tensor, tf.Tensor], Rollout]:
        """`horizon`: the only one that it is compiled for, through XLA; None: it is not."""

        def play(given: tf.Tensor, seed: tf.Tensor) -> Rollout:
            return self._play(policy, batch, given if horizon is None else horizon, seed)

        return tf.function(play, autograph=False, jit_compile=horizon is not None)

    def _play(self, policy: Policy, batch: int, horizon: tf.Tensor | int, seed: tf.Tensor) -> Rollout:
        start_seed, policy_seed, dream_seed = tf.unstack(tf.random.split(seed, 3, ALGORITHM))
        starts = self._draw(batch, start_seed)
        left = tf.maximum(self._longest - tf.gather(self._starts.depth, starts), 1)  # steps that a row may take

        def unfinished(t: tf.Tensor, state: DreamState, ended: tf.Tensor, *_: Any) -> tf.Tensor:
            return (t < horizon) & ~tf.reduce_all(ended | (t >= left))

        def advance(t: tf.Tensor, state: DreamState, ended: tf.Tensor, states: Any, steps: Any) -> tuple[Any, ...]:
            observation, over = state.observation(), ended | (t >= left)
            action, log_prob, value = policy(observation, tf.random.fold_in(policy_seed, t, ALGORITHM))
            action = tf.where(over, self.num_actions, action)
            arguments = state, action, tf.random.fold_in(dream_seed, t, ALGORITHM), self._codes, self._settings, over
            reached, reward, terminal = self._model.compiled_dream_step(*arguments)
            step = _Step(action, log_prob, value, reward, terminal, ~over).after(ended, over)
            return t + 1, reached, ended | step.terminals, _write(states, t, observation), _write(steps, t, step)

        start, never = self._state_of(starts), tf.zeros([batch], tf.bool)
        size = horizon if isinstance(horizon, int) else None
        arrays = _arrays_like(start.observation(), size), _arrays_like(_Step.blank(start.z[:, 0]), size)
        taken, last, ended, states, steps = tf.while_loop(unfinished, advance, (0, start, never, *arrays))
        z, h, mask = (
            _finish(array, final, taken, horizon + 1) for array, final in zip(states, last.observation(), strict=True)
        )
        value = tf.where(ended, 0.0, policy(last.observation(), tf.random.fold_in(policy_seed, taken, ALGORITHM))[2])
        rest = _Step.blank(value, self.num_actions)
        done = _Step(*(_finish(array, each, taken, horizon) for array, each in zip(steps, rest, strict=True)))
        values = tf.concat([done.values, value[tf.newaxis]], axis=0)
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
    def blank(cls, values: tf.Tensor, noop: int = 0) -> _Step:
        """A step that no row takes; `values` [B], of the states that they are left in."""
        zero, no = tf.zeros_like(values), tf.zeros_like(values, tf.bool)
        return cls(tf.zeros_like(values, tf.int32) + noop, zero, values, zero, no, no)

    def after(self, ended: tf.Tensor, over: tf.Tensor) -> _Step:
        """This step with nothing but the action left of rows that are over, and the value of those that never ended."""
        log_probs, rewards = (tf.where(over, 0.0, numbers) for numbers in (self.log_probs, self.rewards))
        values = tf.where(ended, 0.0, self.values)
        return _Step(self.actions, log_probs, values, rewards, self.terminals & ~over, self.alive)


def _arrays_like(values: Any, size: int | None) -> tuple[tf.TensorArray, ...]:
    """`size`: of arrays that do not grow, as those of XLA; None: they do."""
    return tuple(
        tf.TensorArray(v.dtype, size=size or 0, dynamic_size=size is None, element_shape=v.shape) for v in values
    )


def _write(arrays: tuple[tf.TensorArray, ...], t: tf.Tensor, values: Any) -> tuple[tf.TensorArray, ...]:
    return tuple(array.write(t, value) for array, value in zip(arrays, values, strict=True))


def _finish(array: tf.TensorArray, rest: tf.Tensor, taken: tf.Tensor, length: tf.Tensor | int) -> tf.Tensor:
    """The `taken` rows that were written into an array, and `rest` repeated until there are `length`."""
    rows = array.stack()
    if not isinstance(length, int):  # it has grown, and has no others
        return tf.concat([rows, tf.repeat(rest[tf.newaxis], length - taken, axis=0)], axis=0)
    rows = tf.concat([rows, rest[tf.newaxis]], axis=0)[:length]
    written = tf.reshape(tf.range(length) < taken, [-1, *[1] * rest.shape.rank])
    return tf.where(written, rows, rest)
