"""How accuracy grows with the number of real steps that a world model is trained on.

rlflow reproduce accuracy-curve

The figures are those of `rlflow reproduce accuracy`, for models that have seen 1,000 to 100,000 steps of random play.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError
from experiments.reproduce.options import add_graphs, chosen_graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record
from experiments.reproduce.world_model.accuracy import held_out_notes
from experiments.reproduce.world_model.accuracy_rows import best_trivial, figure_rows
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.asked import asked
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.setting import Effort, Setting
from experiments.studies.study import SCALES, Study, seeds_of, training_config
from worldmodel.accuracy import figure_names as names

if TYPE_CHECKING:  # matplotlib is imported when something is drawn
    from experiments.reports.plots import Band

GRAPHS = {"smoke": ("squeezenet1.1-tiny",), "full": ("bert-base",)}
SEEDS = "0,1"
REAL_STEPS = {"smoke": (100, 400), "full": (1_000, 3_000, 10_000, 30_000, 100_000)}
FIGURES = {
    names.REWARD_RANKS: 1,
    names.TOTAL_R2: 20,
    names.MASK_ERROR: 10,
    names.CHANGE_F1: 10,
    names.LATENT_ERROR: 20,
}
"""What is shown, each after this many steps, or as many as are judged."""

COLUMNS = {
    "graph": "cleaned in full, under the cost model of the settings",
    "play": "held-out random or greedy episodes",
    "figure": "what is measured",
    "step": "after how many steps without a look at reality",
    "real_steps": "of training and validation, mean over seeds",
    "states": "distinct states among them, less those held out",
    "model": "of the world model, mean over seeds",
    "low": "95 % interval of it, lower end: over seeds; with one seed, over its episodes",
    "high": "upper end",
    "trivial": "the best of the trivial predictors with the same data",
    "asked": "what is asked of the model",
    "met": "whether it is",
    "seeds": "how many there are",
}
FORMATS = {"real_steps": ",.0f", "states": ",.0f", **dict.fromkeys(("model", "low", "high", "trivial"), ".3f")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    add_graphs(parser, default="bert-base")
    study.add_options(parser)
    parser.add_argument("--real-steps", metavar="A,B,…", help="amounts of training data (1000,3000,10000,30000,100000)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains and judges one model for each graph, amount and seed; finished units are not done again."""
    effort, config = SCALES[options.scale].effort, training_config(options)
    chosen = chosen_graphs(options.graphs or GRAPHS[options.scale])
    seeds = {name: seeds_of(name, options.seeds or SEEDS) for name in chosen}
    amounts = amounts_of(options.real_steps) if options.real_steps else REAL_STEPS[options.scale]
    rows: list[Record] = []
    for name in chosen:
        for amount in amounts:
            collect = dataclasses.replace(config.collect, steps=amount)
            setting = Setting(name, dataclasses.replace(config, collect=collect))
            rows += curve_rows([Study(setting, seed, effort, progress).accuracy() for seed in seeds[name]], effort)
    return Table(
        "Accuracy of world models against the real steps they were trained on",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{config.costs}. {held_out_notes(effort)} – stands where training met too few rewrites for so many steps of "
        "held-out play to be predicted.",
        figures={name: partial(draw, name, _of(rows, name)) for name in chosen},
    )


def amounts_of(text: str) -> tuple[int, ...]:
    """Numbers of real steps, ascending.

    Raises:
      UserError: if they are none.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--real-steps expects numbers with commas between them, for example 1000,3000, got '{text}'.")
    return tuple(sorted({int(part) for part in parts}))


def curve_rows(judged: Sequence[Record], effort: Effort) -> list[Record]:
    """The rows of one amount, from the records of its seeds."""
    facts = {key: sum(record[key] for record in judged) / len(judged) for key in ("real_steps", "states")}
    shown = {figure: effort.furthest(step) for figure, step in FIGURES.items()}
    return [
        {**row, **facts, "trivial": best_trivial(row)}
        for row in figure_rows(judged, counted=True, steps=effort.steps)
        if row["step"] == shown.get(row["figure"])
    ]


def _of(rows: Sequence[Record], name: str) -> list[Record]:
    return [row for row in rows if row["graph"] == name]


def draw(name: str, rows: Sequence[Record], path: Path) -> None:
    """One panel a figure, one line a kind of play."""
    from experiments.reports.plots import plot_bands

    panels: dict[str, dict[str, Band]] = {}
    wanted: dict[str, dict[str, float]] = {}
    for figure in FIGURES:
        of_figure = [row for row in rows if row["figure"] == figure and not isinstance(row["model"], str)]
        if not of_figure:
            continue
        title = f"{figure}, {of_figure[0]['step']} steps" if of_figure[0]["step"] > 1 else f"{figure}, 1 step"
        lines = {play: [row for row in of_figure if row["play"] == play] for play in (RANDOM, GREEDY)}
        panels[title] = {play: _band(line) for play, line in lines.items() if line}
        wanted[title] = _wanted(lines, figure)
    plot_bands(path, f"{name}: accuracy against real steps", panels, wanted, "real steps of random play")


def _band(rows: Sequence[Record]) -> Band:
    from experiments.reports.plots import Band

    ends = [[row["model"] if isinstance(row[end], str) else row[end] for row in rows] for end in ("low", "high")]
    return Band([row["real_steps"] for row in rows], [row["model"] for row in rows], *ends)


def _wanted(lines: Mapping[str, Sequence[Record]], figure: str) -> dict[str, float]:
    """By kind of play: the bound that is asked."""
    bounds = {}
    for play, rows in lines.items():
        found = asked(play, figure, rows[0]["step"]) if rows else None
        if found is not None:
            bounds[play] = found.at_most if found.at_least == -float("inf") else found.at_least
    return bounds
