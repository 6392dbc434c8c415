"""Aggregates of runs over tasks agree with their definitions and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from environment.statistics.runs import interquartile_mean, probability_of_improvement, stratified_bootstrap

TRIALS = 200


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    scores = np.random.default_rng(0).permutation([-1000.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e6]).reshape(4, 2)
    assert interquartile_mean(scores) == pytest.approx((1 + 2 + 3 + 4) / 4)


@given(
    hnp.arrays(float, (5, 3), elements=st.integers(0, 4).map(float)),
    hnp.arrays(float, (7, 3), elements=st.integers(0, 4).map(float)),
)
def test_probability_of_improvement_is_the_mann_whitney_statistic(first: np.ndarray, second: np.ndarray) -> None:
    by_task = [stats.mannwhitneyu(first[:, i], second[:, i]).statistic / (5 * 7) for i in range(3)]
    assert probability_of_improvement(first, second) == pytest.approx(np.mean(by_task))
    assert probability_of_improvement(second, first) == pytest.approx(1 - np.mean(by_task))


def test_probability_of_improvement_of_normal_scores() -> None:
    """P(X > Y) of normal numbers whose means differ by d standard deviations is Φ(d / √2)."""
    rng = np.random.default_rng(1)
    found = probability_of_improvement(rng.normal(1.0, 1.0, (500, 4)), rng.normal(0.0, 1.0, (500, 4)))
    assert found == pytest.approx(stats.norm.cdf(1 / math.sqrt(2)), abs=0.02)


def test_tasks_are_not_drawn() -> None:
    """If tasks differ much but runs do not differ at all, nothing is uncertain."""
    scores = np.tile([1.0, 100.0, -7.0], (5, 1))
    found = stratified_bootstrap(np.mean, scores)
    assert found.low == pytest.approx(found.value) and found.high == pytest.approx(found.value)


def test_the_interval_of_a_mean_has_its_closed_form() -> None:
    """The standard error of the mean of all scores is that of the mean of T independent task means."""
    scores = np.random.default_rng(2).normal(size=(60, 3)) * [1.0, 2.0, 5.0]
    expected = math.sqrt(sum(scores.var(axis=0) / 60)) / 3
    found = stratified_bootstrap(np.mean, scores, resamples=4000)
    assert (found.high - found.low) / 2 == pytest.approx(stats.norm.ppf(0.975) * expected, rel=0.06)


@pytest.mark.full
def test_intervals_cover_the_truth() -> None:
    """At a coverage of 0.92, fewer than 168 of 200 intervals cover the truth once in 10,000 runs."""
    rng, covered = np.random.default_rng(3), {"iqm": 0, "improvement": 0}
    for seed in range(TRIALS):
        first, second = rng.normal(0.5, 1.0, (20, 2)), rng.normal(0.0, 1.0, (20, 2))
        covered["iqm"] += stratified_bootstrap(interquartile_mean, first, resamples=200, seed=seed).covers(0.5)
        found = stratified_bootstrap(probability_of_improvement, first, second, resamples=200, seed=seed)
        covered["improvement"] += found.covers(stats.norm.cdf(0.5 / math.sqrt(2)))
    assert min(covered.values()) >= 168


def test_one_run_has_no_interval() -> None:
    found = stratified_bootstrap(interquartile_mean, np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert found.value == 2.5 and math.isnan(found.low) and math.isnan(found.high)


def test_scores_have_two_axes_and_the_same_tasks() -> None:
    for scores in (np.zeros(3), np.zeros((0, 3)), np.array([[math.nan, 1.0]])):
        with pytest.raises(ValueError, match="scores must be"):
            interquartile_mean(scores)
    with pytest.raises(ValueError, match="same tasks; got 2 and 3"):
        probability_of_improvement(np.zeros((2, 2)), np.zeros((2, 3)))
