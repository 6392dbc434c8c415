"""Pictures of how far a world model can be trusted: each function draws plain data into one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from experiments.reports.plots import BLUE, CYCLE, GREY, INK, ORANGE, finish
from worldmodel.accuracy import metrics
from worldmodel.accuracy.probes import Components
from worldmodel.accuracy.rewards_and_masks import rank_correlation

if TYPE_CHECKING:  # the module imports TensorFlow, which pictures do not need
    from experiments.reports.accuracy_study import Drawn, Returns, RuleErrors

MOST_RULES = 15
SHADES = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.92, 256)))
"""The colours of viridis without the yellow, which is hard to see on white."""
STEPS_AHEAD = "steps without a look at reality"


def rewards_figure(predicted: Mapping[str, np.ndarray], real: np.ndarray) -> Figure:
    """Draws predicted against real rewards, one panel for each predictor.

    Args:
      predicted: predictor -> [n], percent.
      real: [n], percent.
    """
    figure = Figure(figsize=(3.4 * len(predicted), 3.6), layout="constrained")
    panels = figure.subplots(1, len(predicted), sharex=True, sharey=True, squeeze=False)[0]
    ends = np.array([real.min(), real.max()])
    for axes, (label, values), colour in zip(panels, predicted.items(), CYCLE, strict=False):
        axes.plot(ends, ends, color=GREY, linewidth=1)
        axes.scatter(real, values, s=9, color=colour, alpha=0.35, linewidth=0)
        ranks, error = rank_correlation(values, real), metrics.mean_absolute_error(values, real)
        scores = f"rank correlation {ranks:.3f}, mean error {error:.2f}"
        finish(axes, f"{label}\n{scores}", "real reward [%]", "predicted reward [%]" if axes is panels[0] else "")
    return figure


def errors_figure(panels: Mapping[tuple[str, str], Mapping[str, np.ndarray]]) -> Figure:
    """Draws errors against the number of steps, on a logarithmic scale.

    Args:
      panels: (title, unit) -> predictor -> error after 1, 2, … steps.
    """
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    for index, ((title, unit), errors) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), index + 1)
        for (label, values), colour in zip(errors.items(), (BLUE, ORANGE, GREY), strict=False):
            axes.plot(np.arange(1, len(values) + 1), values, color=colour, linewidth=1.8, label=label)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        finish(axes, title, STEPS_AHEAD, unit)
        axes.legend(frameon=False, fontsize=8)
    return figure


def rule_errors_figure(errors: Mapping[str, RuleErrors], step: int) -> Figure:
    """Draws the wrong bits of each rule, relative to those of copying the first state.

    Args:
      errors: rule -> counts. Rules for which copying is always right are left out; of the others, the first
        `MOST_RULES` are drawn.
      step: the number of predicted steps.
    """
    shown = {rule: each for rule, each in errors.items() if each.copied > 0}
    left_out = len(shown) - MOST_RULES
    rules = list(shown)[:MOST_RULES]
    figure = Figure(figsize=(7.6, 1.3 + 0.28 * len(rules)), layout="constrained")
    axes = figure.add_subplot()
    begin = np.zeros(len(rules))
    for label, colour in (("missed", BLUE), ("invented", ORANGE)):
        lengths = np.array([getattr(shown[rule], label) / shown[rule].copied for rule in rules])
        axes.barh(rules, lengths, left=begin, color=colour, height=0.62, label=f"{label}")
        begin += lengths
    for row, rule in enumerate(rules):
        each = shown[rule]
        text = f" {each.missed + each.invented:.0f} / {each.copied:.0f}"
        axes.text(begin[row], row, text, va="center", fontsize=7.5, color=INK)
    axes.axvline(1.0, color=GREY, linewidth=1, linestyle="--", label="copying the first state")
    axes.invert_yaxis()
    finish(axes, "", "wrong bits / bits that have changed", "")
    rest = f"; {left_out} rules that change less often are left out" if left_out > 0 else ""
    figure.suptitle(f"Legal rewrites after {step} steps{rest}", x=0.01, ha="left", fontsize=10, color=INK)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, max(1.05, 1.12 * begin.max(initial=0.0)))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def coverage_figure(levels: Sequence[float], shares: Mapping[str, np.ndarray]) -> Figure:
    """Draws the share of real latents inside intervals against the share that should be inside.

    Args:
      levels: probabilities of the intervals.
      shares: label -> share of the real values within each.
    """
    figure = Figure(figsize=(4.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    percent = 100 * np.asarray(levels)
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=1, linestyle="--", label="as it should be")
    for (label, values), colour in zip(shares.items(), (ORANGE, BLUE), strict=False):
        axes.plot(percent, 100 * values, color=colour, linewidth=1.8, marker="o", markersize=3, label=label)
    finish(
        axes, "Intervals of the mixture, one step ahead", "probability of the interval [%]", "real values inside [%]"
    )
    axes.legend(frameon=False, fontsize=8)
    axes.set(xlim=(0, 100), ylim=(0, 101), aspect="equal")
    return figure


def latents_figure(latents: np.ndarray, costs_percent: np.ndarray, principal: Components, start: np.ndarray) -> Figure:
    """Draws states by the first two principal components of their latents, coloured by cost.

    Args:
      latents: [n, Z].
      costs_percent: [n], in percent of the start graph's cost.
      principal: the two components.
      start: [Z], the latent of the start graph.
    """
    figure = Figure(figsize=(6.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    points, origin = principal.project(latents), principal.project(start)
    order = np.random.default_rng(0).permutation(len(points))  # in random order, so that no cost hides the others
    drawn = axes.scatter(points[order, 0], points[order, 1], c=costs_percent[order], s=9, cmap=SHADES, linewidth=0)
    axes.plot(*origin, "*", color=ORANGE, markersize=14, markeredgecolor="white", label="start graph")
    bar = figure.colorbar(drawn, ax=axes)
    bar.set_label("estimated time [% of the start graph's]", fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8, colors=INK)
    finish(axes, f"{len(latents)} states of the training episodes", *_component_labels(principal))
    axes.legend(frameon=False, fontsize=8)
    return figure


def _component_labels(principal: Components) -> list[str]:
    return [f"component {i + 1} ({100 * share:.0f} % of the variance)" for i, share in enumerate(principal.explained)]


def trajectories_figure(trajectories: Sequence[Returns], temperature: float = 1.0) -> Figure:
    """Draws rewards summed along action sequences, dreamed and real, one panel for each sequence.

    Args:
      temperature: the temperature of the sampled dreams, for the legend.
    """
    columns = min(3, len(trajectories))
    rows = -(-len(trajectories) // columns)
    figure = Figure(figsize=(3.5 * columns, 2.6 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(trajectories) :]:
        axes.set_axis_off()
    for index, (axes, each) in enumerate(zip(panels, trajectories, strict=False)):
        steps = np.arange(len(each.real))
        for sample in each.sampled:
            axes.plot(steps, sample, color=BLUE, linewidth=0.6, alpha=0.35)
        axes.plot([], [], color=BLUE, linewidth=0.6, alpha=0.6, label=f"sampled dreams, τ = {temperature:g}")
        axes.plot(steps, each.dreamed, color=BLUE, linewidth=2.0, label="most likely dream")
        axes.plot(steps, each.real, color=ORANGE, linewidth=1.6, linestyle="--", label="real")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        bottom, left = index + columns >= len(trajectories), index % columns == 0
        finish(axes, each.title, "step" if bottom else "", "summed reward [%]" if left else "")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def temperatures_figure(drawn: Drawn, principal: Components) -> Figure:
    """Draws the next latents that were sampled at each temperature, and how their spread depends on it."""
    temperatures = list(drawn.latents)
    figure = Figure(figsize=(2.5 * (len(temperatures) + 1) + 0.4, 3.2), layout=ConstrainedLayoutEngine(w_pad=0.1))
    panels = figure.subplots(1, len(temperatures) + 1)
    before, after = principal.project(drawn.before), principal.project(drawn.after)
    clouds = {value: principal.project(latents) for value, latents in drawn.latents.items()}
    for axes, (value, points) in zip(panels, clouds.items(), strict=False):
        axes.scatter(points[:, 0], points[:, 1], s=10, color=BLUE, alpha=0.35, linewidth=0, label="drawn")
        axes.plot(*after, "x", color=ORANGE, markersize=9, markeredgewidth=2, label="real next state")
        axes.plot(*before, "+", color=INK, markersize=9, label="state before")
        finish(axes, f"τ = {value:g}", "component 1", "component 2" if axes is panels[0] else "")
    _share_limits(panels[:-1], np.concatenate([*clouds.values(), [before, after]]))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _spread_panel(panels[-1], drawn)
    return figure


def _share_limits(panels: Sequence[Axes], points: np.ndarray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.08 * (high - low)
    for axes in panels:
        axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))


def _spread_panel(axes: Axes, drawn: Drawn) -> None:
    spreads = [np.sqrt(np.mean(latents.var(axis=0))) for latents in drawn.latents.values()]
    axes.plot(list(drawn.latents), spreads, color=BLUE, linewidth=1.8, marker="o", markersize=4)
    finish(axes, "Spread of what is drawn", "temperature τ", "standard deviation a dimension")
    axes.set_ylim(bottom=0)
