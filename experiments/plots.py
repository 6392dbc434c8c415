"""The pictures of a report: each function draws plain data, wherever it comes from, into one PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY, INK = "#2a6fb0", "#d9772b", "#3f8f5f", "#9aa0a6", "#26292d"
CYCLE = (BLUE, ORANGE, GREEN, "#8a5fb0", "#b04a5a", "#6b7a2a", "#4aa3a8", "#7a6a58")

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and values of one line."""


def plot_losses(path: Path, panels: Mapping[str, Mapping[str, Curve]]) -> None:
    """World-model training: one panel a stage, one line a loss.

    Args:
      path: the PNG to write.
      panels: title -> label -> (steps, loss in nats or as labelled).
    """
    figure = Figure(figsize=(4.6 * max(1, len(panels)), 3.6), layout="constrained")
    for index, (title, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), index + 1)
        for (label, (steps, values)), colour in zip(curves.items(), CYCLE, strict=False):
            axes.plot(steps, values, color=colour, linewidth=1.6, label=label)
        _finish(axes, title, "gradient step", "loss")
        axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_returns(path: Path, training: Mapping[str, Curve], real: Mapping[str, Sequence[float]]) -> None:
    """What the controller was promised in training, and what its episodes really brought.

    Args:
      path: the PNG to write.
      training: label -> (update, return in percent), in the dream or wherever it was trained.
      real: label -> returns in percent of real episodes after training, drawn beside the training.
    """
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
    for (label, (steps, values)), colour in zip(training.items(), (BLUE, GREY), strict=False):
        left.plot(steps, values, color=colour, linewidth=1.8, label=label)
    left.legend(frameon=False, fontsize=8)
    _finish(left, "Training", "update", "return [%]")
    for position, returns in enumerate(real.values()):
        # Spread side by side in a fixed pattern, so that equal returns stay countable and the picture reproducible.
        offsets = 0.3 * (np.arange(len(returns)) / max(1, len(returns) - 1) - 0.5) if len(returns) > 1 else [0.0]
        right.scatter(position + np.asarray(offsets), returns, s=22, color=CYCLE[position + 1], alpha=0.75, linewidth=0)
        right.hlines(np.mean(returns), position - 0.3, position + 0.3, color=INK, linewidth=1.4)
    right.set_xticks(range(len(real)), list(real), fontsize=8)
    right.set_xlim(-0.6, len(real) - 0.4)
    _finish(right, "After training: real episodes", "", "")
    _save(figure, path)


def plot_costs(path: Path, costs_ms: Sequence[float], rule_names: Sequence[str], best_step: int) -> None:
    """Estimated cost along the episode that was exported, each step labelled with its rule.

    Args:
      path: the PNG to write.
      costs_ms: cost of every graph, the initial one first.
      rule_names: what was done between them, one shorter.
      best_step: the graph that was exported.
    """
    steps = np.arange(len(costs_ms))
    figure = Figure(figsize=(min(14.0, 5.0 + 0.16 * len(costs_ms)), 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.step(steps, costs_ms, where="post", color=BLUE, linewidth=1.8)
    axes.axhline(costs_ms[0], color=GREY, linewidth=1, linestyle="--")
    axes.plot(best_step, costs_ms[best_step], "o", color=ORANGE, markersize=7, zorder=3)
    gain = 100 * (1 - costs_ms[best_step] / costs_ms[0])
    _finish(axes, f"Estimated cost along the exported episode: {gain:.1f} % less", "", "estimated time [ms]")
    axes.set_xticks(steps, ["start", *rule_names], rotation=90, fontsize=6.5 if len(steps) > 25 else 8)
    axes.margins(x=0.02, y=0.08)
    _save(figure, path)


def plot_improvements(path: Path, improvements: Mapping[str, float]) -> None:
    """Who found what: improvement of the best graph of each source.

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
    _finish(axes, "Best graph of each source", "less estimated time [%]", "")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    _save(figure, path)


def _finish(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(color="#e4e6e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, metadata={"Software": None})  # no version string: equal data, equal file
