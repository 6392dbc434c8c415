"""Estimates with intervals: medians of timed sessions, means of seeds, and any statistic by the bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

CONFIDENCE = 0.95
TAIL_PERCENT = 50.0 * (1.0 - CONFIDENCE)
"""Percentile at which an interval begins; it ends at 100 minus this."""
NORMAL_HALF_WIDTH = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half the width of the interval of a normal error, in standard deviations of the error."""
FEWEST_GROUPS = 8
"""`bootstrap` gives no interval for fewer groups. Draws from fewer groups repeat a single group too often, and a
statistic that divides by their spread then explodes."""
_MEDIAN_RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A value with its interval.

    Attributes:
      value: the estimate.
      low, high: ends of its 95 % interval; NaN if the data do not determine them.
    """

    value: float
    low: float
    high: float

    @classmethod
    def without_interval(cls, value: float) -> Estimate:
        """Returns an estimate whose uncertainty is unknown."""
        return cls(value, float("nan"), float("nan"))

    @classmethod
    def of_draws(cls, value: float, draws: np.ndarray) -> Estimate:
        """Returns the percentile interval of bootstrap draws [resamples]; the interval always contains the value.

        Draws that are NaN are left out. If all draws are NaN, the interval has no width.
        """
        draws = draws[~np.isnan(draws)]
        low, high = np.percentile(draws, [TAIL_PERCENT, 100.0 - TAIL_PERCENT]) if len(draws) else (value, value)
        return cls(value, min(float(low), value), max(float(high), value))

    @property
    def half_width(self) -> float:
        """Half the width of the interval, as a fraction of the value."""
        return (self.high - self.low) / (2 * self.value)

    def covers(self, value: float) -> bool:
        """Returns whether `value` lies in the interval."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Estimate:
        """Returns the same estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(
    statistic: Callable[..., float],
    columns: Sequence[np.ndarray],
    *,
    groups: np.ndarray | None = None,
    method: Literal["percentile", "BCa"] = "percentile",
    resamples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Returns a statistic of rows with its bootstrap interval.

    Whole groups are drawn, not single rows: two windows of one episode are not two independent observations, and an
    interval from single windows would be far too narrow.

    Args:
      statistic: a function of the columns' rows, whose order does not matter. It may return NaN for some draws; these
        are left out of a percentile interval and make a BCa interval NaN.
      columns: arrays with one row for each of the n observations.
      groups: int [n], the group of each row; without it each row is a group of its own.
      method: "percentile", or "BCa" for intervals that correct for bias and skewness at the cost of one evaluation
        more for each group.
      resamples: number of draws; with 200 the ends of the interval vary by a few percent of its width.
      seed: seed of the draws.
    Returns:
      The statistic of all rows. The interval is NaN if there are fewer than `FEWEST_GROUPS` groups or the
      statistic is NaN.
    Source: Davison & Hinkley 1997, section 3.8 (groups); Efron 1987 (BCa).
    """
    distinct, group = np.unique(np.arange(len(columns[0])) if groups is None else groups, return_inverse=True)
    value = float(statistic(*columns)) if len(distinct) else float("nan")
    if len(distinct) < FEWEST_GROUPS or math.isnan(value):
        return Estimate.without_interval(value)
    rows_of = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])

    def of_groups(drawn: np.ndarray) -> float:
        rows = np.concatenate([rows_of[index] for index in drawn])
        return float(statistic(*(column[rows] for column in columns)))

    indices, rng = np.arange(len(distinct)), np.random.default_rng(seed)
    if method == "percentile":  # scipy's function makes this interval NaN as soon as one draw is NaN
        draws = [of_groups(rng.integers(0, len(indices), len(indices))) for _ in range(resamples)]
        return Estimate.of_draws(value, np.array(draws))
    from scipy import stats

    interval = stats.bootstrap(
        (indices,), of_groups, vectorized=False, n_resamples=resamples, confidence_level=CONFIDENCE, rng=rng
    ).confidence_interval
    return Estimate(value, min(float(interval.low), value), max(float(interval.high), value))


def mean_of_seeds(
    values: Sequence[float],
    *,
    least: float = -math.inf,
    largest: float = math.inf,
    seed: int = 0,
    resamples: int = 2000,
) -> Estimate:
    """Returns the mean of the figures of several seeds, with a bootstrap interval that allows for their small number.

    The means of n values that are drawn again vary less than the means of n new values would, by (n - 1) / n in
    variance, and the spread itself is uncertain. The interval is therefore widened by the root of n / (n - 1), and by
    the ratio of Student's quantile to the normal one. In simulations with normal values the interval covers the mean in
    93 % of cases with two seeds and in 94 to 95 % with three or more; plain percentiles cover it in 49 % (two), 75 %
    (three) and 83 % (five).

    Args:
      values: one figure for each seed; a NaN (a figure that does not exist) makes the mean NaN.
      least, largest: bounds of the figure, beyond which no interval reaches.
    Returns:
      The mean; the interval is NaN if there is one seed.
    Source: Hesterberg 2015, "What Teachers Should Know About the Bootstrap" (too narrow intervals of small samples).
    """
    sample = np.asarray(values, float)
    mean, count = float(sample.mean()), len(sample)
    if count < 2 or math.isnan(mean):
        return Estimate.without_interval(mean)
    from scipy.special import stdtrit

    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    student = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
    widening = math.sqrt(count / (count - 1)) * student / NORMAL_HALF_WIDTH
    return Estimate.of_draws(mean, np.clip(mean + (sample[drawn].mean(axis=1) - mean) * widening, least, largest))


def median_of_groups(groups: Sequence[Sequence[float]], seed: int) -> Estimate:
    """Returns the median of positive samples, with a bootstrap interval that allows for differences between groups.

    Groups are drawn first, then samples within each group. Drawing single samples alone would treat the samples of one
    session as independent and would mistake differences between sessions for effects. Few groups vary less than the
    population from which they were drawn, by (n - 1) / n in variance; the interval is widened by as much. In
    simulations with normal errors the interval covers 97 % if sessions differ less than samples do, which is the usual
    case. If the samples of a session do not differ at all, it covers 93 % with five sessions and 78 % with three. The
    interval of a single session describes that session only.

    This is vectorised by hand, because `scipy.stats.bootstrap` draws in one level only and the timing loops of
    `environment.measurement` call this function after each session.

    Args:
      groups: samples of each session; none is empty.
    Source: Davison & Hinkley 1997, section 3.8 (hierarchical data).
    """
    median = float(np.median(np.concatenate([np.asarray(group) for group in groups])))
    medians = _resampled_medians(groups, np.random.default_rng(seed))
    if len(groups) > 1:
        medians = median + (medians - median) * np.sqrt(len(groups) / (len(groups) - 1))
    return Estimate.of_draws(median, medians)


def _resampled_medians(groups: Sequence[Sequence[float]], rng: np.random.Generator) -> np.ndarray:
    """Returns the medians [resamples] of samples drawn in two levels."""
    sizes = np.array([len(group) for group in groups])
    table = np.full((len(groups), sizes.max()), np.inf)  # [group, sample]; sorting moves the padding to the end
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    drawn = rng.integers(0, len(groups), (_MEDIAN_RESAMPLES, len(groups)))
    size = sizes[drawn][:, :, np.newaxis]
    places = (rng.random((*drawn.shape, table.shape[1])) * size).astype(np.int64)
    values = table[drawn[:, :, np.newaxis], places]  # [resample, group, sample]
    values[np.broadcast_to(np.arange(table.shape[1]) >= size, values.shape)] = np.inf
    values = values.reshape(_MEDIAN_RESAMPLES, -1)
    values.sort(axis=1)
    counts, rows = sizes[drawn].sum(axis=1), np.arange(_MEDIAN_RESAMPLES)
    medians: np.ndarray = (values[rows, (counts - 1) // 2] + values[rows, counts // 2]) / 2
    return medians
