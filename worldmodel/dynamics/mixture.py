"""Mixtures of diagonal Gaussians, as pure functions. K components over vectors of width Z.

A mixture is (logits [..., K], means [..., K, Z], log_sigmas [..., K, Z]); logits are unnormalised log weights.
Source: Bishop 1994; Ha & Schmidhuber 2018 for the temperature.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:  # it takes a second to import, and training and dreaming can do without
    import tensorflow_probability as tfp

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
ALGORITHM = "philox"
"""Of random numbers; what TensorFlow would choose by itself depends on the device, and XLA may choose another."""


def bound_log_sigma(raw: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Maps any real number smoothly into (low, high): with an unbounded σ the likelihood runs away either way."""
    return low + (high - low) * tf.math.sigmoid(raw)


def log_prob(x: tf.Tensor, logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor) -> tf.Tensor:
    """Log density of `x` [..., Z] under the mixture, in nats: [...].

    Log-sum-exp throughout. `as_distribution(...).log_prob(x)` is the same number, slower and without a gradient to the
    logits by default.
    """
    standardised = (x[..., tf.newaxis, :] - means) * tf.exp(-log_sigmas)
    component = -tf.reduce_sum(0.5 * tf.square(standardised) + log_sigmas + HALF_LOG_TWO_PI, axis=-1)
    return tf.reduce_logsumexp(tf.nn.log_softmax(logits) + component, axis=-1)


def sample(
    logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor, temperature: float | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Draws one vector from the mixture at temperature τ: [..., Z].

    τ divides the logits before the softmax and scales the Gaussian noise by √τ: τ = 1 is the mixture itself, τ → 0 the
    mean of its most likely component, exactly so at τ = 0.

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
    """Draws indices int64 [...] with logits / τ of [..., K]; at τ = 0 the most likely one. `seed` int32 [2]."""
    # argmax(logits / τ + Gumbel) = argmax(logits + τ · Gumbel), which needs no division and holds at τ = 0.
    uniform = tf.random.stateless_uniform(tf.shape(logits), seed, minval=1e-20, maxval=1.0, alg=ALGORITHM)
    return tf.argmax(logits - temperature * tf.math.log(-tf.math.log(uniform)), axis=-1)


def most_likely_mean(logits: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Mean of the component with the largest weight, the limit of `sample` for τ → 0: [..., Z]."""
    return select_component(tf.argmax(logits, axis=-1), means)


def mixture_mean(logits: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """Expectation of the mixture: [..., Z]."""
    return tf.reduce_sum(tf.nn.softmax(logits)[..., tf.newaxis] * means, axis=-2)


def select_component(component: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """values[..., component, :] for component int [...] and values [..., K, Z]: [..., Z]."""
    return tf.gather(values, component, axis=-2, batch_dims=component.shape.rank)


def as_distribution(logits: tf.Tensor, means: tf.Tensor, log_sigmas: tf.Tensor) -> tfp.distributions.MixtureSameFamily:
    """The mixture as a TensorFlow Probability distribution."""
    import tensorflow_probability as tfp

    return tfp.distributions.MixtureSameFamily(
        tfp.distributions.Categorical(logits=logits),
        tfp.distributions.MultivariateNormalDiag(means, tf.exp(log_sigmas)),
        reparameterize=False,
    )
