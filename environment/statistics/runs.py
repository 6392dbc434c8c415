"""Aggregates of scores [runs, tasks], as rliable defines them: one array contract for every comparison of methods.

A row is a run (a seed), a column is a task (a graph), and larger is better. Scores of different tasks must be in the
same unit, as improvements in percent are.

Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environment.statistics.intervals import Estimate


def interquartile_mean(scores: np.ndarray) -> float:
    """Returns the mean of the middle half of all scores [runs, tasks].

    It uses more of the scores than the median does, and depends less on outliers than the mean does.
    """
    from scipy.stats import trim_mean

    return float(trim_mean(_checked(scores), 0.25, axis=None))


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> float:
    """Returns how probably a run of the first method scores better than a run of the second, on a random task.

    Args:
      first, second: [runs, tasks] scores; the numbers of runs may differ, the tasks must be the same.
    Returns:
      The mean over tasks of P(first > second) + ½ P(first = second): the Mann-Whitney statistic over its maximum.
    Raises:
      ValueError: the numbers of tasks differ.
    """
    first, second = _checked(first), _checked(second)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"both methods need the same tasks; got {first.shape[1]} and {second.shape[1]}")
    better = np.sign(first[:, np.newaxis] - second[np.newaxis])  # [runs, runs, tasks]
    return float(np.mean((better + 1.0) / 2.0))


def stratified_bootstrap(
    statistic: Callable[..., float], *scores: np.ndarray, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Returns a statistic of scores with a percentile interval that draws runs anew within each task.

    Tasks are fixed, not drawn: the interval tells how the statistic varies with the seeds on these tasks.

    Args:
      statistic: a function of as many [runs, tasks] arrays as are given, such as `interquartile_mean` (one) or
        `probability_of_improvement` (two).
      scores: arrays [runs, tasks], whose runs are drawn independently.
      resamples: number of draws.
      seed: seed of the draws.
    Returns:
      The statistic of all scores; the interval is NaN if one array has a single run.
    Source: Agarwal et al. 2021, section 4.1.
    """
    arrays = [_checked(each) for each in scores]
    value = float(statistic(*arrays))
    if min(len(each) for each in arrays) < 2:
        return Estimate.without_interval(value)
    rng = np.random.default_rng(seed)

    def drawn() -> float:
        return float(statistic(*(np.take_along_axis(a, rng.integers(0, len(a), a.shape), axis=0) for a in arrays)))

    return Estimate.of_draws(value, np.array([drawn() for _ in range(resamples)]))


def _checked(scores: np.ndarray) -> np.ndarray:
    """Returns scores as float64 [runs, tasks]."""
    array = np.asarray(scores, np.float64)
    if array.ndim != 2 or not array.size or np.isnan(array).any():
        raise ValueError(
            f"scores must be numbers in an array [runs, tasks]; got the shape {array.shape}, or a NaN in it"
        )
    return array
