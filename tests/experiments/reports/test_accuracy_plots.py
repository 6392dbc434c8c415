"""Pictures of accuracy: what is written on them can be read, and stands where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from experiments.reports import accuracy_plots
from experiments.reports.plots import losses_figure, save

RNG = np.random.default_rng(0)
LONG = "a-rule-with-a-name-that-is-as-long-as-names-of-rules-become"


class Plane:
    """Stands for `Components`."""

    explained = np.array([0.7, 0.2])

    def project(self, latents: np.ndarray) -> np.ndarray:
        return latents[..., :2]


def rewards() -> Figure:
    real = RNG.normal(size=50)
    return accuracy_plots.rewards_figure({"world model": real, "a table": real[::-1], "another one": 0 * real}, real)


def errors() -> Figure:
    falling = {"world model": np.linspace(0.01, 2, 20), "copying the first state": np.linspace(1, 30, 20)}
    return accuracy_plots.errors_figure({("Latents", "squared error"): falling, ("Bits", "wrong bits"): falling})


def rules() -> Figure:
    counts = [SimpleNamespace(missed=i, invented=40.0 - i, copied=60.0 - i) for i in range(20)]
    return accuracy_plots.rule_errors_figure({f"{LONG}-{i}": each for i, each in enumerate(counts)}, 5)


def coverage() -> Figure:
    levels = np.linspace(0.05, 0.95, 19)
    return accuracy_plots.coverage_figure(levels, {"as predicted": levels**0.5, "rescaled": levels})


def latents() -> Figure:
    return accuracy_plots.latents_figure(RNG.normal(size=(300, 4)), RNG.uniform(80, 130, 300), Plane(), np.zeros(4))


def trajectories() -> Figure:
    steps = np.arange(12.0)
    parts = [
        SimpleNamespace(title=f"episode {i}", real=steps, dreamed=steps**1.1, sampled=[steps * 1.2] * 3)
        for i in range(5)
    ]
    return accuracy_plots.trajectories_figure(parts)


def temperatures() -> Figure:
    clouds = {value: value * RNG.normal(size=(60, 4)) for value in (0.0, 0.5, 1.0, 2.0)}
    drawn = SimpleNamespace(before=np.full(4, 3.0), after=np.zeros(4), latents=clouds)
    return accuracy_plots.temperatures_figure(drawn, Plane())


def losses() -> Figure:
    steps = list(range(100))
    large = {name: (steps, [80 / (1 + step) - 1 for step in steps]) for name in ("loss", "latent", "mask", "mean")}
    small = {name: (steps, [1 / (1 + step) for step in steps]) for name in ("loss", "cost", "action mask", "rule mask")}
    return losses_figure({"Encoder": small, "MDN-RNN": large})


def test_coverage_of_nothing_is_drawn_too() -> None:
    """Models without mixtures have none."""
    (axes,) = accuracy_plots.coverage_figure([0.5], {}).axes
    assert [line.get_label() for line in axes.lines] == ["as it should be"]


FIGURES = [rewards, errors, rules, coverage, latents, trajectories, temperatures, losses]


@pytest.fixture(params=FIGURES, ids=lambda draw: draw.__name__)
def figure(request: pytest.FixtureRequest) -> Figure:
    draw: Callable[[], Figure] = request.param
    return draw()


def named(texts: list[Text]) -> list[Text]:
    """Those that say something else than a number."""
    return [text for text in texts if any(character.isalpha() for character in text.get_text())]


@pytest.mark.filterwarnings("error")
def test_no_text_is_cut_off_or_written_over_another(figure: Figure) -> None:
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = list(figure.texts)  # the title among them
    for axes in figure.axes:
        texts += [axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *axes.get_yticklabels()]
    for legend in [*figure.legends, *(axes.legend_ for axes in figure.axes if axes.legend_)]:
        texts += legend.get_texts()
    boxes = [text.get_window_extent(renderer).padded(-1) for text in named(texts)]
    assert len(boxes) >= 3
    for index, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, "cut off at a side"
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, "cut off at the top or bottom"
        assert not any(box.overlaps(other) for other in boxes[index + 1 :]), "written over another"


def test_axes_are_named(figure: Figure) -> None:
    """By a label or by what the ticks are called; panels in a row may leave it to one of them."""
    figure.draw(FigureCanvasAgg(figure).get_renderer())
    across = [[axes.xaxis.label, *axes.get_xticklabels()] for axes in figure.axes]
    down = [[axes.yaxis.label, *axes.get_yticklabels()] for axes in figure.axes]
    assert any(map(named, across)) and any(map(named, down))


def test_a_name_has_one_colour_in_all_panels() -> None:
    colours: dict[str, str] = {}
    for axes in losses().axes:
        here = {line.get_label(): line.get_color() for line in axes.lines}
        assert len(set(here.values())) == len(here)
        for name, colour in here.items():
            assert colours.setdefault(name, colour) == colour


def test_a_figure_becomes_a_picture(figure: Figure, tmp_path: Path) -> None:
    save(figure, tmp_path / "picture.png")
    assert len(np.unique(imread(tmp_path / "picture.png").reshape(-1, 4), axis=0)) > 20
