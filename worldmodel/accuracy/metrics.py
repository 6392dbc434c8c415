"""Accuracy of a world model, as pure functions of what was predicted and what was real.

Everything stands beside a trivial predictor: copying the last state, the mean of the training data, a table of mean
rewards. All inputs are NumPy arrays whose first axis is that of the n windows or steps; what is a mean over them is
made of one number for each (`squared_errors`, `wrong_bits`, `bit_counts`), so that they can be drawn again by episode
(`environment.statistics.intervals`). Rank correlation is
`environment.statistics.paired.spearman`, intervals of predicted mixtures are in
`worldmodel.accuracy.uncertainty`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def squared_errors(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Mean squared error of each vector: [n, Z] and [n, Z] to float64 [n]."""
    errors: np.ndarray = np.mean((np.asarray(predicted, float) - real) ** 2, axis=-1)
    return errors


def wrong_bits(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """How many bits of each state are wrong: bool [n, A] and [n, A] to float64 [n]."""
    counts: np.ndarray = np.sum(predicted ^ real, axis=-1).astype(float)
    return counts


def relative_error(errors: np.ndarray, trivial: np.ndarray) -> float:
    """All errors in units of those of a trivial predictor: below 1 is better; NaN where that one makes none."""
    return ratio(np.sum(errors), np.sum(trivial))


@dataclass(frozen=True)
class BitAccuracy:
    """Precision, recall and F1 of predicted bits, by counts; NaN where nothing was predicted or nothing was there.

    Attributes:
      hits: bits that were predicted and are there.
      predicted, real: bits that were predicted; that are there.
    """

    hits: float
    predicted: float
    real: float

    @classmethod
    def of(cls, counts: np.ndarray) -> BitAccuracy:
        """Of all rows of `bit_counts`, [n, 3], together."""
        return cls(*counts.reshape(-1, 3).sum(axis=0).tolist())

    @property
    def precision(self) -> float:
        return ratio(self.hits, self.predicted)

    @property
    def recall(self) -> float:
        return ratio(self.hits, self.real)

    @property
    def f1(self) -> float:
        return ratio(2.0 * self.hits, self.predicted + self.real)


def bit_counts(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """(hits, predicted, real) of each state's bits: bool [n, A] and [n, A] to float64 [n, 3]."""
    counts: np.ndarray = np.stack([side.sum(axis=-1) for side in (predicted & real, predicted, real)], axis=-1)
    return counts.astype(float)


def sites_per_rule(masks: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """Legal sites of every rule that there is, in ascending order: bool [n, A] to int64 [n, distinct rules].

    Args:
      rules: int [A], the rule of each bit.
    """
    return sums_per_rule(masks.astype(np.int64), rules)


def sums_per_rule(values: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """The same of numbers, one for each bit: [n, A] to [n, distinct rules]."""
    order = np.argsort(rules, kind="stable")
    first = np.flatnonzero(np.diff(rules[order], prepend=-1))
    if not len(first):
        return np.zeros((len(values), 0), values.dtype)
    sums: np.ndarray = np.add.reduceat(values[:, order], first, axis=-1)
    return sums


def exact_counts(predicted: np.ndarray, real: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """For how many rules the number of legal sites is exact, and for how many it could have been wrong.

    Args:
      predicted, real: bool [n, A].
      rules: int [A], the rule of each bit.
    Returns:
      See `exact_numbers`.
    """
    return exact_numbers(sites_per_rule(predicted, rules), sites_per_rule(real, rules))


def exact_numbers(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Counts the rules whose number of sites is predicted exactly, and those whose number could have been wrong.

    Args:
      predicted, real: int [n, R], sites of every rule.
    Returns:
      float64 [n, 2]; a rule that has no site and is predicted none is in neither count.
    """
    concerned = (predicted > 0) | (real > 0)
    counts: np.ndarray = np.stack([((predicted == real) & concerned).sum(axis=-1), concerned.sum(axis=-1)], axis=-1)
    return counts.astype(float)


def share(counts: np.ndarray) -> float:
    """All of the first column over all of the second: [n, 2]."""
    return ratio(*counts.sum(axis=0).tolist())


def mean_absolute_error(predicted: np.ndarray, real: np.ndarray) -> float:
    """Mean of |predicted - real|."""
    return float(np.mean(np.abs(np.asarray(predicted, float) - real)))


def relative_absolute_error(predicted: np.ndarray, real: np.ndarray) -> float:
    """Mean of |predicted - real| in units of the standard deviation of `real`; NaN where that is constant."""
    return ratio(mean_absolute_error(predicted, real), _spread(real))


def determination(predicted: np.ndarray, real: np.ndarray) -> float:
    """R²: 1 for perfect predictions, 0 for always predicting the mean of `real`, negative for worse."""
    errors = np.mean((np.asarray(real, float) - predicted) ** 2)
    return 1.0 - ratio(errors, _spread(real) ** 2)


def ratio(numerator: float | np.floating, denominator: float | np.floating) -> float:
    """NaN where the denominator is zero: there is nothing to be right about."""
    return float(numerator / denominator) if denominator > 0 else float("nan")


def _spread(values: np.ndarray) -> float:
    """Standard deviation; 0 for numbers that differ by rounding only, or everything divided by it were noise."""
    values = np.asarray(values, float)
    spread = float(values.std())
    return spread if spread > 1e-6 * float(np.abs(values).max(initial=0.0)) else 0.0
