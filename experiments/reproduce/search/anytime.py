"""What a search by the clock has gained after so many seconds, as a picture too.

rlflow reproduce anytime
rlflow reproduce anytime squeezenet1.1 --seeds 0,1,2

Each unit is one run of `rlflow optimise` with its defaults, whose journal says when it has moved to which graph. The
gains of the curve are products of ratios that the search has measured; the last column is measured anew. A run takes up
to ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.executors.units import Record
from experiments.reproduce.options import add_device, add_graphs, add_seeds, chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.search.default_runs import DefaultRun
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay

GRAPHS = ("minilm-l6", "bert-base", "resnet18", "nasrnn")
SEEDS = "0"
MOMENTS_S = (10, 20, 30, 60, 120, 300)
NEAR = 1.02
"""Factor over the least ratio of all seeds by which a run has come near the best known graph."""
MOST_TIMED = 64
"""Number of whole graphs that a search may time until it has come near the best known one."""

COLUMNS = {
    "graph": "as the zoo builds it",
    "seed": "of the inputs, and of the order of samples",
    **{f"{moment} s": f"gain after {moment} s of search [% of the model's time]" for moment in MOMENTS_S},
    "gain": "at the end of the search [%]",
    "near_s": f"seconds until the gain was within {NEAR - 1:.0%} of the best of all seeds",
    "near_timed": "whole graphs that were timed until then",
    "timed": "whole graphs that were timed in all",
    "ratio": "time of the result over the model's, measured anew; no figure where the result is the model",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
}
FORMATS = {
    **{f"{moment} s": ".1f" for moment in MOMENTS_S},
    "gain": ".1f",
    "near_s": ".0f",
    "ratio": ".3f",
    "low": ".3f",
    "high": ".3f",
}
Curve = Sequence[tuple[float, int, float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_device(parser)
    add_seeds(parser, SEEDS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each graph with each seed; finished runs are not done again."""
    names = chosen_graphs(options, GRAPHS)
    seeds = chosen_seeds(options, SEEDS)
    runs = [DefaultRun(name, options.scale, options.device, seed) for name in names for seed in seeds]
    records = run_units([run.unit for run in runs], options, progress, measures=True)
    rows = list(rows_of(records))
    return Table(
        f"What a search by the clock has gained after so many seconds on {options.device}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{runs[0].config.search.seconds:g} s of search. The gains are products of the ratios of all moves.",
        finding(rows),
        figures={name: partial(_draw, name, [each for each in records if each["graph"] == name]) for name in names},
    )


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each run."""
    for record in records:
        same = [other["curve"] for other in records if other["graph"] == record["graph"]]
        near = reached(record["curve"], NEAR * min(map(last_ratio, same)))
        gains = {f"{moment} s": 100 * (1 - ratio_at(record["curve"], moment)) for moment in MOMENTS_S}
        near_s, near_timed = near or (UNDEFINED, UNDEFINED)
        gain = 100 * (1 - last_ratio(record["curve"]))
        yield {**record, **gains, "gain": gain, "near_s": near_s, "near_timed": near_timed}


def ratio_at(curve: Curve, seconds: float) -> float:
    """Returns the ratio to the start after some seconds."""
    return next((ratio for at, _, ratio in reversed(curve) if at <= seconds), 1.0)


def last_ratio(curve: Curve) -> float:
    """Returns the ratio to the start at the end."""
    return curve[-1][2] if curve else 1.0


def reached(curve: Curve, ratio: float) -> tuple[float, int] | None:
    """Returns after how many seconds and timed graphs a ratio was reached; None if it never was."""
    if ratio >= 1:
        return 0.0, 0
    return next(((at, timed) for at, timed, found in curve if found <= ratio), None)


def finding(rows: Sequence[Record]) -> str:
    """Returns how many whole graphs were timed to come near the best known ones, in a sentence."""
    late = [f"{row['graph']} seed {row['seed']}" for row in rows if not _is_soon(row)]
    return (
        f"Within {NEAR - 1:.0%} of the best known graph of all seeds after at most {MOST_TIMED} timed graphs: "
        f"{len(rows) - len(late)} of {len(rows)} runs{f', but not {chr(44).join(late)}' if late else ''}."
    )


def _is_soon(row: Record) -> bool:
    return row["near_timed"] != UNDEFINED and row["near_timed"] <= MOST_TIMED


def _draw(name: str, records: Sequence[Record], path: Path) -> None:
    from experiments.reports.plots import plot_steps

    lines = {}
    for each in records:
        moves = [(at, 100 * (1 - ratio)) for at, _, ratio in each["curve"]]
        end = max([MOMENTS_S[-1], *(at for at, _ in moves)])
        lines[f"seed {each['seed']}"] = [(0.0, 0.0), *moves, (end, 100 * (1 - last_ratio(each["curve"])))]
    plot_steps(path, f"{name}: gain against seconds of search", lines, "seconds", "% of the model's time")
