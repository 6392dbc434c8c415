"""Accuracy of `measured:<device>` for the run times of whole graphs, and for what rewrites change in them.

rlflow reproduce discrepancy

The first columns are about the zoo's graphs as they are. Each graph is measured beside a reference kernel, the same one
that kernels are measured beside; at full scale several times, in turn with the other graphs. The prediction is the sum
of the prices of the graph's kernels, times one factor that is fitted on all other graphs.

The other columns are about the graphs that rewriting makes of each graph: random rewriting, and one rule wherever it
applies, in the whole graph or in its first part. The ratio of their run time to the start graph's is predicted, by the
full model and by the fast one, and measured. `rlflow reproduce discrepancy-rules` shows the same units rule by rule.
A graph takes about an hour, because each of some 80 graphs made of it is timed for up to a minute; all eleven take
about half a day.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from environment.costs.measured.cost_model import Measured
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from environment.statistics.paired import Numbers, spearman
from experiments.errors import require_at_least
from experiments.executors.units import Record
from experiments.reproduce.cost_model.discrepancy_study import LOOKS, TIMINGS, MeasuredGraph, of_rules, records
from experiments.reproduce.options import (
    add_device,
    add_graphs,
    add_seed,
    add_threads,
    chosen_graphs,
    chosen_seed,
    chosen_threads,
    require_one_process,
)
from experiments.reproduce.table import UNDEFINED, Experiment, Table
from experiments.runs.progress import ProgressDisplay, warnings_noted
from taso_ext import RuleSet

if TYPE_CHECKING:  # matplotlib is imported when something is drawn
    from experiments.reports.plots import Agreement

BEYOND = 0.02
"""Signs are compared only for measured ratios that differ from 1 by more than this."""
QUICK = ("squeezenet1.1", "inception-v3", "bert-base", "nasrnn")
"""The graphs whose tiny variants a quick look at the scale `smoke` is content with."""

COLUMNS = {
    "graph": "cleaned in full",
    "measured_ms": "one inference, where the reference kernel of prices takes what it took when the database was begun",
    "summed_ms": "the sum of its kernels' prices",
    "error": "of the sum times a factor fitted on all other graphs [%]",
    "graphs": "rewritten graphs that were measured",
    "noise": "median half-width of the intervals of their measured ratios [%]",
    "spread": "standard deviation of their measured ratios [%]",
    "limit": "correlation that perfect predictions would have with measurements of this noise, roughly; 0: none",
    "fast": "rank correlation of their predicted and measured ratios (Spearman), fast model",
    "full": "the same, full model",
    "differ": f"how many of them differ from the start by over {BEYOND:.0%}",
    "fast_signs": "for how many of these the fast model has the sign right [%]",
    "full_signs": "the same, full model",
}
FORMATS = {
    "measured_ms": ".2f",
    "summed_ms": ".2f",
    "error": "+.1f",
    "noise": ".2f",
    "spread": ".1f",
    "limit": ".2f",
    "fast": ".3f",
    "full": ".3f",
    "fast_signs": ".0f",
    "full_signs": ".0f",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_device(parser)
    add_threads(parser)
    add_seed(parser)
    parser.add_argument(
        "--timings",
        type=int,
        metavar="N",
        help=f"fewest timings of each kernel ({TIMINGS['full']}, in smoke {TIMINGS['smoke']}); prices are means",
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Measures each graph and the graphs made of it by rewriting; finished graphs are not measured again."""
    found = studies(options, progress)
    with warnings_noted(progress):
        predicted = records(found, timings_of(options))
        measured_ms = _looks(found, len(LOOKS[options.scale]), progress)
    errors = _errors(predicted, measured_ms)
    return Table(
        f"What measured:{options.device} predicts, against what is measured",
        COLUMNS,
        FORMATS,
        [_row(*each) for each in zip(predicted, measured_ms, errors, strict=True)],
        options.command_line,
        f"{label(options)}. {_timings_in_short(predicted)}{_in_short(errors)}",
        _in_short(errors).strip(),
        figures={"all": partial(_draw, predicted)},
    )


def studies(options: argparse.Namespace, progress: ProgressDisplay) -> list[MeasuredGraph]:
    """Returns the studies of the chosen graphs.

    Raises:
      UserError: an unknown graph, a negative seed, fewer than one thread, or more than one process.
    """
    require_one_process(options)
    names, costs, rules = chosen_graphs(options, quick=QUICK), costs_of(options), RuleSet.default()
    seed = chosen_seed(options)
    return [MeasuredGraph(name, rules, costs, options.scale, seed, progress) for name in names]


def costs_of(options: argparse.Namespace) -> Measured:
    """Returns the cost model that is evaluated.

    Raises:
      UserError: fewer than one thread.
    """
    return Measured(options.device, threads=chosen_threads(options), predict=False)


def timings_of(options: argparse.Namespace) -> int:
    """Returns the smallest number of timings of each kernel.

    Raises:
      UserError: the number is below 1.
    """
    timings: int = TIMINGS[options.scale] if options.timings is None else options.timings
    require_at_least(1, timings=timings)
    return timings


def label(options: argparse.Namespace) -> str:
    """Returns the runtime that measures, with its version and settings, as text."""
    return costs_of(options).runtime.label


def _looks(found: Sequence[MeasuredGraph], times: int, progress: ProgressDisplay) -> list[float]:
    """Measures the zoo's graphs `times` times each, in turn, and returns the geometric mean for each in ms."""
    looks = [(number, study) for number in range(times) for study in found]
    logarithms: dict[str, list[float]] = defaultdict(list)
    with progress.stage("measure the zoo's graphs", len(looks)) as bar:
        for done, (number, study) in enumerate(looks, 1):
            logarithms[study.name].append(math.log(study.look(number)))
            bar.update(done)
    return [math.exp(np.mean(each)) for each in logarithms.values()]


def _errors(records: Sequence[Record], measured_ms: Sequence[float]) -> Sequence[float | None]:
    """Returns the errors in percent; None for a single graph, because there is no other to fit a factor on."""
    if len(records) < 2:
        return [None]
    summed = [record["summed_ms"] for record in records]
    scaled = np.array(summed) * left_out_scales(summed, measured_ms)
    errors: list[float] = (100 * (scaled / np.array(measured_ms) - 1)).tolist()
    return errors


def _timings_in_short(predicted: Sequence[Record]) -> str:
    timings = [each for record in predicted for each in record["timings"]]
    return f"Prices are means of {min(timings)} to {max(timings)} timings, {np.mean(timings):.1f} in the mean."


def _in_short(errors: Sequence[float | None]) -> str:
    size = np.abs([error for error in errors if error is not None])
    if not len(size):
        return ""
    return f" Absolute error {size.mean():.1f} % in the mean, {size.max():.1f} % at most."


def _row(record: Record, measured_ms: float, error: float | None) -> Record:
    points = record["points"]
    measured, fast, full = (np.array([point[key] for point in points]) for key in ("measured", "fast", "full"))
    (fast_right, differ), (full_right, _) = (signs_right(side, measured, BEYOND) for side in (fast, full))
    return {
        "graph": record["graph"],
        "measured_ms": measured_ms,
        "summed_ms": record["summed_ms"],
        "error": UNDEFINED if error is None else error,
        "graphs": len(points),
        "noise": 100 * float(np.median([point["half_width"] for point in points])),
        "spread": 100 * float(np.std(measured)),
        "limit": attainable(measured, [point["half_width"] for point in points]),
        "fast": spearman(fast, measured),
        "full": spearman(full, measured),
        "differ": differ,
        "fast_signs": 100 * fast_right / differ if differ else UNDEFINED,
        "full_signs": 100 * full_right / differ if differ else UNDEFINED,
    }


def signs_right(predicted: Numbers, measured: Numbers, beyond: float) -> tuple[int, int]:
    """Counts the measured ratios that differ from 1 by more than `beyond`.

    Returns:
      How many of them are on the predicted side of 1, and how many there are. A prediction of exactly 1 is on neither
      side.
    """
    sides, found = np.sign(np.asarray(predicted) - 1), np.asarray(measured) - 1
    counts = np.abs(found) > beyond
    return int(np.sum(sides[counts] == np.sign(found[counts]))), int(counts.sum())


def attainable(measured: Numbers, half_widths: Numbers) -> float:
    """Returns the linear correlation of measured values with the true ones: what perfect predictions would reach.

    It is the root of the reliability, the fraction of the variance of `measured` that does not come from its errors.

    Args:
      half_widths: half the width of the 95 % interval of each value, as a fraction of the value.
    Source: Spearman 1904.
    """
    values = np.asarray(measured, np.float64)
    variance = float(values.var())
    errors = float(np.mean((values * np.asarray(half_widths) / NORMAL_HALF_WIDTH) ** 2))
    return math.sqrt(max(1 - errors / variance, 0.0)) if variance else 0.0


def left_out_scales(predicted: Numbers, measured: Numbers) -> npt.NDArray[np.float64]:
    """Returns a factor for each prediction [n]: the geometric mean of measured over predicted of all others."""
    logarithms = np.log(np.asarray(measured) / np.asarray(predicted))
    others = (logarithms.sum() - logarithms) / max(len(logarithms) - 1, 1)
    scales: npt.NDArray[np.float64] = np.exp(others)
    return scales


def _agreement(points: Sequence[Record]) -> Agreement:
    measured, half_widths, full = ([point[key] for point in points] for key in ("measured", "half_width", "full"))
    return measured, half_widths, full


def _draw(records: Sequence[Record], path: Path) -> None:
    from experiments.reports.plots import plot_agreement

    panels = {}
    for record in records:
        by_rule = of_rules(record)
        kinds = {"random": [each for each in record["points"] if each not in by_rule], "one rule": by_rule}
        panels[record["graph"]] = {kind: _agreement(points) for kind, points in kinds.items()}
    plot_agreement(path, "Run time as a ratio to the start graph's: measured, and predicted by kernel prices", panels)


RULE_COLUMNS = {
    "graph": "cleaned in full",
    "rule": "applied until it applies no longer; `early`: in the first part of the graph only",
    "steps": "how often",
    "measured": "time over that of the start graph, below 1 is faster",
    "±": "half of its 95 % interval",
    "fast": "the same, predicted by the fast model",
    "full": "by the full model",
    "sign": f"whether the fast model has it on the right side of 1; only where it differs by over {BEYOND:.0%}",
}
RULE_FORMATS = dict.fromkeys(("measured", "±", "fast", "full"), ".3f")


def reproduce_rules(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Makes a row for each graph and rule, the slowest of a graph last; finished graphs are not measured again."""
    with warnings_noted(progress):
        predicted = records(studies(options, progress), timings_of(options))
    rows = [
        _rule_row(record["graph"], point)
        for record in predicted
        for point in sorted(of_rules(record), key=lambda point: float(point["measured"]))
    ]
    return Table(
        f"What rules do to graphs on {options.device}: predicted, and measured",
        RULE_COLUMNS,
        RULE_FORMATS,
        rows,
        options.command_line,
        f"{label(options)}.",
    )


def _rule_row(graph: str, point: Record) -> Record:
    right, counts = signs_right([point["fast"]], [point["measured"]], BEYOND)
    return {
        "graph": graph,
        "rule": point["how"],
        "steps": point["steps"],
        "measured": point["measured"],
        "±": point["half_width"] * point["measured"],
        "fast": point["fast"],
        "full": point["full"],
        "sign": ("right" if right else "wrong") if counts else "",
    }


RULES = Experiment(
    "What each rule does to each zoo graph where it is applied wherever it applies: predicted and measured.\n\n"
    "rlflow reproduce discrepancy-rules\n\n"
    "These graphs are among those of `rlflow reproduce discrepancy`, whose units are read if they are there. Which\n"
    "classical substitutions pay on a device, and which do not, can be read off here. Without those units, a graph\n"
    "takes about an hour.",
    add_options,
    reproduce_rules,
)
