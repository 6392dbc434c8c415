"""Accuracy of a world model, as pure functions of what was predicted and what was real.

Every metric is compared with that of a trivial predictor: copying the last state, the mean of the training data, or a
table of mean rewards. All inputs are NumPy arrays whose first axis counts the n windows or steps. A mean over them is
made from one number for each (`squared_errors`, `wrong_bits`, `bit_counts`), so that the bootstrap can resample them by
episode (`environment.statistics.intervals`). Rank correlation is `environment.statistics.paired.spearman`; intervals of
predicted mixtures are in `worldmodel.accuracy.uncertainty`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def squared_errors(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Returns the mean squared error of each vector: [n, Z] and [n, Z] to float64 [n]."""
    errors: np.ndarray = np.mean((np.asarray(predicted, float) - real) ** 2, axis=-1)
    return errors


def wrong_bits(predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Returns how many bits of each state are wrong: bool [n, A] and [n, A] to float64 [n]."""
    counts: np.ndarray = np.sum(predicted ^ real, axis=-1).astype(float)
    return counts


def relative_error(errors: np.ndarray, trivial: np.ndarray) -> float:
    """Returns all errors in units of those of a trivial predictor: below 1 is better; NaN if that makes no errors."""
    return ratio(np.sum(errors), np.sum(trivial))


@dataclass(frozen=True)
class BitAccuracy:
    """Precision, recall and F1 of predicted bits, from counts; NaN if their denominator is 0.

    Attributes:
      hits: bits that were predicted and are set.
      predicted, real: bits that were predicted; bits that are set.
    """

    hits: float
    predicted: float
    real: float

    @classmethod
    def of(cls, counts: np.ndarray) -> BitAccuracy:
        """Returns the accuracy over all rows of `bit_counts`, [n, 3], together."""
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
    """Returns (hits, predicted, real) of each state's bits: bool [n, A] and [n, A] to float64 [n, 3]."""
    counts: np.ndarray = np.stack([side.sum(axis=-1) for side in (predicted & real, predicted, real)], axis=-1)
    return counts.astype(float)


def sites_per_rule(masks: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """Counts the legal sites of every rule in `rules`, in ascending order: bool [n, A] to int64 [n, distinct rules].

    Args:
      rules: int [A], the rule of each bit.
    """
    return sums_per_rule(masks.astype(np.int64), rules)


def sums_per_rule(values: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """Sums one number per bit over the bits of every rule, see `sites_per_rule`: [n, A] to [n, distinct rules]."""
    order = np.argsort(rules, kind="stable")
    first = np.flatnonzero(np.diff(rules[order], prepend=-1))
    if not len(first):
        return np.zeros((len(values), 0), values.dtype)
    sums: np.ndarray = np.add.reduceat(values[:, order], first, axis=-1)
    return sums


def exact_counts(predicted: np.ndarray, real: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """Counts the rules whose number of legal sites is exact, and those whose number could have been wrong.

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
      float64 [n, 2]; a rule that has no site and is predicted to have none is in neither count.
    """
    concerned = (predicted > 0) | (real > 0)
    counts: np.ndarray = np.stack([((predicted == real) & concerned).sum(axis=-1), concerned.sum(axis=-1)], axis=-1)
    return counts.astype(float)


def share(counts: np.ndarray) -> float:
    """Returns the sum of the first column over the sum of the second: [n, 2]."""
    return ratio(*counts.sum(axis=0).tolist())


def mean_absolute_error(predicted: np.ndarray, real: np.ndarray) -> float:
    """Returns the mean of |predicted - real|."""
    return float(np.mean(np.abs(np.asarray(predicted, float) - real)))


def relative_absolute_error(predicted: np.ndarray, real: np.ndarray) -> float:
    """Returns the mean of |predicted - real| in standard deviations of `real`; NaN if `real` is constant."""
    return ratio(mean_absolute_error(predicted, real), _spread(real))


def determination(predicted: np.ndarray, real: np.ndarray) -> float:
    """Returns R²: 1 for perfect predictions, 0 for always predicting the mean of `real`, negative for worse ones."""
    errors = np.mean((np.asarray(real, float) - predicted) ** 2)
    return 1.0 - ratio(errors, _spread(real) ** 2)


def ratio(numerator: float | np.floating, denominator: float | np.floating) -> float:
    """Returns the ratio; NaN if the denominator is zero, because then there is nothing to be right about."""
    return float(numerator / denominator) if denominator > 0 else float("nan")


def _spread(values: np.ndarray) -> float:
    """Returns the standard deviation; 0 for numbers that differ by rounding only, because it would be noise."""
    values = np.asarray(values, float)
    spread = float(values.std())
    return spread if spread > 1e-6 * float(np.abs(values).max(initial=0.0)) else 0.0
