"""Correlations and paired tests agree with their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from environment.statistics.paired import Method, paired_test, pearson, spearman

numbers = hnp.arrays(float, 12, elements=st.integers(-5, 5).map(float))


def brute_spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the correlation of ranks; a rank is the number of smaller values plus half of the equal ones."""

    def ranks(values: np.ndarray) -> list[float]:
        return [
            sum(other < value for other in values) + 0.5 * sum(other == value for other in values) for value in values
        ]

    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


@given(numbers, numbers)
def test_spearman_is_the_correlation_of_ranks(x: np.ndarray, y: np.ndarray) -> None:
    assert spearman(x, y) == pytest.approx(brute_spearman(x, y), abs=1e-9, nan_ok=True)


def test_correlations_are_scipys() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 9, (2, 60)).astype(float)
    assert spearman(x, x + y) == pytest.approx(stats.spearmanr(x, x + y).statistic)
    assert pearson(x, x + y) == pytest.approx(stats.pearsonr(x, x + y).statistic)


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
    """Values that vary only by rounding correlate with nothing, too."""
    rising = [1.0, 2.0, 3.0]
    for constant in ([1.0, 1.0, 1.0], [100.0, 100.0 + 1e-13, 100.0]):
        assert np.isnan(pearson(constant, rising)) and np.isnan(pearson(rising, constant))
    assert np.isnan(spearman(rising, np.ones(3)))


@given(hnp.arrays(float, 6, elements=st.integers(-4, 4).map(float)))
@settings(deadline=None, max_examples=50)
def test_the_permutation_test_counts_signs(differences: np.ndarray) -> None:
    """The p-value is the share of all 2^n sign patterns whose mean is at least as far from zero."""
    means = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    expected = np.mean(np.array(means) >= abs(differences.sum()) - 1e-9)
    found = paired_test(differences + 3.0, np.full(6, 3.0))
    assert found.p_value == pytest.approx(expected) and found.difference == pytest.approx(differences.mean())


def test_the_signed_rank_test_is_exact_for_few_pairs() -> None:
    """If all n differences are positive, 2 of 2^n sign patterns are as extreme."""
    for pairs in (5, 8):
        first = np.arange(1.0, pairs + 1)
        assert paired_test(first, np.zeros(pairs), method="wilcoxon").p_value == pytest.approx(2.0 ** (1 - pairs))
        found = paired_test(first, np.zeros(pairs), method="wilcoxon", alternative="greater")
        assert found.p_value == pytest.approx(2.0**-pairs)


def test_the_t_test_has_its_closed_form_for_two_pairs() -> None:
    """With one degree of freedom, Student's distribution is Cauchy's: P(|T| > t) = 1 - 2/π · arctan t."""
    t = (1.0 + 2.0) / 2 / (math.sqrt(0.5) / math.sqrt(2))
    found = paired_test([1.0, 2.0], [0.0, 0.0], method="t")
    assert found.p_value == pytest.approx(1 - 2 / math.pi * math.atan(t))


@pytest.mark.parametrize("method", ["permutation", "wilcoxon", "t"])
def test_sides_can_be_exchanged_and_units_do_not_matter(method: Method) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.8, 1.0, 20), rng.normal(size=20)
    found = paired_test(first, second, method=method)
    assert found.pairs == 20 and found.p_value == paired_test(first, second, method=method, seed=0).p_value
    turned = paired_test(10 * second, 10 * first, method=method)
    assert turned.difference == pytest.approx(-10 * found.difference)
    assert turned.p_value == pytest.approx(found.p_value, abs=0.01)  # signs are drawn: the standard error is 0.002
    less, greater = (
        paired_test(first, second, method=method, alternative=side).p_value for side in ("less", "greater")
    )
    assert greater < found.p_value < less


@pytest.mark.parametrize("method", ["permutation", "wilcoxon", "t"])
def test_equal_methods_are_seldom_told_apart(method: Method) -> None:
    """At a level of 5 % or below, more than 25 of 200 pairs are told apart once in 100,000 runs."""
    rng = np.random.default_rng(1)
    assert sum(paired_test(*rng.normal(size=(2, 7)), method=method).p_value <= 0.05 for _ in range(200)) <= 25


def test_what_no_pair_can_tell() -> None:
    assert paired_test([1.0, 2.0], [1.0, 2.0], method="wilcoxon").p_value == 1.0
    for first, second in (([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0])):
        with pytest.raises(ValueError, match="a paired test needs"):
            paired_test(first, second)
