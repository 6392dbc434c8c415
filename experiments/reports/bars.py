"""Bars with intervals: one value of several methods, drawn into one PNG or SVG. Equal data give equal files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from experiments.reports.plots import BLUE, GREY, INK, SINGLE, finish, save


def plot_bars(
    path: Path,
    title: str,
    bars: Mapping[str, tuple[float, float, float]],
    x_label: str,
    *,
    ours: Collection[str] = (),
) -> None:
    """Draws a bar with its interval for each label, from top to bottom.

    Args:
      path: the PNG or SVG to write.
      bars: label -> value and the ends of its interval, which holds the value; NaN if there is no interval.
      x_label: what the values are, with their unit.
      ours: labels whose bars are coloured.
    """
    labels, found = list(bars), list(bars.values())
    values = [value for value, _, _ in found]
    below = [value - low if low == low else 0.0 for value, low, _ in found]
    above = [high - value if high == high else 0.0 for value, _, high in found]
    figure = Figure(figsize=(SINGLE, 0.9 + 0.36 * len(labels)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(labels, values, color=[BLUE if label in ours else GREY for label in labels], height=0.62)
    axes.errorbar(values, labels, xerr=[below, above], fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    for place, (value, ceiling) in enumerate(zip(values, above, strict=True)):
        axes.annotate(
            f"{value:.4g}", (value + ceiling, place), (5, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.invert_yaxis()
    finish(axes, title, x_label, "")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    axes.set_xlim(0, None)
    save(figure, path)
