"""Intervals of medians of grouped samples cover what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environment.statistics.intervals import Estimate, median_of_groups

TRIALS = 200


def groups_of(
    rng: np.random.Generator, sessions: int, samples: int, between: float, within: float
) -> list[list[float]]:
    shifts = rng.normal(0, between, sessions)
    return [(1 + shift + rng.normal(0, within, samples)).tolist() for shift in shifts]


@pytest.mark.parametrize(
    ("sessions", "samples", "between", "within", "fewest"),
    [
        (1, 40, 0.0, 0.05, 172),  # at a coverage of 0.93 fewer come once in 10,000 runs, so everywhere below
        (3, 8, 0.002, 0.01, 176),  # 0.95, what is usual
        (5, 12, 0.005, 0.005, 165),  # 0.90, sessions that differ as much as samples
        (5, 12, 0.01, 0.0001, 165),  # 0.90, nothing but sessions
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
    """A short session must not be filled up with anything."""
    found = median_of_groups([[2.0], [2.0] * 50], 0)
    assert found == Estimate(2.0, 2.0, 2.0)
