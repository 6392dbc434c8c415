"""Figures of open-loop predictions of rewards, legal actions and terminals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from environment.statistics.paired import spearman
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.baselines import MEAN, ZERO, Trivial
from worldmodel.accuracy.figures import MODEL, RESAMPLES, Columns, Figure, FigureMaker

if TYPE_CHECKING:  # tables that only name figures must not import TensorFlow
    from worldmodel.accuracy.open_loop import OpenLoop

RESOLUTION_PERCENT = 0.01
"""Rewards that differ by less count as equal, real and predicted ones, because half of all rewrites do not change the
cost, and the order of rounding errors means nothing."""


def rank_correlation(predicted: np.ndarray, real: np.ndarray) -> float:
    """Returns Spearman's rank correlation of percentages; NaN if one side is constant."""
    return spearman(predicted, real, resolution=RESOLUTION_PERCENT)


def _rank_correlation_of_changes(predicted: np.ndarray, real: np.ndarray) -> float:
    changes = np.abs(real) >= RESOLUTION_PERCENT
    return rank_correlation(predicted[changes], real[changes]) if changes.any() else float("nan")


def reward_figures(played: OpenLoop, trivial: Trivial, *, resamples: int = RESAMPLES) -> list[Figure]:
    """Returns the figures of the reward of the first step."""
    columns = _totals(played, trivial, 1)
    make = FigureMaker(played.real.episode, 1, resamples).make
    return [
        make(names.REWARD_RANKS, rank_correlation, _without_constants(columns)),
        make(names.CHANGING_RANKS, _rank_correlation_of_changes, _without_constants(columns)),
        make(names.REWARD_ERROR, metrics.mean_absolute_error, columns),
    ]


def total_figures(played: OpenLoop, trivial: Trivial, step: int, *, resamples: int = RESAMPLES) -> list[Figure]:
    """Returns the figures of the sum of the first `step` rewards.

    All except the mean absolute error are NaN if all real sums are equal.
    """
    columns = _totals(played, trivial, step)
    make = FigureMaker(played.real.episode, step, resamples).make
    return [
        make(names.TOTAL_RANKS, rank_correlation, _without_constants(columns)),
        make(names.TOTAL_ERROR, metrics.mean_absolute_error, columns),
        make(names.TOTAL_R2, metrics.determination, columns),
        make(names.TOTAL_RELATIVE, metrics.relative_absolute_error, columns),
    ]


def _totals(played: OpenLoop, trivial: Trivial, step: int) -> dict[str, Columns]:
    """Returns the (predicted, real) sums of rewards by predictor."""
    real = played.real.trajectory.reward[:step].sum(axis=0)
    predicted = {MODEL: played.dreamed.reward, **trivial.rewards(played.real)}
    return {key: (rewards[:step].sum(axis=0), real) for key, rewards in predicted.items()}


def _without_constants(columns: Mapping[str, Columns]) -> dict[str, Columns]:
    """Returns the columns of predictors that do not predict a constant; constants have no rank correlation."""
    return {key: sides for key, sides in columns.items() if key not in (MEAN, ZERO)}


def mask_figures(
    played: OpenLoop, trivial: Trivial, rules: np.ndarray, step: int, *, resamples: int = RESAMPLES
) -> list[Figure]:
    """Returns the figures of the legal actions after `step` steps, without NO-OP.

    The model misses all legal actions that its table does not hold.

    Args:
      rules: int [A], the rule of each action of the table: `ActionTable.rules` without NO-OP's.
    """
    legal, rules = played.real.legal(), np.concatenate([rules, played.real.unknown_rules])
    before, real = legal[0], legal[step]
    predicted = {MODEL: played.legal()[step], **trivial.masks(played.real)}

    def columns(counted: Callable[[np.ndarray], np.ndarray]) -> dict[str, Columns]:
        return {key: (counted(bits),) for key, bits in predicted.items()}

    copied = metrics.wrong_bits(before, real)
    wrong = {key: (metrics.wrong_bits(bits, real), copied) for key, bits in predicted.items()}
    changes = columns(lambda bits: metrics.bit_counts(bits ^ before, real ^ before))
    in_all = columns(lambda bits: np.equal(bits.sum(axis=-1), real.sum(axis=-1)))
    make = FigureMaker(played.real.episode, step, resamples).make
    return [
        make(names.MASK_ERROR, metrics.relative_error, wrong),
        make(names.CHANGE_F1, _f1, changes),
        make(names.CHANGE_PRECISION, _precision, changes),
        make(names.CHANGE_RECALL, _recall, changes),
        make(names.COUNTS_PER_RULE, metrics.share, columns(lambda bits: metrics.exact_counts(bits, real, rules))),
        make(names.COUNTS_IN_ALL, np.mean, in_all),
    ]


def terminal_figures(played: OpenLoop, step: int, *, resamples: int = RESAMPLES) -> list[Figure]:
    """Returns the figures of "no rewrite left" after `step` steps; none if that neither came nor was predicted.

    No trivial predictor predicts it, because the state that was seen last was not the end.
    """
    predicted, real = (each.terminal[step - 1, :, np.newaxis] for each in (played.dreamed, played.real.trajectory))
    if not (predicted | real).any():
        return []
    counts: Mapping[str, Columns] = {MODEL: (metrics.bit_counts(predicted, real),)}
    make = FigureMaker(played.real.episode, step, resamples).make
    return [make(names.TERMINAL_PRECISION, _precision, counts), make(names.TERMINAL_RECALL, _recall, counts)]


def _f1(counts: np.ndarray) -> float:
    return metrics.BitAccuracy.of(counts).f1


def _precision(counts: np.ndarray) -> float:
    return metrics.BitAccuracy.of(counts).precision


def _recall(counts: np.ndarray) -> float:
    return metrics.BitAccuracy.of(counts).recall
