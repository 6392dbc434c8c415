"""Growth of accuracy with the number of real steps that a world model is trained on.

rlflow reproduce accuracy-curve

The figures are those of `rlflow reproduce accuracy`, for models that have seen 1,000 to 100,000 steps of random play. A
model takes up to fifteen minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.executors.units import Record
from experiments.reproduce.table import UNDEFINED, Figure
from experiments.reproduce.world_model.accuracy import held_out_notes
from experiments.reproduce.world_model.experiment import Conditions, Records, WorldModelTable
from experiments.reproduce.world_model.rows import NO, best_trivial, figure_rows
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.requirements import required
from experiments.studies.setting import Effort
from experiments.studies.study import numbers_of
from worldmodel.accuracy import figure_names as names

if TYPE_CHECKING:  # matplotlib is imported when something is drawn
    from experiments.reports.plots import Band

REAL_STEPS = {"smoke": (100, 400), "full": (1_000, 3_000, 10_000, 30_000, 100_000)}
FIGURES = {
    names.REWARD_RANKS: 1,
    names.TOTAL_R2: 20,
    names.MASK_ERROR: 10,
    names.CHANGE_F1: 10,
    names.LATENT_ERROR: 20,
}
"""The figures that are shown, each with its number of steps; if that is not evaluated, the largest number below it."""

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


def _add_real_steps(parser: argparse.ArgumentParser) -> None:
    usual = ",".join(map(str, REAL_STEPS["full"]))
    parser.add_argument("--real-steps", metavar="A,B,…", help=f"amounts of training data ({usual})")


def _amounts(graph: str, options: argparse.Namespace) -> Conditions:
    given, keys = options.real_steps, {assignment.partition("=")[0] for assignment in options.set}
    if "collect.steps" in keys:
        raise UserError("collect.steps is what this table varies: give the numbers of real steps by --real-steps.")
    amounts = sorted({*numbers_of("--real-steps", given, least=1)}) if given else REAL_STEPS[options.scale]
    return {f"{amount} steps": (f"collect.steps={amount}",) for amount in amounts}


def _rows(graph: str, records: Records, effort: Effort) -> Iterator[Record]:
    for studied in records:
        yield from curve_rows(studied.records, effort)


def curve_rows(judged: Sequence[Record], effort: Effort) -> list[Record]:
    """Returns the rows of one amount, from the records of its seeds."""
    facts = {key: sum(record[key] for record in judged) / len(judged) for key in ("real_steps", "states")}
    shown = {figure: effort.furthest(step) for figure, step in FIGURES.items()}
    return [
        {**row, **facts, "trivial": best_trivial(row)}
        for row in figure_rows(judged, counted=True, steps=effort.steps)
        if row["step"] == shown.get(row["figure"])
    ]


def _notes(config: RunConfig, effort: Effort) -> str:
    return (
        f"{config.costs}. {held_out_notes(effort)} – stands where training met too few rewrites for so many steps of "
        "held-out play to be predicted."
    )


def _enough(rows: Sequence[Record]) -> str:
    """Returns from how many real steps on every requirement is met, in one sentence for each graph."""
    sentences = []
    for graph, of_graph in _by_graph(rows).items():
        missed = [row["real_steps"] for row in of_graph if row.get("met") in (NO, UNDEFINED)]
        enough = sorted({row["real_steps"] for row in of_graph if row["real_steps"] > max(missed, default=0)})
        sentences.append(
            f"{graph}: with {enough[0]:,.0f} real steps or more every figure is as asked."
            if enough
            else f"{graph}: some figures are not as asked with {max(missed):,.0f} real steps either."
        )
    return " ".join(sentences)


def _by_graph(rows: Sequence[Record]) -> dict[str, list[Record]]:
    names_of_graphs = dict.fromkeys(row["graph"] for row in rows)
    return {graph: [row for row in rows if row["graph"] == graph] for graph in names_of_graphs}


def _figures(rows: Sequence[Record]) -> Mapping[str, Figure]:
    return {graph: partial(draw, graph, of_graph) for graph, of_graph in _by_graph(rows).items()}


def draw(name: str, rows: Sequence[Record], path: Path) -> None:
    """Draws one panel for each figure, with one line for each kind of play."""
    from experiments.reports.plots import Band, plot_bands

    panels: dict[str, dict[str, Band]] = {}
    wanted: dict[str, dict[str, float]] = {}
    for figure in FIGURES:
        of_figure = [row for row in rows if row["figure"] == figure and not isinstance(row["model"], str)]
        if not of_figure:
            continue
        title = f"{figure}, {of_figure[0]['step']} steps" if of_figure[0]["step"] > 1 else f"{figure}, 1 step"
        lines = {play: [row for row in of_figure if row["play"] == play] for play in (RANDOM, GREEDY)}
        panels[title] = {play: Band.of_rows(line, x="real_steps", y="model") for play, line in lines.items() if line}
        wanted[title] = _wanted(lines, figure)
    plot_bands(path, f"{name}: accuracy against real steps", panels, wanted, "real steps of random play")


def _wanted(lines: Mapping[str, Sequence[Record]], figure: str) -> dict[str, float]:
    """Returns the required bound of a figure by kind of play."""
    bounds = {}
    for play, rows in lines.items():
        found = required(play, figure, rows[0]["step"]) if rows else None
        if found is not None:
            bounds[play] = found.at_most if found.at_least == -float("inf") else found.at_least
    return bounds


CURVE = WorldModelTable(
    title="Accuracy of world models against the real steps they were trained on",
    columns=COLUMNS,
    formats=FORMATS,
    graphs={"smoke": ("squeezenet1.1-tiny",), "full": ("bert-base",)},
    seeds="0,1",
    conditions=_amounts,
    parts=lambda graph, config: [("accuracy", 0)],
    rows=_rows,
    notes=_notes,
    finding=_enough,
    add_options=_add_real_steps,
    figures=_figures,
).experiment(__doc__ or "")
