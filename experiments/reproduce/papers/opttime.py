"""Optimisation time (RLFlow, Figure 8), with learning and without, from the runs of `rlflow reproduce controllers`.

rlflow reproduce fig-opttime

The papers' time of RLFlow is that of a trained agent alone. A user who has a new graph waits for the training too, so
that both are shown: the time of everything from the model to its result, and that of the real episodes at its end.
Runs that are finished are read; others are done first, and take up to 45 minutes each, those of the papers' agent 10.
Times are of the machine that has done a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from experiments.executors.units import Record
from experiments.reproduce.options import chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.papers.cleaning import BASIC, with_basic
from experiments.reproduce.papers.players import add_runs, named_players, presets_of
from experiments.reproduce.papers.printed import OPTIMISATION_SECONDS
from experiments.reproduce.search.controllers import GRAPHS, QUICK
from experiments.reproduce.search.plays import ON_PAPER, Player, playing_of, units_of
from experiments.reproduce.table import OVER_SEEDS, UNDEFINED, Table, of_seeds
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

SEEDS = "0,1,2,3,4"
DREAMED = ("ppo exact", "ppo dream")
"""Our rows that learn in dreams."""
ROWS = ("taso", "paper dream", *DREAMED, "mcts")
PRINTED = {"taso": 0, "paper dream": 1}
"""The rows that the papers print, with their places in `OPTIMISATION_SECONDS`."""
COLUMNS = {
    "graph": "cleaned in full",
    "row": "the controller, and the world that it learns in",
    "seeds": "runs",
    "gain": "improvement, mean of the seeds [%]",
    **BASIC,
    "seconds": "from the model to the result, learning included, mean [s]",
    **OVER_SEEDS,
    "playing": "of these, for the real episodes at the end, as many of random play included",
    "printed": "the papers': of TASO's search, and of RLFlow's trained agent [s]",
}

FORMATS = dict.fromkeys(("gain", "basic"), ".2f") | dict.fromkeys(("seconds", "low", "high", "IQM", "playing"), ".1f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this figure has."""
    add_runs(parser, GRAPHS, SEEDS, ROWS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Reads the runs, and does those that are not finished."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    players = named_players(ROWS, options)
    rows = times(players, names, seeds, options, progress)
    return Table(
        "Optimisation time",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. {presets_of(players)} Printed: Figure 8 of RLFlow.",
        finding(rows),
    )


def times(
    players: Mapping[str, Player],
    graphs: Sequence[str],
    seeds: Sequence[int],
    options: argparse.Namespace,
    progress: ProgressDisplay,
) -> list[Record]:
    """Returns the rows of players, by their names, on graphs."""
    return with_basic(rows_of(run_units(units_of(graphs, players, seeds, options.scale), options, progress)))


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each controller on each graph."""
    for graph, controller in dict.fromkeys((record["graph"], record["controller"]) for record in records):
        same = [record for record in records if (record["graph"], record["controller"]) == (graph, controller)]
        printed = OPTIMISATION_SECONDS.get(graph)
        yield {
            "graph": graph,
            "row": controller,
            "seeds": len(same),
            "gain": sum(record["own"] for record in same) / len(same),
            **of_seeds("seconds", [60 * record["minutes"] for record in same], least=0.0),
            "playing": playing_of(same),
            "printed": UNDEFINED if printed is None or controller not in PRINTED else printed[PRINTED[controller]],
        }


def finding(rows: Sequence[Record]) -> str:
    """Returns on how many graphs learning and playing together take longer than TASO's search, a sentence for a row."""
    searched = {row["graph"]: row["seconds"] for row in rows if row["row"] == "taso"}
    said = []
    for name in DREAMED:
        dreamed = [row for row in rows if row["row"] == name and row["graph"] in searched]
        slower = sum(row["seconds"] > searched[row["graph"]] for row in dreamed)
        if dreamed:
            said.append(
                f"With its learning, `{name}` takes longer than TASO's search on {slower} of {len(dreamed)} graphs."
            )
    return " ".join(said) or "No row that learns in a dream of ours stands beside TASO's search."
