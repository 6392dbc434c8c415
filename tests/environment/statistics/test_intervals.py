"""Intervals of medians of grouped samples, of means of seeds and of statistics of rows cover the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environment.statistics.intervals import (
    FEWEST_GROUPS,
    NORMAL_HALF_WIDTH,
    Estimate,
    bootstrap,
    mean_of_seeds,
    median_of_groups,
)

TRIALS = 200
MEAN_TRIALS = 300


def groups_of(
    rng: np.random.Generator, sessions: int, samples: int, between: float, within: float
) -> list[list[float]]:
    shifts = rng.normal(0, between, sessions)
    return [(1 + shift + rng.normal(0, within, samples)).tolist() for shift in shifts]


@pytest.mark.parametrize(
    ("sessions", "samples", "between", "within", "fewest"),
    [
        (1, 40, 0.0, 0.05, 172),  # at a coverage of 0.93, fewer cover once in 10,000 runs; so below
        (3, 8, 0.002, 0.01, 176),  # 0.95, the usual case
        (5, 12, 0.005, 0.005, 165),  # 0.90, sessions that differ as much as samples
        (5, 12, 0.01, 0.0001, 165),  # 0.90, only sessions differ
    ],
)
def test_intervals_cover_the_median(sessions: int, samples: int, between: float, within: float, fewest: int) -> None:
    rng = np.random.default_rng(0)
    found = [median_of_groups(groups_of(rng, sessions, samples, between, within), seed) for seed in range(TRIALS)]
    assert sum(estimate.covers(1.0) for estimate in found) >= fewest


def test_differences_between_sessions_widen_the_interval() -> None:
    """Ten samples of each of five sessions are not fifty independent samples."""
    groups = groups_of(np.random.default_rng(0), 5, 10, 0.02, 0.001)
    pooled = [[sample for group in groups for sample in group]]
    assert median_of_groups(groups, 0).half_width > 1.3 * median_of_groups(pooled, 0).half_width


@given(
    st.lists(st.lists(st.floats(0.1, 10), min_size=1, max_size=9), min_size=1, max_size=5),
    st.integers(0, 9),
    st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=50)
def test_estimates_are_ordered_repeatable_and_keep_their_unit(
    groups: list[list[float]], seed: int, factor: float
) -> None:
    found = median_of_groups(groups, seed)
    assert found.low <= found.value <= found.high
    assert found.value == np.median(np.concatenate(groups))
    assert found == median_of_groups(groups, seed)
    other = median_of_groups([[factor * sample for sample in group] for group in groups], seed)
    for field in ("value", "low", "high"):
        assert getattr(found.scaled(factor), field) == pytest.approx(getattr(other, field))
    assert other.half_width == pytest.approx(found.half_width, abs=1e-12)


def test_unequal_sessions_count_all_their_samples() -> None:
    """A short session must not be padded with anything."""
    found = median_of_groups([[2.0], [2.0] * 50], 0)
    assert found == Estimate(2.0, 2.0, 2.0)


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_intervals_mean_of_seeds_cover_the_mean(count: int) -> None:
    """At a coverage of 0.92, fewer than 258 of 300 cover once in 5,000 runs; plain percentiles cover at most 0.90."""
    rng = np.random.default_rng(count)
    found = [mean_of_seeds(rng.normal(3.0, 1.0, count), seed=trial) for trial in range(MEAN_TRIALS)]
    assert sum(estimate.covers(3.0) for estimate in found) >= 258


def test_intervals_over_episodes_cover_the_mean_of_all() -> None:
    """Windows of an episode are alike, so that intervals over single windows would be far too narrow.

    At a coverage of 0.92, which percentiles of 30 groups have, fewer than 258 of 300 cover once in 5,000 runs.
    """
    rng, episodes = np.random.default_rng(0), np.repeat(np.arange(30), 8)
    grouped, single = 0, 0
    for trial in range(MEAN_TRIALS):
        values = np.repeat(rng.normal(size=30), 8) + 0.1 * rng.normal(size=240)
        grouped += bootstrap(np.mean, [values], groups=episodes, resamples=200, seed=trial).covers(0.0)
        single += bootstrap(np.mean, [values], resamples=200, seed=trial).covers(0.0)
    assert grouped >= 258 > 200 > single


def test_a_statistic_of_several_columns_keeps_rows_together() -> None:
    rng = np.random.default_rng(1)
    x, episodes = rng.normal(size=80), np.repeat(np.arange(8), 10)
    found = bootstrap(lambda a, b: float(np.corrcoef(a, b[:, 0])[0, 1]), [x, 2 * x[:, np.newaxis]], groups=episodes)
    assert (found.low, found.value, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_order_and_names_of_episodes_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    values, episodes = rng.normal(size=40), np.repeat(np.arange(8), 5)
    renamed = bootstrap(np.mean, [values], groups=100 + 7 * episodes)
    assert bootstrap(np.mean, [values], groups=episodes) == renamed
    found = bootstrap(np.mean, [values[::-1]], groups=episodes[::-1])
    assert found.value == pytest.approx(renamed.value) and found.low == pytest.approx(renamed.low)


def test_what_a_few_cannot_tell_is_left_open() -> None:
    few = np.repeat(np.arange(FEWEST_GROUPS - 1), 3)
    for found in (mean_of_seeds([2.0]), bootstrap(np.mean, [np.full(len(few), 2.0)], groups=few)):
        assert found.value == 2.0 and math.isnan(found.low) and math.isnan(found.high)
    assert math.isnan(bootstrap(np.mean, [np.zeros(0)]).value)
    assert math.isnan(mean_of_seeds([1.0, math.nan]).value)


def test_intervals_of_a_mean_are_the_normal_ones_of_many_samples() -> None:
    """The bootstrap's standard error of a mean is s / √n, as in the normal interval; both methods converge to that."""
    sample = np.random.default_rng(3).normal(5.0, 2.0, 400)
    expected = NORMAL_HALF_WIDTH * sample.std() / math.sqrt(len(sample))
    for method in ("percentile", "BCa"):
        found = bootstrap(np.mean, [sample], method=method, resamples=4000)
        assert found.value == sample.mean()
        assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.05)


def test_the_corrected_interval_follows_a_skewed_sample() -> None:
    """For a mean of exponential numbers, the upper end is farther away, with BCa more so than with percentiles."""
    sample = np.random.default_rng(4).exponential(size=30)
    plain, corrected = (bootstrap(np.mean, [sample], method=m, resamples=4000) for m in ("percentile", "BCa"))
    skew = [(each.high - each.value) / (each.value - each.low) for each in (plain, corrected)]
    assert skew[1] > skew[0] > 1


def test_an_interval_is_repeatable_and_changes_with_its_seed() -> None:
    sample = np.random.default_rng(5).normal(size=20)
    found = [bootstrap(np.median, [sample], seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_the_width_of_seeds_is_students() -> None:
    """A quarter of the drawn means are each of the two seeds, so the interval is their distance, widened."""
    bounded = mean_of_seeds([0.9, 0.3], least=-1, largest=1)
    assert (bounded.low, bounded.high) == (-1, 1), "two seeds may mean anything"
    found = mean_of_seeds([1.0, 3.0])
    student = math.tan(math.pi * 0.475)  # the quantile for one degree of freedom: Cauchy's
    assert (found.high - found.low) / 2 == pytest.approx(math.sqrt(2) * student / NORMAL_HALF_WIDTH)
