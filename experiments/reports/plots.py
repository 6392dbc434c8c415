"""The pictures of a report: each function draws plain data, wherever it comes from, into one PNG or SVG.

Equal data give equal files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from taso_ext.files import write_atomically

LARGE = 10.0
"""If a loss is larger than this, its panel has a scale that is linear between -1 and 1 and logarithmic beyond: losses
fall from large values to below zero."""


SINGLE = 6.4
"""Least width of a figure with one panel, in inches."""


class Band(NamedTuple):
    """A line with an interval around it: x, y and the ends of the interval, all of one length."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]], *, x: str, y: str) -> Band:
        """Returns the band of two columns of a table. Where "low" and "high" are undefined, it has no width."""
        low, high = ([row[y] if isinstance(row[end], str) else row[end] for row in rows] for end in ("low", "high"))
        return cls([row[x] for row in rows], [row[y] for row in rows], low, high)


BLUE, ORANGE, GREEN, GREY, INK = "#2a6fb0", "#d9772b", "#3f8f5f", "#9aa0a6", "#26292d"
CYCLE = (BLUE, ORANGE, GREEN, "#8a5fb0", "#b04a5a", "#6b7a2a", "#4aa3a8", "#7a6a58")

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and values of one line."""


def finish(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Sets the title, the labels and the style of one panel; empty texts are left out."""
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(color="#e4e6e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG or an SVG, as the suffix of `path` says, whole or not at all."""
    # No version and no date, and ids of SVG elements from a fixed salt: so equal data give equal files.
    unwanted = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        write_atomically(path, partial(figure.savefig, format=path.suffix[1:], dpi=140, metadata=unwanted))


def plot_losses(path: Path, panels: Mapping[str, Mapping[str, Curve]]) -> None:
    """Writes `losses_figure` into the PNG `path`."""
    save(losses_figure(panels), path)


def losses_figure(panels: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Draws world-model training: one panel for each stage, one line for each loss.

    Args:
      panels: title -> label -> (steps, loss in nats or as labelled).
    """
    figure = Figure(figsize=(4.6 * max(1, len(panels)), 4.2), layout="constrained")
    colours: dict[str, str] = {}
    for index, (title, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), index + 1)
        colours |= _colours(list(curves), colours)
        for label, (steps, values) in curves.items():
            axes.plot(steps, values, color=colours[label], linewidth=1.6, label=label)
        if max((max(values) for _, values in curves.values()), default=0.0) > LARGE:
            axes.set_yscale("symlog", linthresh=1.0)
            axes.yaxis.set_major_formatter("{x:g}")
        finish(axes, title, "gradient step", "loss")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def _colours(labels: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """Returns a colour for each label: the one that it has already, or one that no other label here has."""
    taken = {known[label] for label in labels if label in known}
    free = itertools.cycle(colour for colour in CYCLE if colour not in taken)
    return {label: known[label] if label in known else next(free) for label in labels}


def plot_training(
    path: Path, training: Mapping[str, Curve], real: Mapping[str, Sequence[float]], figure_of: str, place: str
) -> None:
    """Draws what the controller's episodes bring in training, and beside it what its real episodes bring.

    Args:
      path: the PNG to write.
      training: label -> (updates, percents).
      real: label -> percents of real episodes after training.
      figure_of: the figure of an episode that is shown.
      place: where the controller was trained.
    """
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
    for (label, (steps, values)), colour in zip(training.items(), (BLUE, GREY), strict=False):
        left.plot(steps, values, color=colour, linewidth=1.8, label=label)
    left.legend(frameon=False, fontsize=8)
    finish(left, f"Training {place}", "update", f"{figure_of} [%]")
    for position, returns in enumerate(real.values()):
        # Points lie side by side in a fixed pattern: equal returns can be counted, and the picture is reproducible.
        offsets = 0.3 * (np.arange(len(returns)) / max(1, len(returns) - 1) - 0.5) if len(returns) > 1 else [0.0]
        right.scatter(position + np.asarray(offsets), returns, s=22, color=CYCLE[position + 1], alpha=0.75, linewidth=0)
        right.hlines(np.mean(returns), position - 0.3, position + 0.3, color=INK, linewidth=1.4)
    right.set_xticks(range(len(real)), list(real), fontsize=8)
    right.set_xlim(-0.6, len(real) - 0.4)
    finish(right, "After training: real episodes", "", "")
    save(figure, path)


def plot_costs(path: Path, costs_ms: Sequence[float], rule_names: Sequence[str], best_step: int) -> None:
    """Draws the estimated cost along the exported episode; each step is labelled with its rule.

    Args:
      path: the PNG to write.
      costs_ms: the cost of every graph, the initial one first.
      rule_names: the rules that were applied between these graphs, one fewer.
      best_step: the position of the exported graph in `costs_ms`.
    """
    steps = np.arange(len(costs_ms))
    figure = Figure(figsize=(min(14.0, 5.0 + 0.16 * len(costs_ms)), 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.step(steps, costs_ms, where="post", color=BLUE, linewidth=1.8)
    axes.axhline(costs_ms[0], color=GREY, linewidth=1, linestyle="--")
    axes.plot(best_step, costs_ms[best_step], "o", color=ORANGE, markersize=7, zorder=3)
    gain = 100 * (1 - costs_ms[best_step] / costs_ms[0]) if costs_ms[0] else 0.0
    finish(axes, f"Estimated cost along the exported episode: {gain:.1f} % less", "", "estimated time [ms]")
    axes.set_xticks(steps, ["start", *rule_names], rotation=90, fontsize=6.5 if len(steps) > 25 else 8)
    axes.margins(x=0.02, y=0.08)
    save(figure, path)


def plot_improvements(path: Path, improvements: Mapping[str, float]) -> None:
    """Draws the improvement of the best graph of each source.

    Args:
      path: the PNG to write.
      improvements: label -> 1 - cost/cost₀.
    """
    labels, values = list(improvements), [100 * value for value in improvements.values()]
    figure = Figure(figsize=(7.0, 0.9 + 0.42 * len(labels)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(labels, values, color=[BLUE if "controller" in label else GREY for label in labels], height=0.62)
    axes.bar_label(bars, fmt="%.2f %%", padding=4, fontsize=9, color=INK)
    axes.invert_yaxis()
    finish(axes, "Best graph of each source", "less estimated time [%]", "")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    save(figure, path)


def plot_pairs(
    path: Path,
    title: str,
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    correlation: Callable[[Sequence[float], Sequence[float]], float],
) -> None:
    """Draws every quantity against every other: points below the diagonal, histograms on it, correlations above it.

    Args:
      path: the PNG or SVG to write.
      groups: label -> quantity -> values, in percent; each group has the same quantities.
      correlation: returns the correlation of two quantities of a group; NaN if there is none.
    """
    quantities = list(next(iter(groups.values())))
    size = len(quantities)
    figure = Figure(figsize=(2.3 * size, 2.15 * size + 0.7), layout="constrained")
    cells = figure.subplots(size, size, squeeze=False, sharex="col")
    colours = dict(zip(groups, (BLUE, ORANGE, GREEN), strict=False))
    for (row, down), (column, across) in itertools.product(enumerate(quantities), repeat=2):
        axes = cells[row][column]
        if row > column:
            _scatter(axes, {label: (group[across], group[down]) for label, group in groups.items()}, colours)
        elif row == column:
            _spread(axes, down, {label: group[down] for label, group in groups.items()}, colours)
        else:
            values = {label: correlation(group[across], group[down]) for label, group in groups.items()}
            _correlations(axes, values, colours)
        axes.tick_params(labelleft=column == 0 and row > 0, labelbottom=row == size - 1 and column <= row)
        axes.set_ylabel(down if column == 0 and row > 0 else "", fontsize=9, color=INK)
        axes.set_xlabel(across if row == size - 1 else "", fontsize=9, color=INK)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    handles = [Line2D([], [], marker="o", linestyle="", color=colour, label=label) for label, colour in colours.items()]
    handles.append(Line2D([], [], marker="+", linestyle="", color=INK, markersize=9, label="start graph"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    save(figure, path)


def plot_bands(
    path: Path,
    title: str,
    panels: Mapping[str, Mapping[str, Band]],
    wanted: Mapping[str, Mapping[str, float]],
    x_label: str,
    *,
    logarithmic: bool = True,
    ticks: Mapping[float, str] | None = None,
) -> None:
    """Draws lines with intervals, one panel for each quantity.

    Args:
      path: the PNG or SVG to write.
      panels: quantity -> label -> line.
      wanted: quantity -> label -> required value. It is drawn dashed in the colour of its line, or in grey if several
        labels have the same value.
      x_label: the label of the x axis of all panels.
      logarithmic: whether the x axis is logarithmic.
      ticks: names of places of the x axis; None: numbers.
    """
    figure, grid = _grid(len(panels), 3, (4.4, 3.2))
    colours = _colour_of_each(panels)
    for axes, (name, lines) in zip(grid, panels.items(), strict=True):
        for label, band in lines.items():
            axes.fill_between(band.x, band.low, band.high, color=colours[label], alpha=0.18, linewidth=0)
            axes.plot(band.x, band.y, color=colours[label], linewidth=1.8, marker="o", markersize=4)
        asked = wanted.get(name, {})
        for label, value in asked.items():
            shared = list(asked.values()).count(value) > 1
            axes.axhline(value, color=GREY if shared else colours[label], linewidth=1, linestyle="--")
        if logarithmic:
            axes.set_xscale("log")
        if ticks is not None:
            axes.set_xticks(list(ticks), list(ticks.values()))
        if axes is not grid[0]:
            axes.sharex(grid[0])
        finish(axes, name, x_label, "")
        _show_lines(axes, lines, asked.values())
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    handles = [Line2D([], [], color=colour, marker="o", markersize=4, label=label) for label, colour in colours.items()]
    if any(wanted.values()):
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="asked"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    save(figure, path)


def plot_heatmap(
    path: Path,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    shades: np.ndarray | None = None,
) -> None:
    """Draws numbers as colours, each with its value.

    Args:
      path: the PNG or SVG to write.
      rows, columns: the names of the rows, from top to bottom, and of the columns.
      values: [rows, columns], at least 0; 0 stays blank.
      shades: [rows, columns], how dark they are, from 0 to 1; None: as their share of the largest.
    """
    if shades is None:
        shades = values / max(values.max(), 1e-12)
    figure = Figure(figsize=(3.5 + 0.9 * len(columns), 1.4 + 0.24 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(np.where(values > 0, shades, np.nan), cmap="Blues", aspect="auto", vmin=0, vmax=1.4)
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for row, column in zip(*np.nonzero(values), strict=True):
        axes.text(column, row, f"{values[row, column]:.3g}", ha="center", va="center", fontsize=7, color=INK)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    save(figure, path)


def plot_steps(
    path: Path,
    title: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    *,
    logarithmic: bool = False,
) -> None:
    """Draws values that change in steps.

    Args:
      path: the PNG or SVG to write.
      lines: label -> pairs of x and the value from there on, in the order of x.
      logarithmic: whether equal factors of x are equally long.
    """
    figure, (axes,) = _grid(1, 1, (5.6, 3.4))
    if logarithmic:
        axes.set_xscale("log")
    colours = _colour_of_each({"": lines})
    end = max((points[-1][0] for points in lines.values()), default=0.0)
    for label, points in lines.items():
        x, y = zip(*points, (end, points[-1][1]), strict=True)
        axes.step(x, y, where="post", color=colours[label], linewidth=1.8, label=label)
    finish(axes, "", x_label, y_label)
    axes.legend(frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    save(figure, path)


Agreement = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Measured ratios, half the widths of their intervals as fractions of them, and predicted ratios, all of one length."""


def plot_agreement(path: Path, title: str, panels: Mapping[str, Mapping[str, Agreement]]) -> None:
    """Draws predicted against measured ratios, one panel for each graph; on the diagonal the prediction is right.

    Args:
      path: the PNG or SVG to write.
      panels: graph -> kind of point -> points.
    """
    figure, grid = _grid(len(panels), 4, (3.1, 3.1))
    colours = _colour_of_each(panels)
    for axes, (name, kinds) in zip(grid, panels.items(), strict=True):
        for label, (measured, half_widths, predicted) in kinds.items():
            widths = [value * half for value, half in zip(measured, half_widths, strict=True)]
            axes.errorbar(
                measured, predicted, xerr=widths, fmt="o", markersize=3, linewidth=0.6, color=colours[label], alpha=0.7
            )
        every = [value for points in kinds.values() for side in (points[0], points[2]) for value in side] or [1.0]
        axes.axline((1, 1), slope=1, color=GREY, linewidth=1)
        axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
        axes.set(xlim=_around(every), ylim=_around(every))
        finish(axes, name, "measured", "predicted")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    handles = [Line2D([], [], color=colour, marker="o", linestyle="", label=label) for label, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    save(figure, path)


def _grid(count: int, across: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Returns a figure with room for title and legend, and its `count` panels.

    Args:
      across: the largest number of panels in a row.
      size: width and height of a panel in inches. A single panel is as wide as title and legend need.
    """
    columns = min(across, max(1, count))
    rows = -(-count // columns)
    width, height = size
    width = width if count > 1 else max(width, SINGLE)
    figure = Figure(figsize=(width * columns, height * rows + 0.7), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(count)]


def _colour_of_each(panels: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """Returns a colour for each label of any panel."""
    return _colours(list(dict.fromkeys(label for labelled in panels.values() for label in labelled)), {})


def _around(values: Sequence[float]) -> tuple[float, float]:
    margin = 0.05 * (max(values) - min(values)) + 0.005
    return min(values) - margin, max(values) + margin


def _show_lines(axes: Axes, lines: Mapping[str, Band], asked: Iterable[float]) -> None:
    """Limits the y axis to lines and required values: intervals of two seeds can be a hundred times as wide."""
    values = [value for band in lines.values() for value in band.y]
    low, high = axes.get_ylim()
    margin = 1.5 * (max(values) - min(values)) + 0.1 * abs(max(values, key=abs)) + 1e-6
    ends = [min(values) - margin, max(values) + margin, *asked]
    room = 0.03 * (max(ends) - min(ends))
    axes.set_ylim(max(low, min(ends) - room), min(high, max(ends) + room))


def _scatter(axes: Axes, points: Mapping[str, Curve], colours: Mapping[str, str]) -> None:
    for label, (across, down) in points.items():
        axes.scatter(across, down, s=12, color=colours[label], alpha=0.6, linewidth=0)
    axes.plot(100, 100, "+", color=INK, markersize=9, zorder=3)
    finish(axes, "", "", "")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def _spread(axes: Axes, name: str, values: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> None:
    """Draws a histogram. The bars of each group sum to one, so that a small group is visible beside a large one."""
    edges = np.histogram_bin_edges(np.concatenate([np.asarray(group) for group in values.values()]), 24).tolist()
    for label, group in values.items():
        axes.hist(group, edges, weights=np.full(len(group), 1 / len(group)), color=colours[label], alpha=0.6)
    finish(axes, name, "", "")
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _correlations(axes: Axes, values: Mapping[str, float], colours: Mapping[str, str]) -> None:
    for index, (label, value) in enumerate(values.items()):
        text = "–" if np.isnan(value) else f"{value:+.2f}"
        height = 1 - (index + 1) / (len(values) + 1)
        label_text = axes.text(0.5, height, text, color=colours[label], fontsize=15, transform=axes.transAxes)
        label_text.set(ha="center", va="center")
    axes.set_axis_off()
