from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldmodel import metrics

bits = hnp.arrays(bool, (4, 9))
numbers = hnp.arrays(float, 12, elements=st.integers(-5, 5).map(float))


def brute_spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation of ranks, a rank being how many values are smaller plus half of those that are equal."""

    def ranks(values: np.ndarray) -> list[float]:
        return [
            sum(other < value for other in values) + 0.5 * sum(other == value for other in values) for value in values
        ]

    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


@given(numbers, numbers)
def test_spearman_is_the_correlation_of_ranks(x: np.ndarray, y: np.ndarray) -> None:
    assert metrics.spearman(x, y) == pytest.approx(brute_spearman(x, y), abs=1e-9, nan_ok=True)


@given(numbers, numbers)
def test_spearman_sees_order_only(x: np.ndarray, y: np.ndarray) -> None:
    assert metrics.spearman(np.exp(x), y**3) == pytest.approx(metrics.spearman(x, y), abs=1e-9, nan_ok=True)


@given(bits, bits)
def test_perfect_bits_are_perfect_and_copies_score_one(real: np.ndarray, before: np.ndarray) -> None:
    if (real ^ before).any():
        assert metrics.change_accuracy(real, real, before).f1 == 1.0
        assert metrics.relative_mask_error(real, real, before) == 0.0
        assert metrics.relative_mask_error(before, real, before) == 1.0
        assert math.isnan(metrics.change_accuracy(before, real, before).precision)


@given(bits, bits)
def test_f1_is_the_harmonic_mean_by_counts(predicted: np.ndarray, real: np.ndarray) -> None:
    hits, wrong = np.sum(predicted & real), np.sum(predicted ^ real)
    if hits:
        assert metrics.bit_accuracy(predicted, real).f1 == pytest.approx(2 * hits / (2 * hits + wrong))


@given(numbers)
def test_determination_is_one_for_truth_and_zero_for_the_mean(real: np.ndarray) -> None:
    if real.std() > 0:
        assert metrics.determination(real, real) == 1.0
        assert metrics.determination(np.full_like(real, real.mean()), real) == pytest.approx(0.0)


def test_latent_error_is_relative_to_copying() -> None:
    before, real = np.zeros((5, 3)), np.ones((5, 3))
    assert metrics.relative_latent_error(before, real, before) == 1.0
    assert metrics.relative_latent_error(real, real, before) == 0.0
    assert metrics.relative_latent_error(0.5 * real, real, before) == pytest.approx(0.25)


def test_mean_absolute_error() -> None:
    assert metrics.mean_absolute_error(np.array([1.0, -1.0]), np.array([0.0, 1.0])) == 1.5
