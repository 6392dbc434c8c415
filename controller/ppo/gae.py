"""Generalised advantage estimation."""

from __future__ import annotations

import tensorflow as tf


def generalised_advantages(
    rewards: tf.Tensor,
    values: tf.Tensor,
    terminals: tf.Tensor,
    alive: tf.Tensor,
    *,
    discount: float,
    trace_decay: float,
) -> tf.Tensor:
    """Advantages of finished and of truncated rollouts.

    A terminal step has no future: nothing is bootstrapped. A truncated row merely stopped being watched: its last
    step bootstraps from the value of the state it led to. Neither lets anything flow back from the padding behind it.

    Args:
      rewards: [time, batch].
      values: [time + 1, batch], of the states before each step and of the last one.
      terminals: bool [time, batch], the step ended the episode.
      alive: bool [time, batch], the step was really taken; false from the end of a row on.
      discount, trace_decay: γ and λ in [0, 1].
    Returns:
      float32 [time, batch] advantages, not normalised; zero where not alive.
    Raises:
      ValueError: if `values` is not one step longer than `rewards`.
    Source: Schulman et al. 2016, eq. 16; Pardo et al. 2018 for time limits.
    """
    time, steps = rewards.shape[0], values.shape[0]
    if time is not None and steps is not None and steps != time + 1:
        raise ValueError(f"values must have one step more than rewards: {time + 1} expected, {steps} came.")
    alive = tf.cast(alive, tf.float32)
    continues = 1.0 - tf.cast(terminals, tf.float32)
    errors = alive * (rewards + discount * continues * values[1:] - values[:-1])
    following = tf.concat([alive[1:], tf.zeros_like(alive[:1])], axis=0)  # is there a step after this one?
    decays = discount * trace_decay * continues * following

    def backwards(later: tf.Tensor, step: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        error, decay = step
        return error + decay * later

    return tf.scan(backwards, (errors, decays), initializer=tf.zeros_like(errors[0]), reverse=True)
