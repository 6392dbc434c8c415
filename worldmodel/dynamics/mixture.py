"""Mixtures of K diagonal Gaussians over vectors of width Z, as pure functions.

A mixture is (logits [..., K], means [..., K, Z], log_sigmas [..., K, Z]); logits are unnormalised log weights.
Source: Bishop 1994; Ha & Schmidhuber 2018 for the temperature.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:  # importing it takes a second, and training and dreaming do not need it
    import tensorflow_probability as tfp

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
ALGORITHM = "philox"
"""The algorithm of random numbers; TensorFlow's own choice depends on the device, and XLA may choose another."""


def bound_log_sigma(raw: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Maps any real number smoothly into (low, high). The likelihood diverges if σ is not bounded on both sides."""
    return low + (high - low) * tf.math.sigmoid(raw)


def log_prob(x: tf.Tensor, logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor) -> tf.Tensor:
    """Returns the log density of `x` [..., Z] under the mixture, in nats: [...].

    It uses log-sum-exp throughout. `as_distribution(...).log_prob(x)` gives the same number, but more slowly and by
    default without a gradient to the logits.
    """
    standardised = (x[..., tf.newaxis, :] - means) * tf.exp(-log_sigmas)
    component = -tf.reduce_sum(0.5 * tf.square(standardised) + log_sigmas + HALF_LOG_TWO_PI, axis=-1)
    return tf.reduce_logsumexp(tf.nn.log_softmax(logits) + component, axis=-1)


def sample(
    logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor, temperature: float | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Draws one vector from the mixture at temperature τ: [..., Z].

    τ divides the logits before the softmax and scales the Gaussian noise by √τ. At τ = 1 the draw is from the mixture
    itself; at τ = 0, and in the limit τ → 0, it is the mean of the most likely component.

    Args:
      temperature: τ ≥ 0, scalar.
      seed: int32 [2].
    """
    component_seed, noise_seed = tf.unstack(tf.random.split(seed, 2, alg=ALGORITHM))
    temperature = tf.convert_to_tensor(temperature, means.dtype)
    component = categorical_sample(logits, temperature, component_seed)
    mean, log_sigma = select_component(component, means), select_component(component, log_sigmas)
    noise = tf.random.stateless_normal(tf.shape(mean), noise_seed, alg=ALGORITHM)
    return mean + tf.sqrt(temperature) * tf.exp(log_sigma) * noise


def categorical_sample(logits: tf.Tensor, temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws indices int64 [...] from the softmax of logits / τ; at τ = 0 the index is the most likely one.

    Args:
      logits: [..., K]; temperature: τ ≥ 0, scalar; seed: int32 [2].
    """
    # argmax(logits / τ + Gumbel) = argmax(logits + τ · Gumbel), which needs no division and holds at τ = 0.
    uniform = tf.random.stateless_uniform(tf.shape(logits), seed, minval=1e-20, maxval=1.0, alg=ALGORITHM)
    return tf.argmax(logits - temperature * tf.math.log(-tf.math.log(uniform)), axis=-1)


def most_likely_mean(logits: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the component with the largest weight, the limit of `sample` for τ → 0: [..., Z]."""
    return select_component(tf.argmax(logits, axis=-1), means)


def mixture_mean(logits: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Returns the expectation of the mixture: [..., Z]."""
    return tf.reduce_sum(tf.nn.softmax(logits)[..., tf.newaxis] * means, axis=-2)


def select_component(component: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns values[..., component, :] for component int [...] and values [..., K, Z]: [..., Z]."""
    return tf.gather(values, component, axis=-2, batch_dims=component.shape.rank)


def as_distribution(logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor) -> tfp.distributions.MixtureSameFamily:
    """Returns the mixture as a TensorFlow Probability distribution."""
    import tensorflow_probability as tfp

    return tfp.distributions.MixtureSameFamily(
        tfp.distributions.Categorical(logits=logits),
        tfp.distributions.MultivariateNormalDiag(means, tf.exp(log_sigmas)),
        reparameterize=False,
    )
