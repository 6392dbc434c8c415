"""What the series of a sweep say, in sentences with their uncertainty.

Every question is answered seed by seed, because seeds differ more than settings do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from environment.statistics.intervals import Estimate, mean_of_seeds
from environment.statistics.paired import spearman
from experiments.sweeps.series import Series, is_number

PERMUTATIONS = 9999
SURE = 0.05
"""A sentence says that there is an effect if chance alone would show a larger one less often than this."""


def said(series: Series, x: str, figures: Sequence[str], reference: float | None) -> Iterator[str]:
    """Yields what a series says: whether x makes a difference, what is best, and whether the dream's score tells."""
    about = f"{series.name}: " if series.name else ""
    numbers = all(is_number(value) for value in series.x)
    for figure in figures:
        rows = series.complete(figure)
        if len(series.x) < 2 or len(rows) < 2:
            yield f"{about}`{figure}` has fewer than two seeds with all values of `{x}`, so that nothing can be said."
            continue
        p_value = effect_of(rows)
        spread = rows.mean(axis=0)
        largest = f"the means of the values of `{x}` are up to {spread.max() - spread.min():.2f} apart"
        if p_value < SURE:
            yield f"{about}`{x}` makes a difference to `{figure}`: {largest} (permutation test, p = {p_value:.2g})."
        else:
            yield (
                f"{about}No difference of `{figure}` between values of `{x}` is seen: {largest}, as chance alone would "
                f"show them in {p_value:.0%} of cases."
            )
        if numbers and len(series.x) > 2:
            trend = _mean_correlation([spearman(row, np.asarray(series.x, float)) for row in rows])
            yield f"{about}Rank correlation of `{figure}` and `{x}`, mean of the seeds: {_with_interval(trend)}."
        if reference is not None and reference in series.x and len(rows) > 2:
            gain = gain_of_best(rows, list(series.x).index(reference))
            yield (
                f"{about}The value of `{x}` that is best on the other seeds gains {_with_interval(gain)} points of "
                f"`{figure}` over {x}={reference:g}."
            )
    if {"real", "dream"} <= set(figures) and len(series.x) > 2:
        yield from _whether_the_dream_tells(series, x, about)


def _mean_correlation(of_seeds: Sequence[float]) -> Estimate:
    return mean_of_seeds(of_seeds, least=-1, largest=1)


def _whether_the_dream_tells(series: Series, x: str, about: str) -> Iterator[str]:
    both = ~np.isnan(series.values["real"] + series.values["dream"]).any(axis=1)
    if both.sum() < 2:
        return
    dreamed, real = series.values["dream"][both], series.values["real"][both]
    tells = _mean_correlation([spearman(*pair) for pair in zip(dreamed, real, strict=True)])
    lost = mean_of_seeds(real.max(axis=1) - np.take_along_axis(real, dreamed.argmax(axis=1)[:, None], 1)[:, 0])
    yield (
        f"{about}Rank correlation of the dream's score and the real score over the values of `{x}`, mean of the seeds: "
        f"{_with_interval(tells)}. Choosing the value whose dream scores best loses {_with_interval(lost)} points "
        "against the best one."
    )


def _with_interval(estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return "not defined, because one of the two does not vary"
    return f"{estimate.value:+.2f} [{estimate.low:+.2f}, {estimate.high:+.2f}]"


def effect_of(rows: np.ndarray, *, seed: int = 0) -> float:
    """Returns how often chance alone lets the means of columns differ as much as they do.

    The values of every row are exchanged at random: rows (seeds) may differ from each other as much as they like.

    Args:
      rows: [seeds, values].
    Source: Good 2005, "Permutation, Parametric and Bootstrap Tests of Hypotheses" (blocked designs).
    """
    generator = np.random.default_rng(seed)
    found = rows.mean(axis=0).var()
    repeated = np.repeat(rows[np.newaxis], PERMUTATIONS, axis=0)
    drawn = generator.permuted(repeated, axis=2).mean(axis=1).var(axis=1)
    tolerance = 1e-12 * max(1.0, float(found))
    return float((1 + np.sum(drawn >= found - tolerance)) / (1 + PERMUTATIONS))


def gain_of_best(rows: np.ndarray, reference: int) -> Estimate:
    """Returns what the best column gains over a reference on seeds by which it was not chosen.

    For each row, the column with the largest mean of the other rows is taken. The largest mean of all rows would gain
    something by chance alone.

    Args:
      rows: [seeds, values], at least two rows.
      reference: the column to compare with.
    """
    others = (rows.sum(axis=0) - rows) / (len(rows) - 1)
    best = others.argmax(axis=1)
    return mean_of_seeds(rows[np.arange(len(rows)), best] - rows[:, reference])
