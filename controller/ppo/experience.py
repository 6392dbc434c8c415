"""`Experience`: what PPO learns from, whichever world it was made in."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from controller.ppo.telescoping import settled
from worldmodel.dream.rollout import LatentObservation, Rollout


class Experience(NamedTuple):
    """B rollouts of up to T steps, time-major; observations flat, so that ragged ones (graphs) fit too.

    Attributes:
      observations: a nest of tensors or ragged tensors with S rows each, as the policy takes them.
      rows: int32 [T, B], the observation that each step was taken in.
      actions: int32 [T, B].
      log_probs: float32 [T, B], of the actions under the policy that acted.
      values: float32 [T + 1, B], in the learner's units; the last bootstraps truncated rows.
      rewards: float32 [T, B], in the environment's units.
      terminals: bool [T, B].
      alive: bool [T, B].
    """

    observations: Any
    rows: tf.Tensor
    actions: tf.Tensor
    log_probs: tf.Tensor
    values: tf.Tensor
    rewards: tf.Tensor
    terminals: tf.Tensor
    alive: tf.Tensor


def any_rows(observations: Any) -> Any:
    """Type specifications of the same observations in any number (and graphs of any size)."""

    def specification(field: Any) -> tf.TypeSpec:
        if isinstance(field, tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, None, *field.shape[2:]], field.dtype, ragged_rank=1)
        return tf.TensorSpec([None, *field.shape[1:]], field.dtype)

    return tf.nest.map_structure(specification, observations)


def signature(experience: Experience) -> Experience:
    """Type specifications under which one trace serves experiences with any number of observations."""
    others = (tf.TensorSpec.from_tensor(field) for field in experience[1:])
    return Experience(any_rows(experience.observations), *others)


def from_rollout(rollout: Rollout, *, telescoping: bool = False) -> Experience:
    """The experience in a rollout over latent states.

    Args:
      rollout: of a dream.
      telescoping: hold its rewards to what is known of the real ones (see `controller.ppo.telescoping`).
    """
    time, batch = rollout.actions.shape
    rewards = rollout.rewards
    if telescoping:
        rewards = tf.constant(settled(rewards.numpy(), rollout.action_mask.numpy()))
    steps = time * batch
    observations = LatentObservation(
        *(tf.reshape(field[:-1], [steps, field.shape[-1]]) for field in (rollout.z, rollout.h, rollout.action_mask))
    )
    return Experience(
        observations=observations,
        rows=tf.reshape(tf.range(steps, dtype=tf.int32), [time, batch]),
        actions=rollout.actions,
        log_probs=rollout.log_probs,
        values=rollout.values,
        rewards=rewards,
        terminals=rollout.terminals,
        alive=rollout.alive,
    )
