"""What the finished points of a sweep say: a table with intervals, a figure, and sentences with their uncertainty.

One axis is shown along the figure; each combination of the others, except the seed, is a series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from environment.statistics.intervals import Estimate, mean_of_seeds
from experiments.errors import UserError, nearest_match
from experiments.executors import provenance
from experiments.executors.units import Record
from experiments.reports.plots import Band
from experiments.reproduce.table import Table, interval_of_seeds, iqm_of_seeds
from experiments.sweeps.findings import said
from experiments.sweeps.point import FIGURES
from experiments.sweeps.series import SEED, Series, is_number, ordered, series_of

USUAL = ("real", "dream", "dream_at_1")
"""The figures that are shown if none is named."""
OF_SEARCHES = ("best",)
"""The same if no point has any of these, since what was played neither samples nor dreams."""
ALL = "all"
"""Stands for the seed in the row of all seeds."""


def shown(
    folder: Path,
    records: Iterable[Record],
    command: str,
    *,
    x: str | None = None,
    figures: Sequence[str] = (),
    reference: float | None = None,
    drawn: Sequence[str] = (),
    about: str = "",
) -> Table:
    """Returns the table of a sweep, with its figure; what it says is the table's finding.

    Args:
      records: those of the finished points.
      command: the command that makes the table again.
      x: the axis to show along the figure; None: the one with the most values, besides the seed.
      figures: names of figures of the points.
      reference: the value of x with which others are compared; None: none is.
      drawn: axes whose values are random; they do not divide the points into series, see `series_of`.
      about: what is said of the settings that all points share.
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
        "seeds": "seeds with finished points",
        **columns_of(given),
    }
    return Table(
        f"Sweep of {chosen}",
        columns,
        dict.fromkeys([key for key in columns if key not in ("series", chosen, "seeds")], ".2f"),
        list(rows_of(all_series, chosen, given)),
        command,
        f"{about}\n\nIntervals are of means over seeds (`environment.statistics.intervals.mean_of_seeds`). One of no "
        "width means that these seeds agree; others may differ.".strip(),
        "\n\n".join(sentence for series in all_series for sentence in said(series, chosen, given, reference)),
        {chosen: partial(draw, all_series, chosen, given)},
        provenance=provenance.said_of(found),
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


def rows_of(all_series: Sequence[Series], x: str, figures: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields a row for each value of x in each series: mean, interval and interquartile mean of each figure.

    If x is the seed, a row of all seeds follows.
    """
    for series in all_series:
        for column, value in enumerate(series.x):
            yield {"series": series.name, x: value, **_means(series, slice(column, column + 1), figures)}
        if x == SEED and len(series.x) > 1:
            yield {"series": series.name, x: ALL, **_means(series, slice(None), figures)}


def _means(series: Series, columns: slice, figures: Sequence[str]) -> dict[str, Any]:
    """Returns the cells of a row about the points in some columns of a series."""
    row: dict[str, Any] = {}
    for figure in figures:
        known = series.values[figure][:, columns]
        known = known[~np.isnan(known)]
        row["seeds"] = max(row.get("seeds", 0), len(known))
        if len(known):
            names = (figure, f"{figure} low", f"{figure} high")
            about = FIGURES[figure]
            ends = interval_of_seeds(known.tolist(), least=about.least, largest=about.largest)
            row |= dict(zip(names, ends, strict=True))
            row[f"{figure} IQM"] = iqm_of_seeds(known)
    return row


def draw(all_series: Sequence[Series], x: str, figures: Sequence[str], path: Path) -> None:
    """Draws a panel for each series, or for each figure if there are many series, with a line and its band for each."""
    from experiments.reports.plots import plot_bands

    panels: dict[str, dict[str, Band]] = {}
    names = ordered(value for series in all_series for value in series.x)
    numbers = all(map(is_number, names))
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
