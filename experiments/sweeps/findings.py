"""What the series of a sweep say, in sentences with their uncertainty.

Every question is answered seed by seed, because seeds differ more than settings do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from environment.statistics.intervals import Estimate, mean_of_seeds
from environment.statistics.paired import spearman
from experiments.sweeps.point import FIGURES
from experiments.sweeps.series import SEED, Series, is_number

PERMUTATIONS = 9999
SURE = 0.05
"""A sentence says that there is an effect if chance alone would show a larger one less often than this."""
EQUAL = 1e-9
"""Numbers that differ by less, or by a smaller share, are equal: the rest is rounding."""


def said(series: Series, x: str, figures: Sequence[str], reference: float | None) -> Iterator[str]:
    """Yields what a series says: whether x makes a difference, what is best, and whether the dream's score tells.

    Where there are no values or too few seeds to compare, the sentences say which are missing.
    """
    about = f"{series.name}: " if series.name else ""
    for figure in figures:
        yield from (f"{about}{sentence}" for sentence in _said_of(series, x, figure, reference))
    if x != SEED and {"real", "dream"} <= set(figures) and len(series.x) > 2:
        yield from (f"{about}{sentence}" for sentence in _whether_the_dream_tells(series, x))


def _said_of(series: Series, x: str, figure: str, reference: float | None) -> Iterator[str]:
    """Yields what a series says of one figure."""
    rows = series.complete(figure)
    if np.isnan(series.values[figure]).all():
        yield f"No finished point has `{figure}`."
    elif x == SEED or len(series.x) < 2:
        yield _without_comparison(series, x, figure)
    elif len(rows) < 2:
        yield _too_few_seeds(series, x, figure)
    else:
        yield _whether_it_matters(rows, x, figure)
        if len(series.x) > 2 and all(is_number(value) for value in series.x):
            trend = _mean_correlation([spearman(row, np.asarray(series.x, float)) for row in rows])
            yield f"Rank correlation of `{figure}` and `{x}`, {trend}."
        if reference is not None and reference in series.x and len(rows) > 2:
            gain = gain_of_best(rows, list(series.x).index(reference))
            gained = _with_interval(gain, len(rows), unit=f" points of `{figure}`")
            yield f"The value of `{x}` that is best on the other seeds gains {gained} over {x}={reference:g}."


def _without_comparison(series: Series, x: str, figure: str) -> str:
    """Returns the mean of the seeds of a series in which there is nothing but these to compare."""
    known = series.values[figure][~np.isnan(series.values[figure])]
    reason = "Along `seed`, no setting varies." if x == SEED else f"`{x}` has one value only, {series.x[0]}."
    if len(known) < 2:
        return f"{reason} `{figure}` is {known[0]:.2f} with the one seed that is finished, which gives no interval."
    mean = mean_of_seeds(known.tolist(), least=FIGURES[figure].least, largest=FIGURES[figure].largest)
    return f"{reason} The mean of `{figure}` over {len(known)} seeds is {_with_interval(mean, len(known), sign='')}."


def _too_few_seeds(series: Series, x: str, figure: str) -> str:
    if len(series.seeds) < 2:
        return (
            f"Nothing can be said of `{figure}` and `{x}`: one seed does not show how far seeds differ. Add others, "
            "for example with --over seed=0..4."
        )
    complete = len(series.complete(figure))
    return (
        f"Nothing can be said of `{figure}` and `{x}`: of {len(series.seeds)} seeds, {complete or 'none'} has finished "
        f"points with all {len(series.x)} values of `{x}`, and it takes two."
    )


def _whether_it_matters(rows: np.ndarray, x: str, figure: str) -> str:
    """Returns whether the columns of rows [seeds, values] differ by more than chance lets them."""
    means = rows.mean(axis=0)
    largest = f"the means of the values of `{x}` are up to {means.max() - means.min():.2f} apart"
    seeds, values = rows.shape
    if (smallest := smallest_p(seeds, values)) >= SURE:
        return (
            f"{seeds} seeds are too few to see whether `{x}` makes a difference to `{figure}`: {largest}, but with "
            f"{values} values the permutation test cannot come below p = {smallest:.3g}. It takes "
            f"{fewest_seeds(values)} seeds or more."
        )
    p_value = effect_of(rows)
    if p_value < SURE:
        return f"`{x}` makes a difference to `{figure}`: {largest} (permutation test, p = {p_value:.2g})."
    return (
        f"No difference of `{figure}` between values of `{x}` is seen: {largest} (permutation test, p = {p_value:.2g})."
    )


def _mean_correlation(of_seeds: Sequence[float]) -> str:
    """Returns the mean of rank correlations; those of seeds in which one of the two does not vary are undefined."""
    known = [each for each in of_seeds if not math.isnan(each)]
    if not known:
        return "mean of the seeds: not defined, because one of the two varies in none of them"
    if len(known) == 1:
        return f"in the one of {len(of_seeds)} seeds where both vary: {known[0]:+.2f}, which has no interval"
    which = "the seeds" if len(known) == len(of_seeds) else f"the {len(known)} of {len(of_seeds)} seeds where both vary"
    return f"mean of {which}: {_with_interval(mean_of_seeds(known, least=-1, largest=1), len(known))}"


def _whether_the_dream_tells(series: Series, x: str) -> Iterator[str]:
    both = ~np.isnan(series.values["real"] + series.values["dream"]).any(axis=1)
    seeds = int(both.sum())
    if seeds < 2:
        return
    dreamed, real = series.values["dream"][both], series.values["real"][both]
    tells = _mean_correlation([spearman(*pair) for pair in zip(dreamed, real, strict=True)])
    lost = real.max(axis=1) - np.take_along_axis(real, dreamed.argmax(axis=1)[:, None], 1)[:, 0]
    loss = _with_interval(mean_of_seeds(lost.tolist(), least=0), seeds, sign="", unit=" points")
    yield (
        f"Rank correlation of the dream's score and the real score over the values of `{x}`, "
        f"{tells}. Choosing the value whose dream scores best loses {loss} against the best one."
    )


def _with_interval(mean: Estimate, seeds: int, *, sign: str = "+", unit: str = "") -> str:
    """Returns a mean over seeds with its interval.

    Values of seeds that are all equal do not show how far others would differ: their interval of no width is left out.

    Args:
      sign: "+" for numbers that can be negative, or else "".
    """
    if np.isnan(mean.value):
        return "not defined, because one of the two does not vary"
    value = f"{mean.value:{sign}.2f}"
    if np.isclose(mean.low, mean.high, rtol=EQUAL, atol=EQUAL):
        which = "both" if seeds == 2 else f"all {seeds}"
        return f"{value}{unit} (the same in {which} seeds, which gives no interval: other seeds may differ)"
    return f"{value} [{mean.low:{sign}.2f}, {mean.high:{sign}.2f}]{unit}"


def smallest_p(seeds: int, values: int) -> float:
    """Returns the smallest value of `effect_of`: that of seeds which all put the values into one order.

    There are values! to the power of the seeds arrangements, of which values! have all rows in one order.
    """
    return max(math.exp((1 - seeds) * math.lgamma(values + 1)), 1 / (1 + PERMUTATIONS))


def fewest_seeds(values: int) -> int:
    """Returns the number of seeds from which `effect_of` can find an effect."""
    return next(seeds for seeds in itertools.count(2) if smallest_p(seeds, values) < SURE)


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
