"""Bootstrap intervals of medians of samples that come in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
NORMAL_HALF_WIDTH = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half the width of the interval of a normal error, in its standard deviations."""
_RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A value with its interval.

    Attributes:
      value: the median, or what else was estimated.
      low, high: its 95 % interval.
    """

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Of the interval, as a fraction of the value."""
        return (self.high - self.low) / (2 * self.value)

    def covers(self, value: float) -> bool:
        """Whether `value` is in the interval."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Estimate:
        """In another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_of_groups(groups: Sequence[Sequence[float]], seed: int) -> Estimate:
    """The median of positive samples, with a bootstrap interval that allows for what a group has in common.

    Groups are drawn first, then samples within each: drawing single samples alone would take those of one session for
    independent, and differences between sessions for effects. Few groups vary less than those they were drawn from, by
    (n - 1) / n in variance, which is made up for. In simulations with normal errors the interval covers 97 % where
    sessions differ less than samples do, as they mostly do; where samples of a session do not differ at all, 93 % with
    five sessions and 78 % with three. A single session says nothing of others.

    Args:
      groups: samples of each session; none is empty.
    Source: Davison & Hinkley 1997, section 3.8 (hierarchical data).
    """
    median = float(np.median(np.concatenate([np.asarray(group) for group in groups])))
    medians = _resampled_medians(groups, np.random.default_rng(seed))
    if len(groups) > 1:
        medians = median + (medians - median) * np.sqrt(len(groups) / (len(groups) - 1))
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(medians, [tail, 100.0 - tail])
    return Estimate(median, min(float(low), median), max(float(high), median))


def _resampled_medians(groups: Sequence[Sequence[float]], rng: np.random.Generator) -> np.ndarray:
    """[resamples] medians."""
    sizes = np.array([len(group) for group in groups])
    table = np.full((len(groups), sizes.max()), np.inf)  # [group, sample]; what pads it is sorted to the end
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    drawn = rng.integers(0, len(groups), (_RESAMPLES, len(groups)))
    size = sizes[drawn][:, :, np.newaxis]
    places = (rng.random((*drawn.shape, table.shape[1])) * size).astype(np.int64)
    values = table[drawn[:, :, np.newaxis], places]  # [resample, group, sample]
    values[np.broadcast_to(np.arange(table.shape[1]) >= size, values.shape)] = np.inf
    values = values.reshape(_RESAMPLES, -1)
    values.sort(axis=1)
    counts, rows = sizes[drawn].sum(axis=1), np.arange(_RESAMPLES)
    medians: np.ndarray = (values[rows, (counts - 1) // 2] + values[rows, counts // 2]) / 2
    return medians
