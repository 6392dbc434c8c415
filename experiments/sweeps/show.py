"""What the finished points of a sweep say: a table with intervals, a figure, and sentences with their uncertainty.

One axis is shown along the figure; each combination of the others, except the seed, is a series. Every question is
answered seed by seed, because seeds differ more than settings do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from environment.statistics.intervals import Estimate, mean_of_seeds
from environment.statistics.paired import spearman
from environment.statistics.runs import interquartile_mean
from experiments.errors import UserError, nearest_match
from experiments.executors.units import Record
from experiments.reports.plots import Band
from experiments.reproduce.table import Table, interval_of_seeds
from experiments.sweeps.point import FIGURES

SEED = "seed"
USUAL = ("real", "dream", "dream_at_1")
"""The figures that are shown if none is named."""
OF_SEARCHES = ("best",)
"""The same if no point has any of these, since what was played neither samples nor dreams."""
PERMUTATIONS = 9999
SURE = 0.05
"""A sentence says that there is an effect if chance alone would show a larger one less often than this."""


@dataclass(frozen=True)
class Series:
    """The points of one combination of the axes that are not shown.

    Attributes:
      name: the combination, for people; empty if there is one only.
      x: the values of the shown axis.
      seeds: the seeds.
      values: by figure, an array [seeds, x]; NaN where a point is missing or the figure does not exist.
    """

    name: str
    x: Sequence[Any]
    seeds: Sequence[Any]
    values: Mapping[str, np.ndarray]

    def complete(self, figure: str) -> np.ndarray:
        """Returns the rows of a figure's array that have all values."""
        rows: np.ndarray = self.values[figure]
        return rows[~np.isnan(rows).any(axis=1)]


def shown(
    folder: Path,
    records: Iterable[Record],
    command: str,
    *,
    x: str | None = None,
    figures: Sequence[str] = (),
    reference: float | None = None,
    drawn: Sequence[str] = (),
) -> Table:
    """Returns the table of a sweep, with its figure; what it says is the table's finding.

    Args:
      records: those of the finished points.
      command: the command that makes the table again.
      x: the axis to show along the figure; None: the one with the most values, besides the seed.
      figures: names of figures of the points.
      reference: the value of x with which others are compared; None: none is.
      drawn: axes whose values are random; they do not divide the points into series.
    Raises:
      UserError: there is no finished point, or no such axis or figure.
    """
    found = list(records)
    axes = list(dict.fromkeys(key for record in found for key in record["point"]))
    found = [{**record, "point": {key: _value(record, key) for key in axes}} for record in found]
    if not found:
        raise UserError(f"{folder} has no finished points yet. The command of the sweep makes some.")
    chosen = axis_of([record["point"] for record in found], x, figures, reference)
    given = [name for name in figures or USUAL if any(record["figures"].get(name) is not None for record in found)]
    if figures and not given:
        raise UserError(f"No point has the figures {', '.join(figures)}. Choose others of {', '.join(FIGURES)}.")
    given = given or list(OF_SEARCHES)
    all_series = series_of(found, chosen, drawn)
    columns = {
        **({"series": "values of the other axes"} if any(series.name for series in all_series) else {}),
        chosen: "the setting",
        "seeds": "finished points",
        **columns_of(given),
    }
    return Table(
        f"Sweep of {chosen}",
        columns,
        dict.fromkeys([key for key in columns if key not in ("series", chosen, "seeds")], ".2f"),
        list(rows_of(all_series, chosen, given)),
        command,
        "Intervals are of means over seeds (`environment.statistics.intervals.mean_of_seeds`).",
        "\n\n".join(sentence for series in all_series for sentence in said(series, chosen, given, reference)),
        {chosen: partial(draw, all_series, chosen, given)},
    )


def columns_of(figures: Sequence[str]) -> dict[str, str]:
    """Returns the columns of some figures, with their meaning."""
    return {
        key: text
        for name in figures
        for key, text in (
            (name, f"{FIGURES[name].about}: mean of the seeds"),
            (f"{name} low", "95 % interval of this mean, lower end"),
            (f"{name} high", "upper end"),
            (f"{name} IQM", "mean of the middle half of the seeds"),
        )
    }


def axis_of(points: Sequence[Mapping[str, Any]], x: str | None, figures: Sequence[str], reference: float | None) -> str:
    """Returns the axis to show; points that are not finished say what can be shown of them, too.

    Args:
      points: the values of the axes of each point.
      x, figures, reference: see `shown`.
    Raises:
      UserError: there is no such axis or figure, or no point has the reference.
    """
    for figure in figures:
        _known("figure", figure, FIGURES)
    values: dict[str, set[str]] = {}
    for point in points:
        for key, value in point.items():
            values.setdefault(key, set()).add(repr(value))
    axes = [key for key in values if key != SEED] or list(values)
    axis = max(axes, key=lambda key: len(values[key])) if x is None else _known("axis", x, values)
    if reference is not None and not any(point.get(axis) == reference for point in points):
        raise UserError(f"No point has {axis}={reference:g}, with which --reference would compare the others.")
    return axis


def _known(kind: str, name: str, names: Iterable[str]) -> str:
    known = list(names)
    if name not in known:
        raise UserError(f"The sweep has no {kind} '{name}'. {nearest_match(name, known)}")
    return name


def _value(record: Record, key: str) -> Any:
    """Returns the value of an axis, also for a point of a command that did not vary it."""
    if key in record["point"]:
        return record["point"][key]
    value = record["settings"]
    for part in key.split("."):
        value = value[part]
    return value


def series_of(records: Sequence[Record], x: str, drawn: Sequence[str] = ()) -> list[Series]:
    """Returns the series, and in each the values of x and the seeds in ascending order."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        others = {key: value for key, value in record["point"].items() if key not in (x, SEED, *drawn)}
        grouped.setdefault(", ".join(f"{key}={value}" for key, value in others.items()), []).append(record)
    found = []
    for name, group in grouped.items():
        xs = _ordered(record["point"].get(x) for record in group)
        seeds = _ordered(record["point"].get(SEED) for record in group) if x != SEED else [None]
        values = {figure: np.full((len(seeds), len(xs)), np.nan) for figure in FIGURES}
        for record in group:
            place = (0 if x == SEED else seeds.index(record["point"].get(SEED))), xs.index(record["point"].get(x))
            for figure in FIGURES:
                value = record["figures"].get(figure)
                values[figure][place] = np.nan if value is None else value
        found.append(Series(name, xs, seeds, values))
    return found


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Returns the distinct values: numbers in ascending order, then others in the order in which they came."""
    distinct: list[Any] = []
    for value in values:  # which may be lists, and are compared as numbers are: 0 is 0.0
        if value not in distinct:
            distinct.append(value)
    numbers = sorted(value for value in distinct if _is_number(value))
    return numbers + [value for value in distinct if not _is_number(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rows_of(all_series: Sequence[Series], x: str, figures: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields a row for each value of x in each series: mean, interval and interquartile mean of each figure."""
    for series in all_series:
        for column, value in enumerate(series.x):
            row: dict[str, Any] = {"series": series.name, x: value}
            for figure in figures:
                known = series.values[figure][:, column]
                known = known[~np.isnan(known)]
                row["seeds"] = max(row.get("seeds", 0), len(known))
                if len(known):
                    names = (figure, f"{figure} low", f"{figure} high")
                    about = FIGURES[figure]
                    ends = interval_of_seeds(known.tolist(), least=about.least, largest=about.largest)
                    row |= dict(zip(names, ends, strict=True))
                    row[f"{figure} IQM"] = interquartile_mean(known[:, np.newaxis])
            yield row


def draw(all_series: Sequence[Series], x: str, figures: Sequence[str], path: Path) -> None:
    """Draws a panel for each series, or for each figure if there are many series, with a line and its band for each."""
    from experiments.reports.plots import plot_bands

    panels: dict[str, dict[str, Band]] = {}
    names = _ordered(value for series in all_series for value in series.x)
    numbers = all(map(_is_number, names))
    for series in all_series:
        for figure in figures:
            band = _band(series, figure, None if numbers else names)
            if band is not None:
                alike = len(all_series) == 1 and set(figures) <= set(USUAL)
                panels.setdefault("score [%]" if alike else figure, {})[figure if alike else series.name or x] = band
    ticks = None if numbers else {float(place): str(value) for place, value in enumerate(names)}
    plot_bands(path, f"Sweep of {x}", panels, {}, x, logarithmic=False, ticks=ticks)


def _band(series: Series, figure: str, names: Sequence[Any] | None) -> Band | None:
    values, places = series.values[figure], range(len(series.x))
    kept = [place for place in places if not np.isnan(values[:, place]).all()]
    if not kept:
        return None
    about = FIGURES[figure]
    known = [values[~np.isnan(values[:, place]), place] for place in kept]
    means = [mean_of_seeds(of_seeds, least=about.least, largest=about.largest) for of_seeds in known]
    xs = [float(series.x[place] if names is None else names.index(series.x[place])) for place in kept]
    low, high = ([_end(mean, end) for mean in means] for end in ("low", "high"))
    return Band(xs, [mean.value for mean in means], low, high)


def _end(mean: Estimate, end: str) -> float:
    value = float(getattr(mean, end))
    return mean.value if np.isnan(value) else value


def said(series: Series, x: str, figures: Sequence[str], reference: float | None) -> Iterator[str]:
    """Yields what a series says: whether x makes a difference, what is best, and whether the dream's score tells."""
    about = f"{series.name}: " if series.name else ""
    numbers = all(_is_number(value) for value in series.x)
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
