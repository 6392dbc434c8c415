"""How much the result of `rlflow optimise` varies between runs, also beside a busy neighbour.

rlflow reproduce repeats
rlflow reproduce repeats --busy

The same graph is optimised with several seeds and the defaults; a run takes up to ten minutes, and the last measurement
of its result decides nothing.
With `--busy`, processes that compute and move memory keep all cores but one busy during the search and the
measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from environment.statistics.intervals import mean_of_seeds
from experiments.executors.units import Record
from experiments.reproduce.options import add_device, add_graphs, add_seeds, chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.search.default_runs import RESULT_COLUMNS, DefaultRun, ratio_of
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay

GRAPH, SEEDS = "minilm-l6", "0,1,2,3,4"
COLUMNS = {
    "graph": "as the zoo builds it",
    "seed": "of the inputs, and of the order of samples",
    **RESULT_COLUMNS,
}
FORMATS = {"minutes": ".1f"} | dict.fromkeys(("ratio", "low", "high", "control"), ".3f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, GRAPH)
    add_device(parser)
    add_seeds(parser, SEEDS)
    parser.add_argument("--busy", action="store_true", help="keep all cores but one busy meanwhile")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each graph with each seed; finished runs are not done again."""
    names = chosen_graphs(options, [GRAPH])
    seeds = chosen_seeds(options, SEEDS)
    runs = [DefaultRun(name, options.scale, options.device, seed, options.busy) for name in names for seed in seeds]
    rows = run_units([run.unit for run in runs], options, progress, measures=True)
    return Table(
        f"How much results vary on {options.device}{', beside busy neighbours' * options.busy}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{runs[0].config.search.seconds:g} s of search. {spread(rows)}",
        spread(rows),
    )


def spread(rows: Sequence[Record]) -> str:
    """Returns the mean ratio and the range of each graph, a sentence for each."""
    sentences = []
    for name in dict.fromkeys(row["graph"] for row in rows):
        ratios = [ratio_of(row) for row in rows if row["graph"] == name]
        sentences.append(
            f"{name}: mean ratio {mean_of_seeds(ratios)} over {len(ratios)} seeds, from {min(ratios):.3f} to "
            f"{max(ratios):.3f}."
        )
    return " ".join(sentences)
