"""How all pictures look: colours, axes, and files that are equal where their data are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taso_ext.files import write_atomically

BLUE, ORANGE, GREEN, GREY, INK = "#2a6fb0", "#d9772b", "#3f8f5f", "#9aa0a6", "#26292d"
CYCLE = (BLUE, ORANGE, GREEN, "#8a5fb0", "#b04a5a", "#6b7a2a", "#4aa3a8", "#7a6a58")

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and values of one line."""


def finish(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Title, labels and the look of one panel; empty texts are left out."""
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
    # Neither version nor date, and ids of SVG elements from a fixed salt: equal data, equal file.
    unwanted = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        write_atomically(path, partial(figure.savefig, format=path.suffix[1:], dpi=140, metadata=unwanted))
