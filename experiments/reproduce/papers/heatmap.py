"""Rules applied on each graph (RLFlow, Figure 11), from the runs of `rlflow reproduce controllers`.

rlflow reproduce fig-heatmap
rlflow reproduce fig-heatmap bert-base vit-base --row "paper dream" --seeds 0

Counted are the rewrites that lead to the best graph of a run, a rule that is carried out everywhere as often as it is.
Runs that `controllers` has finished are read; others are done first, which takes up to 45 minutes each.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.errors import UserError, nearest_match
from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.papers.players import PUBLISHED, add_long, chosen_players, presets_of
from experiments.reproduce.search.controllers import GRAPHS, PLAYERS, QUICK
from experiments.reproduce.search.plays import ON_PAPER, units_of
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

SEEDS = "0,1,2,3,4"
ROW = "ppo dream"
COLUMNS = {
    "rule": "of the shipped ones",
    "graph": "cleaned in full",
    "seeds": "runs",
    "applied": "rewrites by this rule on the way to the best graph, mean of the seeds",
    "runs": "share of the seeds that apply it at all [%]",
}


def add_options(
    parser: argparse.ArgumentParser, graphs: Sequence[str] = GRAPHS, seeds: str = SEEDS, row: str = ROW
) -> None:
    """Adds the options that only this figure has, with their defaults."""
    add_graphs(parser, ", ".join(graphs))
    add_seeds(parser, seeds)
    published = " or ".join(f"'{each}'" for each in PUBLISHED)
    parser.add_argument("--row", metavar="ROW", default=row, help=f"row of `controllers`, or {published} ({row})")
    add_long(parser)


def reproduce(
    options: argparse.Namespace, progress: ProgressDisplay, graphs: Sequence[str] = GRAPHS, of_seeds: str = SEEDS
) -> Table:
    """Reads the runs, and does those that are not finished; the last arguments are the default graphs and seeds."""
    names, seeds = chosen_graphs(options, graphs, QUICK), chosen_seeds(options, of_seeds)
    known = list({**PLAYERS, **PUBLISHED})
    if options.row not in known:
        raise UserError(f"No row is called '{options.row}'. {nearest_match(options.row, known)}")
    player = chosen_players([options.row], options)
    records = run_units(units_of(names, player, seeds, options.scale), options, progress)
    rows = rows_of(records)
    return Table(
        f"Rules applied on each graph by {options.row}",
        COLUMNS,
        {"applied": ".2f", "runs": ".0f"},
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. {presets_of(player)}".rstrip(),
        finding(rows),
        {"rules": partial(draw, rows)} if rows else {},
    )


def rows_of(records: Sequence[Record]) -> list[Record]:
    """Returns a row for each rule that is applied on each graph, the rules that are applied most first."""
    found = []
    for graph in dict.fromkeys(record["graph"] for record in records):
        counts: list[Mapping[str, int]] = [record["rules"] for record in records if record["graph"] == graph]
        for rule in sorted({rule for each in counts for rule in each}):
            applied = [each.get(rule, 0) for each in counts]
            mean, share = float(np.mean(applied)), 100 * float(np.mean(np.array(applied) > 0))
            found.append({"rule": rule, "graph": graph, "seeds": len(counts), "applied": mean, "runs": share})
    totals: dict[str, float] = {}
    for row in found:
        totals[row["rule"]] = totals.get(row["rule"], 0.0) + row["applied"]
    return sorted(found, key=lambda row: (-totals[row["rule"]], row["rule"], row["graph"]))


def finding(rows: Sequence[Record]) -> str:
    """Returns how many rules are used, and on how many graphs each, in a sentence."""
    if not rows:
        return "No run applies any rule."
    rules = dict.fromkeys(row["rule"] for row in rows)
    graphs = {rule: sum(row["rule"] == rule for row in rows) for rule in rules}
    shared = sum(number > 1 for number in graphs.values())
    return f"{len(rules)} rules lead to the best graphs, {shared} of them on more than one graph."


def draw(rows: Sequence[Record], path: Path) -> None:
    """Draws the mean numbers of rewrites as a heat map of rules and graphs."""
    from experiments.reports.plots import plot_heatmap

    rules, graphs = list(dict.fromkeys(row["rule"] for row in rows)), sorted({row["graph"] for row in rows})
    values = np.zeros((len(rules), len(graphs)))
    for row in rows:
        values[rules.index(row["rule"]), graphs.index(row["graph"])] = row["applied"]
    plot_heatmap(path, "rewrites on the way to the best graph, mean of the seeds", rules, graphs, values)
