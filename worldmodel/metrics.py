"""Accuracy of a world model, as pure functions of what was predicted and what was real.

Everything stands beside a trivial predictor: copying the last state, the mean of the training data, a table of mean
rewards. All inputs are NumPy arrays; time comes first where there is time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BitAccuracy:
    """Precision, recall and F1 of predicted bits; NaN where nothing was predicted or nothing was there."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2.0 * self.precision * self.recall / total if total > 0 else 0.0


def bit_accuracy(predicted: np.ndarray, real: np.ndarray) -> BitAccuracy:
    """How well predicted bits agree with real ones: bool arrays of one shape."""
    hits = float(np.sum(predicted & real))
    return BitAccuracy(_ratio(hits, predicted.sum()), _ratio(hits, real.sum()))


def change_accuracy(predicted: np.ndarray, real: np.ndarray, before: np.ndarray) -> BitAccuracy:
    """How well the set of switched bits is predicted: bool arrays of one shape.

    Args:
      predicted, real: bits after some steps.
      before: real bits that the prediction started from; copying them predicts no change at all.
    """
    return bit_accuracy(predicted ^ before, real ^ before)


def relative_mask_error(predicted: np.ndarray, real: np.ndarray, before: np.ndarray) -> float:
    """Wrong bits per wrong bit of copying `before`: below 1 is better than copying."""
    return _ratio(float(np.sum(predicted ^ real)), np.sum(before ^ real))


def relative_latent_error(predicted: np.ndarray, real: np.ndarray, before: np.ndarray) -> float:
    """Mean squared error of predicted latents [..., Z] in units of that of copying `before`: below 1 is better."""
    return _ratio(float(np.mean((predicted - real) ** 2)), np.mean((before - real) ** 2))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation of two vectors, ties sharing their mean rank; NaN where one of them is constant."""
    return pearson(_ranks(x), _ranks(y))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Linear correlation of two vectors; NaN where one of them is constant."""
    x, y = np.asarray(x, float) - np.mean(x), np.asarray(y, float) - np.mean(y)
    return _ratio(float(np.sum(x * y)), np.sqrt(np.sum(x * x) * np.sum(y * y)))


def mean_absolute_error(predicted: np.ndarray, real: np.ndarray) -> float:
    """Mean of |predicted - real|."""
    return float(np.mean(np.abs(np.asarray(predicted, float) - real)))


def determination(predicted: np.ndarray, real: np.ndarray) -> float:
    """R²: 1 for perfect predictions, 0 for always predicting the mean of `real`, negative for worse."""
    real = np.asarray(real, float)
    return 1.0 - _ratio(float(np.sum((real - predicted) ** 2)), np.sum((real - real.mean()) ** 2))


def _ratio(numerator: float, denominator: float | np.ndarray) -> float:
    return float(numerator / denominator) if denominator > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, ties sharing their mean."""
    _, inverse, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2.0)[inverse.ravel()]
