from __future__ import annotations

import math

import numpy as np
import pytest

from worldmodel.accuracy.bootstrap import FEWEST_EPISODES, over_episodes, over_seeds

TRIALS = 300


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_intervals_over_seeds_cover_the_mean(count: int) -> None:
    """At a coverage of 0.92 fewer than 258 of 300 come once in 5,000 runs; plain percentiles cover 0.90 at most."""
    rng = np.random.default_rng(count)
    found = [over_seeds(rng.normal(3.0, 1.0, count), seed=trial) for trial in range(TRIALS)]
    assert sum(estimate.covers(3.0) for estimate in found) >= 258


def test_intervals_over_episodes_cover_the_mean_of_all() -> None:
    """Windows of an episode are alike, so that intervals over single windows would be far too narrow.

    At a coverage of 0.92, what percentiles of 30 groups have, fewer than 258 of 300 come once in 5,000 runs.
    """
    rng, episodes = np.random.default_rng(0), np.repeat(np.arange(30), 8)
    grouped, single = 0, 0
    for trial in range(TRIALS):
        values = np.repeat(rng.normal(size=30), 8) + 0.1 * rng.normal(size=240)
        grouped += over_episodes(np.mean, [values], episodes, seed=trial).covers(0.0)
        single += over_episodes(np.mean, [values], np.arange(240), seed=trial).covers(0.0)
    assert grouped >= 258 > 200 > single


def test_a_statistic_of_several_columns_keeps_rows_together() -> None:
    rng = np.random.default_rng(1)
    x, episodes = rng.normal(size=80), np.repeat(np.arange(8), 10)
    found = over_episodes(lambda a, b: float(np.corrcoef(a, b[:, 0])[0, 1]), [x, 2 * x[:, np.newaxis]], episodes)
    assert (found.low, found.value, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_order_and_names_of_episodes_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    values, episodes = rng.normal(size=40), np.repeat(np.arange(8), 5)
    renamed = over_episodes(np.mean, [values], 100 + 7 * episodes)
    assert over_episodes(np.mean, [values], episodes) == renamed
    found = over_episodes(np.mean, [values[::-1]], episodes[::-1])
    assert found.value == pytest.approx(renamed.value) and found.low == pytest.approx(renamed.low)


def test_what_a_few_cannot_tell_is_left_open() -> None:
    few = np.repeat(np.arange(FEWEST_EPISODES - 1), 3)
    for found in (over_seeds([2.0]), over_episodes(np.mean, [np.full(len(few), 2.0)], few)):
        assert found.value == 2.0 and math.isnan(found.low) and math.isnan(found.high)
    assert math.isnan(over_episodes(np.mean, [np.zeros(0)], np.zeros(0)).value)
    assert math.isnan(over_seeds([1.0, math.nan]).value)
