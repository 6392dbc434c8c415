"""What a controller sees and what a rollout leaves behind, the same in the dream and around the real environment.

Actions are indices into an `ActionTable` of A (rule, location) pairs; index A is NO-OP, which is always legal.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import tensorflow as tf


class LatentObservation(NamedTuple):
    """One latent state per row.

    Attributes:
      z: float32 [batch, latent], the standardised embedding of the current graph (predicted, in a dream).
      h: float32 [batch, hidden], output of the MDN-RNN's LSTM after the previous step; zero at the start of an episode.
      action_mask: bool [batch, A + 1], the legal actions (predicted, in a dream). NO-OP, the last, is always true.
    """

    z: tf.Tensor
    h: tf.Tensor
    action_mask: tf.Tensor


class DreamState(NamedTuple):
    """The whole state of a dream: z [B, latent], the LSTM's hidden and cell [B, hidden], mask bool [B, A + 1]."""

    z: tf.Tensor
    hidden: tf.Tensor
    cell: tf.Tensor
    action_mask: tf.Tensor

    def observation(self) -> LatentObservation:
        return LatentObservation(self.z, self.hidden, self.action_mask)


class StartStates(NamedTuple):
    """Encoded real states that dreams start from; S of them, from `WorldModel.start_states(buffer)`.

    Attributes:
      z: float32 [S, latent].
      hidden, cell: float32 [S, hidden], the recurrent state reached by teacher forcing; zero at depth 0.
      action_mask: bool [S, A + 1], the real mask; every state has something left to rewrite.
      depth: int32 [S], steps since the episode began.
    """

    z: tf.Tensor
    hidden: tf.Tensor
    cell: tf.Tensor
    action_mask: tf.Tensor
    depth: tf.Tensor


class Policy(Protocol):
    """What `DreamEnv.rollout` calls at every step, inside its `tf.function`.

    A policy is traced once per (policy object, batch): it must keep its weights in `tf.Variable`s, draw every random
    number from `seed` with `tf.random.stateless_*`, and be the same (equal and hashable) object from call to call.
    """

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Chooses one legal action a row.

        Args:
          observation: the latent state of every row.
          seed: int32 [2], different at every step of a rollout.
        Returns:
          action int32 [batch] in [0, A]; log_prob float32 [batch] of that action; value float32 [batch] of the state.
        """
        ...


class Rollout(NamedTuple):
    """A batch of rollouts, time-major: T steps (the horizon), B rows, A actions and NO-OP.

    A row ends by NO-OP, a terminal or a mask without any rewrite, or it is truncated: by the horizon, or where it would
    leave behind the deepest states that the world model was trained on. After its end it is padded: `alive` is false,
    rewards and log-probabilities are zero, and the latent state repeats the last one.

    Attributes:
      z: float32 [T + 1, B, latent].
      h: float32 [T + 1, B, hidden].
      action_mask: bool [T + 1, B, A + 1], exactly what the policy acted under.
      actions: int32 [T, B]; NO-OP where not alive.
      log_probs: float32 [T, B], of `actions` under the policy that acted.
      values: float32 [T + 1, B]; zero for states after a terminal. Where a row is truncated, that of the state that it
        was left in, to bootstrap from, and so on to the horizon.
      rewards: float32 [T, B], in the environment's unit (of `log_ratio`: 100 · ln(cost before / cost after)).
      terminals: bool [T, B], true at the one step that ended the row (NO-OP, terminal, nothing left to rewrite).
      alive: bool [T, B], true where a step was really taken: the mask of every loss.
      truncated: bool [B], the row has no end of its own: bootstrap from `values[T]`.
    """

    z: tf.Tensor
    h: tf.Tensor
    action_mask: tf.Tensor
    actions: tf.Tensor
    log_probs: tf.Tensor
    values: tf.Tensor
    rewards: tf.Tensor
    terminals: tf.Tensor
    alive: tf.Tensor
    truncated: tf.Tensor

    def lengths(self) -> tf.Tensor:
        """Steps taken by every row, NO-OP included: int32 [B]."""
        return tf.reduce_sum(tf.cast(self.alive, tf.int32), axis=0)
