"""`DreamEnv`: whole rollouts inside the world model, without any call into the real environment."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from worldmodel.rollout import LatentObservation, Policy, Rollout
from worldmodel.world_model import WorldModel


class StartStates(NamedTuple):
    """Encoded real states that dreams start from; S of them, from `WorldModel.start_states(buffer)`.

    Attributes:
      z: float32 [S, latent].
      hidden, cell: float32 [S, hidden], the recurrent state reached by teacher forcing; zero at depth 0.
      action_mask: bool [S, A + 1], the real mask.
      depth: int32 [S], steps since the episode began.
    """

    z: tf.Tensor
    hidden: tf.Tensor
    cell: tf.Tensor
    action_mask: tf.Tensor
    depth: tf.Tensor


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

    Attributes: latent_size, hidden_size, num_actions (A, NO-OP not counted).
    """

    latent_size: int
    hidden_size: int
    num_actions: int

    def __init__(
        self, world_model: WorldModel, starts: StartStates, *, temperature: float = 1.0, root_fraction: float = 0.5
    ) -> None:
        """
        Args:
          world_model: a trained bundle; only its networks are used.
          starts: the states to start from.
          temperature: τ ≥ 0 of the sampled latents; 0 is the most likely mean.
          root_fraction: share of the rows that start at depth 0; the others start uniformly anywhere.
        """
        raise NotImplementedError

    def start(self, batch: int, seed: int | tf.Tensor) -> DreamState:
        """Draws `batch` start states."""
        raise NotImplementedError

    def step(
        self, state: DreamState, action: tf.Tensor, seed: tf.Tensor
    ) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """One step of every row (for planners; `rollout` loops over it).

        Args:
          state: as from `start` or the last `step`.
          action: int32 [B] in [0, A].
          seed: int32 [2].
        Returns:
          (next state, reward float32 [B], terminal bool [B]).
        """
        raise NotImplementedError

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Rollout:
        """Plays `policy` from `batch` start states for at most `horizon` steps, in one `tf.function`.

        Args:
          policy: traced once per (policy, batch); see `Policy`.
          batch, horizon: rows and steps; both at least 1.
          seed: every random draw is a function of it: equal seeds and weights give equal rollouts.
        """
        raise NotImplementedError
