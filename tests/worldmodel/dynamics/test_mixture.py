from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from worldmodel.dynamics import mixture as mdn


def mixture(seed: int, *shape: int, components: int = 4, width: int = 3) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(*shape, components))
    means = 2.0 * generator.normal(size=(*shape, components, width))
    log_sigmas = generator.uniform(-2.0, 0.5, size=(*shape, components, width))
    return tuple(tf.constant(values, tf.float32) for values in (logits, means, log_sigmas))  # type: ignore[return-value]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_log_prob_is_that_of_tensorflow_probability(shape: tuple[int, ...]) -> None:
    parameters = mixture(0, *shape)
    x = tf.constant(np.random.default_rng(1).normal(size=(*shape, 3)), tf.float32)
    np.testing.assert_allclose(mdn.log_prob(x, *parameters), mdn.as_distribution(*parameters).log_prob(x), rtol=2e-5)


def test_log_prob_is_finite_where_densities_vanish() -> None:
    logits, means, log_sigmas = mixture(0, 6)
    x = means[:, 0] + 1e4
    value = mdn.log_prob(x, 1e4 * logits, means, log_sigmas - 3.0)
    assert np.all(np.isfinite(value))


def test_the_logits_get_a_gradient() -> None:
    logits, means, log_sigmas = mixture(0, 5)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = mdn.log_prob(means[:, 0], logits, means, log_sigmas)
    assert float(tf.reduce_max(tf.abs(tape.gradient(value, logits)))) > 1e-3


def test_log_sigma_stays_in_bounds_and_rises() -> None:
    raw = tf.constant(np.linspace(-200.0, 200.0, 401), tf.float32)
    bounded = mdn.bound_log_sigma(raw, -3.0, 1.0).numpy()
    assert bounded.min() >= -3.0 and bounded.max() <= 1.0
    assert np.all(np.diff(bounded) >= 0.0)


def test_temperature_zero_is_the_most_likely_mean() -> None:
    parameters = mixture(2, 50)
    for seed in range(5):
        drawn = mdn.sample(*parameters, 0.0, tf.constant([seed, 7]))
        np.testing.assert_array_equal(drawn, mdn.most_likely_mean(*parameters[:2]))


def test_low_temperatures_approach_it() -> None:
    parameters = mixture(3, 2000)
    distances = [
        float(
            tf.reduce_mean(
                tf.abs(mdn.sample(*parameters, tau, tf.constant([1, 2])) - mdn.most_likely_mean(*parameters[:2]))
            )
        )
        for tau in (1.0, 0.1, 1e-2, 1e-4)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.02


@pytest.mark.parametrize("along", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, -2, 0.5), (0, 1, -1)])
def test_temperature_one_is_the_mixture_itself(along: tuple[float, ...]) -> None:
    """Kolmogorov-Smirnov on projections, which are mixtures of Gaussians again; false alarms: 1 in 10^6 each.

    Those along more than one dimension tell whether these are drawn from one and the same component.
    """
    count = 20000
    logits, means, log_sigmas = mixture(4)
    many = (tf.broadcast_to(part, (count, *part.shape)) for part in (logits, means, log_sigmas))
    ordered = np.sort(mdn.sample(*many, 1.0, tf.constant([5, 6])).numpy() @ np.array(along))
    centres, deviations = means.numpy() @ along, np.sqrt(np.exp(2.0 * log_sigmas.numpy()) @ np.square(along))
    below = 0.5 * (1.0 + tf.math.erf((ordered[:, np.newaxis] - centres) / deviations / np.sqrt(2.0)).numpy())
    distance = np.max(np.abs(below @ tf.nn.softmax(logits).numpy() - (np.arange(count) + 0.5) / count))
    assert distance * np.sqrt(count) < 2.7  # 2 exp(-2 · 2.7²) = 1e-6


@pytest.mark.parametrize("tau", [0.25, 2.0])
def test_temperature_divides_logits_and_scales_noise_by_its_root(tau: float) -> None:
    """Component frequencies and spread at τ; bounds are 5 standard errors (false alarms below 1 in 10^5)."""
    count = 40000
    logits = tf.constant([0.0, 1.0, -1.0])
    means, log_sigmas = tf.constant([[-100.0], [0.0], [100.0]]), tf.constant([[0.0], [0.5], [-0.5]])
    many = [tf.broadcast_to(p, (count, *p.shape)) for p in (logits, means, log_sigmas)]
    drawn = mdn.sample(*many, tau, tf.constant([8, 9])).numpy()[:, 0]
    expected = tf.nn.softmax(logits / tau).numpy()
    component = np.rint(drawn / 100.0).astype(int) + 1
    frequencies = np.bincount(component, minlength=3) / count
    assert np.all(np.abs(frequencies - expected) < 5.0 * np.sqrt(expected * (1 - expected) / count) + 1e-9)
    noise = drawn[component == 1]
    expected_deviation = np.sqrt(tau) * np.exp(0.5)
    assert abs(noise.std() - expected_deviation) < 5.0 * expected_deviation / np.sqrt(2.0 * len(noise))


def test_samples_depend_on_the_seed_only() -> None:
    parameters = mixture(6, 10)
    same = [mdn.sample(*parameters, 1.0, tf.constant([3, 4])) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert np.any(same[0] != mdn.sample(*parameters, 1.0, tf.constant([3, 5])))


def test_the_mean_is_the_distributions() -> None:
    parameters = mixture(7, 4)
    np.testing.assert_allclose(mdn.mixture_mean(*parameters[:2]), mdn.as_distribution(*parameters).mean(), rtol=1e-5)
