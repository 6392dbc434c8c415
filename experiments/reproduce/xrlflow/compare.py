"""What candidate graphs and attention buy: X-RLflow with both heads beside the other controllers that learn.

rlflow reproduce xrlflow-compare
rlflow reproduce xrlflow-compare squeezenet1.1 --rows "xrlflow,ppo pointer" --seeds 0

The pointer of PPO scores rewrites from the embeddings of the nodes that they replace, in the present graph only. Rows
that learn in the real environment are also compared at equal time, that of the shorter training of `xrlflow` and `ppo
pointer`, if one processor ran them. A run takes up to 40 minutes; those of `rlflow reproduce controllers` are shared.
Each row has the settings that suit it, and all but X-RLflow and PPO's pointers can also carry a rule out everywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.executors.provenance import KEY
from experiments.executors.units import Record
from experiments.pipeline.learning.rounds import STAGE as TRAINING
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.papers.convergence import gain_within
from experiments.reproduce.search.plays import ON_PAPER, units_of
from experiments.reproduce.table import OVER_SEEDS, UNDEFINED, WHOLE, Table, mean_of, of_seeds
from experiments.reproduce.xrlflow.rows import GRAPHS, PLAYERS, QUICK, SEEDS
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

COLUMNS = {
    "graph": "cleaned in full",
    "row": "the controller, and the world that it learns in",
    "seeds": "runs",
    "gain": "improvement of the best of its own episodes, mean of the seeds [%]",
    **OVER_SEEDS,
    "minutes": "for everything, mean",
    "real_steps": "steps of the exact engine, mean",
    "equal": "improvement of the best episode of training in the time of the shorter training of `xrlflow` and `ppo "
    "pointer` with the same seed, mean [%]; –: not all of these ran on one processor",
}
PAIR = ("xrlflow", "ppo pointer")
"""The rows that are compared."""
FORMATS = {**dict.fromkeys(("gain", "low", "high", "IQM", "equal"), ".2f"), "minutes": ".1f", "real_steps": ",.0f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_seeds(parser, SEEDS)
    parser.add_argument("--rows", metavar="A,B,…", help=f"rows of the table (all: {', '.join(PLAYERS)})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays each row on each graph; finished runs are not done again."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    chosen = named(options.rows, PLAYERS, "row")
    rows = list(rows_of(run_units(units_of(names, chosen, seeds, options.scale), options, progress)))
    return Table(
        "What candidate graphs and attention buy",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules.",
        finding(rows),
    )


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each controller on each graph."""
    for graph in dict.fromkeys(record["graph"] for record in records):
        here = [record for record in records if record["graph"] == graph]
        within = equal_times(here)
        for row in dict.fromkeys(record["controller"] for record in here):
            same = [record for record in here if record["controller"] == row]
            found = [_gain_at(record, within.get(record["seed"])) for record in same]
            equal = [gain for gain in found if gain is not None]
            yield {
                "graph": graph,
                "row": row,
                "seeds": len(same),
                **of_seeds("gain", [float(record["own"]) for record in same], least=0.0, largest=WHOLE),
                "minutes": mean_of(same, "minutes"),
                "real_steps": mean_of(same, "real_steps"),
                "equal": sum(equal) / len(equal) if len(equal) == len(same) else UNDEFINED,
            }


class Span(NamedTuple):
    """The time that rows are compared at.

    Attributes:
      seconds: of training.
      processor: the one that both trainings ran on.
    """

    seconds: float
    processor: str


def equal_times(records: Sequence[Record]) -> dict[int, Span]:
    """Returns by seed the time of the shorter training of `xrlflow` and `ppo pointer` on a graph."""
    spans: dict[int, list[Span]] = {}
    for record in records:
        if record["controller"] in PAIR:
            span = Span(record["stages"][TRAINING], _processor(record))
            spans.setdefault(record["seed"], []).append(span)
    pairs = {seed: both for seed, both in spans.items() if len(both) == len(PAIR)}
    return {seed: min(both) for seed, both in pairs.items() if len({span.processor for span in both}) == 1}


def _gain_at(record: Record, span: Span | None) -> float | None:
    if span is None or record["world"] != "real" or _processor(record) != span.processor:
        return None
    return gain_within(record, span.seconds)


def _processor(record: Record) -> str:
    """Returns the processor of a run; of runs before it was recorded, an empty text."""
    return str(record.get(KEY, {}).get("processor", ""))


def finding(rows: Sequence[Record]) -> str:
    """Returns on how many graphs X-RLflow gains more than the pointer of PPO, in all its time and at equal time."""
    by_row = {(row["graph"], row["row"]): row for row in rows}
    said = []
    for key, text in (("gain", "at its end"), ("equal", "at equal time")):
        pairs = [
            (row[key], by_row[graph, PAIR[1]][key])
            for (graph, name), row in by_row.items()
            if name == PAIR[0] and (graph, PAIR[1]) in by_row
        ]
        known = [(float(one), float(other)) for one, other in pairs if UNDEFINED not in (one, other)]
        more = sum(one > other for one, other in known)
        said.append(f"on {more} of {len(known)} graphs {text}")
    return f"X-RLflow gains more than PPO's pointer {' and '.join(said)}."
