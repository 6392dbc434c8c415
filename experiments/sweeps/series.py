"""The figures of finished points as arrays: seeds by the values of the axis that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.executors.units import Record
from experiments.sweeps.point import FIGURES

SEED = "seed"


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


def series_of(records: Sequence[Record], x: str, drawn: Sequence[str] = ()) -> list[Series]:
    """Returns the series, and in each the values of x and the seeds in ascending order.

    Args:
      records: those of finished points.
      x: the axis to show.
      drawn: axes whose values are random. Points that differ in these alone are averaged.
    """
    grouped: dict[str, list[Record]] = {}
    for record in records:
        others = {key: value for key, value in record["point"].items() if key not in (x, SEED, *drawn)}
        grouped.setdefault(", ".join(f"{key}={value}" for key, value in others.items()), []).append(record)
    found = []
    for name, group in grouped.items():
        xs = ordered(record["point"].get(x) for record in group)
        seeds = ordered(record["point"].get(SEED) for record in group) if x != SEED else [None]
        known: dict[str, dict[tuple[int, int], list[float]]] = {figure: {} for figure in FIGURES}
        for record in group:
            place = (0 if x == SEED else seeds.index(record["point"].get(SEED))), xs.index(record["point"].get(x))
            for figure in FIGURES:
                if (value := record["figures"].get(figure)) is not None:
                    known[figure].setdefault(place, []).append(value)
        values = {figure: np.full((len(seeds), len(xs)), np.nan) for figure in FIGURES}
        for figure, places in known.items():
            for place, there in places.items():
                values[figure][place] = np.mean(there)
        found.append(Series(name, xs, seeds, values))
    return found


def ordered(values: Iterable[Any]) -> list[Any]:
    """Returns the distinct values: numbers in ascending order, then others in the order in which they came."""
    distinct: list[Any] = []
    for value in values:  # which may be lists, and are compared as numbers are: 0 is 0.0
        if value not in distinct:
            distinct.append(value)
    numbers = sorted(value for value in distinct if is_number(value))
    return numbers + [value for value in distinct if not is_number(value)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
