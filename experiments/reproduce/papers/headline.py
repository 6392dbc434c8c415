"""What each controller gains, under the papers' prices and by the clock of this machine, and what it takes.

rlflow reproduce headline
rlflow reproduce headline squeezenet1.1 --rows greedy,taso,'ppo real','ppo dream' --seeds 0

On paper, the runs are those of `rlflow reproduce controllers`, under the roofline of an RTX 2070. By the clock, the
same controllers minimise the prices of kernels on this device (`--costs`), and their graphs are timed against the model
itself, all in one interleaved run of ONNX Runtime; `rlflow optimise`, our program with its defaults, has the clock
choose. The runs by the clock are those of `rlflow reproduce table2`, and their graphs are timed anew. A
run takes up to 45 minutes; under measured prices, one of the papers' model-free agent takes hours, and `--rows` can
leave it out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.executors.units import Record
from experiments.reproduce.options import chosen_graphs, chosen_seeds, require_one_process, run_units
from experiments.reproduce.papers import inference
from experiments.reproduce.papers.cleaning import against_basic
from experiments.reproduce.papers.inference import BY_CLOCK, ONNX_RUNTIME, Inferences, inferences, ratios_of, saved
from experiments.reproduce.papers.players import PLAYERS, add_rows, named_players, presets_of
from experiments.reproduce.search.controllers import GRAPHS, QUICK
from experiments.reproduce.search.plays import PRICES, units_of
from experiments.reproduce.table import UNDEFINED, Table, mean_of
from experiments.runs.progress import ProgressDisplay

COLUMNS = {
    "graph": "as the zoo builds it",
    "row": "the controller",
    "seeds": "seeds whose graph was timed; what draws nothing at random has one run for all of them",
    "paper": f"improvement on paper, {PRICES}, against the cleaned graph, mean of the seeds [%]",
    "basic": "the same against the graph as `--clean basic` leaves it [%]",
    "gap": "mean distance between what its dream promises on paper and reality [points]",
    "illegal": "rewrites of these dreams that are not legal in reality [%]",
    "priced": "improvement of the run by the clock by the prices that it minimises, mean [%]",
    "clock": "time that its graph of the other run saves by the clock, against the model itself, mean of the seeds [%]",
    "low": "95 % interval of this mean, lower end; of the measurement if there is one seed",
    "high": "upper end",
    "IQM": "mean of the middle half of the seeds",
    "real_steps": "steps of the exact engine in the run by the clock, mean",
    "dreamed_steps": "steps in dreams, mean",
    "evaluations": "graphs that were priced, mean",
    "kernels": "kernels that were timed, mean",
    "graphs": "whole graphs that were timed, mean",
    "minutes": f"for everything but the last measurement, mean; `{BY_CLOCK}` is counted in `never-slower`",
}
FORMATS = {
    **dict.fromkeys(("paper", "basic", "gap", "priced", "clock", "low", "high", "IQM"), ".2f"),
    **dict.fromkeys(("illegal", "minutes"), ".1f"),
    **dict.fromkeys(("real_steps", "dreamed_steps", "evaluations", "kernels", "graphs"), ",.0f"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    inference.add_options(parser)
    add_rows(parser, PLAYERS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays on paper and by the clock, and measures; what is finished is not done again.

    Raises:
      UserError: `--processes` is not 1, there is no such row, or something computes something else than its model.
    """
    require_one_process(options)
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, inference.SEEDS)
    players = named_players(PLAYERS, options)
    on_paper = run_units(units_of(names, players, seeds, options.scale), options, progress)
    found = inferences(options, progress, memory=False, reference=ONNX_RUNTIME, beside=(ONNX_RUNTIME, BY_CLOCK))
    rows = list(rows_of(on_paper, found))
    return Table(
        "What controllers gain, on paper and by the clock",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        "\n".join(f"- {line}" for line in found.about(presets_of(players))),
        finding(rows),
    )


def rows_of(on_paper: Sequence[Record], found: Inferences) -> Iterator[Record]:
    """Yields a row for each controller on each graph."""
    for graph, records in found.records.items():
        for row in found.labels:
            if row == ONNX_RUNTIME:  # the reference
                continue
            paper = _runs(on_paper, graph, row)
            clocked = _runs(found.plays, graph, row)
            ratios = [ratio for each in records if (ratio := ratios_of(each, ONNX_RUNTIME).get(row)) is not None]
            yield {
                "graph": graph,
                "row": row,
                "seeds": len(ratios),
                "paper": (gain := mean_of(paper, "own")),
                "basic": against_basic(graph, gain) if isinstance(gain, float) else UNDEFINED,
                **{key: mean_of(paper, key) for key in ("gap", "illegal")},
                "priced": mean_of(clocked, "own"),
                **(saved("clock", ratios) if ratios else dict.fromkeys(("clock", "low", "high", "IQM"), UNDEFINED)),
                **{key: mean_of(clocked, key) for key in ("real_steps", "dreamed_steps", "minutes")},
                "evaluations": mean_of(clocked, "cost_evaluations"),
                "kernels": mean_of(clocked, "kernel_timings"),
                "graphs": mean_of(clocked, "end_to_end_timings"),
            }


def _runs(records: Sequence[Record], graph: str, row: str) -> list[Record]:
    return [record for record in records if (record["graph"], record["controller"]) == (graph, row)]


def finding(rows: Sequence[Record]) -> str:
    """Returns for each graph which rows gain most on paper and by the clock, with those that cannot be told apart."""
    said = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        here = [row for row in rows if row["graph"] == graph]
        paper = [Gain(row["row"], *[row["paper"]] * 3) for row in here if isinstance(row["paper"], float)]
        clock = [Gain(row["row"], row["low"], row["clock"], row["high"]) for row in here if row["clock"] != UNDEFINED]
        said.append(f"{graph}: {_most(paper, 'on paper')}; {_most(clock, 'by the clock')}.")
    return " ".join(said)


class Gain(NamedTuple):
    """What a row gains, with the ends of its interval [%]; a gain on paper is all three."""

    row: str
    low: float
    mean: float
    high: float


def _most(gains: Sequence[Gain], where: str) -> str:
    """Returns the rows that gain most, and those whose interval reaches that of the first."""
    ranked = sorted(gains, key=lambda gain: -gain.mean)
    if not ranked or round(ranked[0].mean, 1) <= 0:
        return f"nothing gains {where}"
    first = ranked[0]
    if first.low <= 0:
        return f"nothing gains {where} beyond its interval"
    near = [gain for gain in ranked if round(gain.high, 1) >= round(first.low, 1)]
    equal = [f"`{gain.row}`" for gain in near if round(gain.mean, 1) == round(first.mean, 1)]
    others = [f"`{gain.row}`" for gain in near if round(gain.mean, 1) != round(first.mean, 1)]
    said = f"{', '.join(equal)} gain{'s' * (len(equal) == 1)} most {where}, {first.mean:.1f} %"
    return said + f" (within its interval: {', '.join(others)})" * bool(others)
