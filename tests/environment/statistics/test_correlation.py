"""Correlations, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from environment.statistics.correlation import pearson, spearman

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
    assert spearman(x, y) == pytest.approx(brute_spearman(x, y), abs=1e-9, nan_ok=True)


@given(numbers, numbers)
def test_spearman_sees_order_only(x: np.ndarray, y: np.ndarray) -> None:
    assert spearman(np.exp(x), y**3) == pytest.approx(spearman(x, y), abs=1e-9, nan_ok=True)


@given(numbers, numbers)
def test_pearson_is_numpys_and_knows_no_units(x: np.ndarray, y: np.ndarray) -> None:
    if x.std() and y.std():
        assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
        assert pearson(100 * x + 7, -y) == pytest.approx(-pearson(x, y), abs=1e-9)


def test_a_resolution_makes_equals_of_what_hardly_differs() -> None:
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 3, 200)
    first, second = (levels + 1e-7 * rng.normal(size=200) for _ in range(2))
    assert spearman(first, second) < 0.95
    assert spearman(first, second, resolution=0.01) == pytest.approx(1.0)
    assert spearman(first, second, resolution=1e-9) == pytest.approx(spearman(first, second), abs=0.01)


def test_what_does_not_vary_correlates_with_nothing() -> None:
    """Neither does what varies by rounding only."""
    rising = [1.0, 2.0, 3.0]
    for constant in ([1.0, 1.0, 1.0], [100.0, 100.0 + 1e-13, 100.0]):
        assert np.isnan(pearson(constant, rising)) and np.isnan(pearson(rising, constant))
    assert np.isnan(spearman(rising, np.ones(3)))
