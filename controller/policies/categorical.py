"""The policy's distribution over numbered choices, such as the graphs that one rewrite leads to."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from controller.policies.hierarchical import MASKED, gumbel


class Distribution(Protocol):
    """What learners need of a distribution over the actions of B rows."""

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the log-probability of an action int32 [B] of each row: [B]."""

    def all_log_probs(self) -> tf.Tensor:
        """Returns the log-probabilities of all actions, float32 [B, K]; `MASKED` where illegal."""

    def entropies(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the entropy [B] of the first choice, and what a second choice adds to it; in nats."""

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws an action of each row: int32 [B]; `seed` is int32 [2]."""

    def mode(self) -> tf.Tensor:
        """Returns the most likely action of each row: int32 [B]."""

    def at_temperature(self, temperature: float) -> Distribution:
        """Returns the distribution with its logits divided by a temperature."""


def sampled(decided: tuple[Distribution, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns an action int32 [B] of each row, drawn from what a policy has decided; its log-probability; the value."""
    distribution, value = decided
    action = distribution.sample(seed)
    return action, distribution.log_prob(action), value


class Categorical:
    """A softmax over the K choices of each row, of which illegal ones have probability zero."""

    def __init__(self, logits: tf.Tensor, mask: tf.Tensor) -> None:
        """
        Args:
          logits: float32 [B, K].
          mask: bool [B, K], true for legal choices.
        """
        self._logits, self._mask = tf.where(mask, logits, MASKED), mask
        self._log_probs = tf.nn.log_softmax(self._logits)

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._log_probs, action, batch_dims=1)

    def all_log_probs(self) -> tf.Tensor:
        return tf.where(self._mask, self._log_probs, MASKED)

    def entropies(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the entropy, and zeros: there is no second choice."""
        terms = tf.where(self._mask, tf.exp(self._log_probs) * self._log_probs, 0.0)
        entropy = -tf.reduce_sum(terms, axis=1)
        return entropy, tf.zeros_like(entropy)

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        noisy = self._logits + gumbel(tf.shape(self._logits), seed)
        return tf.argmax(tf.where(self._mask, noisy, MASKED), axis=1, output_type=tf.int32)

    def mode(self) -> tf.Tensor:
        return tf.argmax(self._logits, axis=1, output_type=tf.int32)

    def at_temperature(self, temperature: float) -> Categorical:
        return Categorical(self._logits / temperature, self._mask)
