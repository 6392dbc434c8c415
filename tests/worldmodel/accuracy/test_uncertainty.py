from __future__ import annotations

import math

import numpy as np
import pytest

from worldmodel.accuracy.uncertainty import LEVELS, Mixtures, at_floor, covered, distribution, fit_scale
from worldmodel.dynamics import mixture as mdn

ROWS, K, Z = 4000, 3, 2


@pytest.fixture(scope="module")
def mixtures() -> Mixtures:
    rng = np.random.default_rng(0)
    return Mixtures(rng.normal(size=(ROWS, K)), rng.normal(size=(ROWS, K, Z)), rng.normal(-1, 0.5, (ROWS, K, Z)))


def draw(mixtures: Mixtures, sigma_factor: float = 1.0) -> np.ndarray:
    """Returns one vector drawn from each mixture."""
    rng, rows = np.random.default_rng(1), np.arange(len(mixtures.logits))
    gumbel = -np.log(-np.log(rng.uniform(size=mixtures.logits.shape)))
    chosen = np.argmax(mixtures.logits + gumbel, axis=-1)
    noise = rng.normal(size=(len(rows), mixtures.means.shape[-1]))
    return mixtures.means[rows, chosen] + sigma_factor * np.exp(mixtures.log_sigmas[rows, chosen]) * noise


@pytest.mark.parametrize("level", LEVELS)
def test_intervals_of_the_truth_cover_what_they_say(mixtures: Mixtures, level: float) -> None:
    """The share of 8,000 coordinates is off by 0.025 in less than one of 10,000 runs."""
    assert covered(draw(mixtures), mixtures, level).mean() == pytest.approx(level, abs=0.025)


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_a_wrong_scale_is_found(mixtures: Mixtures, factor: float) -> None:
    single = Mixtures(mixtures.logits[:, :1], mixtures.means[:, :1], mixtures.log_sigmas[:, :1])
    x = draw(single, factor)
    assert fit_scale(x, single) == pytest.approx(factor, rel=0.1)
    assert abs(covered(x, single, 0.5).mean() - 0.5) > 0.1


def test_distribution_is_that_of_the_mixture(mixtures: Mixtures) -> None:
    """The derivative of the distribution function is the density, which `mdn` computes for vectors of width 1."""
    one = Mixtures(mixtures.logits[:20], mixtures.means[:20, :, :1], mixtures.log_sigmas[:20, :, :1])
    x, step = draw(one), 0.02
    slope = (distribution(x + step, one) - distribution(x - step, one))[:, 0] / (2 * step)
    np.testing.assert_allclose(slope, np.exp(mdn.log_prob(x, *one).numpy()), rtol=0.05, atol=0.01)


def test_share_at_the_floor_is_of_the_likeliest_component() -> None:
    logits = np.array([[0.0, 1.0], [5.0, 1.0]])
    log_sigmas = np.array([[[0.0, 0.0], [-3.0, 0.0]], [[-2.95, -3.0], [0.0, 0.0]]])
    mixtures = Mixtures(logits, np.zeros_like(log_sigmas), log_sigmas)
    assert at_floor(mixtures, -3.0, 0.1).tolist() == [0.5, 1.0]
    assert at_floor(mixtures, -3.0, 0.01).tolist() == [0.5, 0.5]


def test_weights_sum_to_one_however_large_the_logits() -> None:
    mixtures = Mixtures(np.array([[1e4, 0.0], [0.0, math.log(3.0)]]), np.zeros((2, 2, 1)), np.zeros((2, 2, 1)))
    np.testing.assert_allclose(mixtures.weights(), [[1.0, 0.0], [0.25, 0.75]])
