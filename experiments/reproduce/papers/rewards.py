"""The reward functions of the papers, and a sweep of the weights of time and memory (RLFlow, Figure 6).

rlflow reproduce fig-rewards
rlflow reproduce fig-rewards bert-base --rows "paper dream" --seeds 0,1

With RT and M, run time and memory traffic in percent of the start graph's, a step earns

    R1  0.8 (RT before - RT after) + 0.2 (M before - M after)
    R2  - RT after
    R3  like R1 with the weights 0.1 and 0.9
    R4  like R1 with the weights 0.5 and 0.5
    R5  RT before - RT after

The sweep has R1 with the weights α = 0, 0.1, … 1 and β = 1 - α; at α = 1 it is R5. Beside them stands the reward of our
presets, 100 ln(RT before / RT after). Each is learned in the dream, by the papers' agent and by ours. A unit of the
papers' agent takes three minutes on SqueezeNet1.1, one of ours five; there are 13 of each on a graph for every seed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from environment import rewards
from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.papers.cleaning import BASIC, with_basic
from experiments.reproduce.papers.curves import averaged
from experiments.reproduce.papers.players import DREAMED, add_long, add_rows, named_players, presets_of
from experiments.reproduce.papers.printed import REWARDS as PRINTED
from experiments.reproduce.search.controllers import QUICK
from experiments.reproduce.search.plays import ON_PAPER, Player, units_of
from experiments.reproduce.table import OVER_SEEDS, UNDEFINED, WHOLE, Table, mean_of, of_seeds, spanned
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

GRAPHS = ("squeezenet1.1", "bert-base")
SEEDS = "0,1,2,3,4"
OURS = "log_ratio"
FUNCTIONS: Mapping[str, str] = {
    "R1": "combined:alpha=0.8,beta=0.2",
    "R2": "new_runtime",
    "R3": "combined:alpha=0.1,beta=0.9",
    "R4": "combined:alpha=0.5,beta=0.5",
    "R5": "incremental",
}
"""The papers' five."""
WEIGHTS: Mapping[float, str] = {
    **{step / 10: f"combined:alpha={step / 10:g},beta={1 - step / 10:.1g}" for step in range(10)},
    1.0: FUNCTIONS["R5"],
}
"""The rewards of the sweep by α."""
FEW = (OURS, FUNCTIONS["R1"], FUNCTIONS["R2"], FUNCTIONS["R4"])
"""The rewards at the scale `smoke`."""
COLUMNS = {
    "graph": "cleaned in full",
    "row": "the agent",
    "reward": "what it is paid, as for `environment.reward`",
    "name": "in the papers",
    "alpha": "weight of the run time",
    "seeds": "runs",
    "gain": "improvement of run time of the best of its own episodes, mean of the seeds [%]",
    **OVER_SEEDS,
    **BASIC,
    "end": "improvement at the end of the episodes that it samples, mean of both [%]",
    "first": "return of its first update in the dream, in the unit of the reward, mean",
    "last": "of the last update",
    "printed": "the papers', of one graph after 500 epochs [%]",
}
FORMATS = {
    **dict.fromkeys(("gain", "low", "high", "IQM", "basic", "end"), ".2f"),
    **dict.fromkeys(("first", "last"), ".4g"),
    "alpha": ".1f",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this figure has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_seeds(parser, SEEDS)
    add_rows(parser, DREAMED)
    parser.add_argument("--rewards", metavar="A;B;…", help=f"rewards (all: {'; '.join(_all())})")
    add_long(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains each agent with each reward; finished units are not done again."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    rows = named_players(DREAMED, options)
    wanted = named(options.rewards, dict.fromkeys(_all()), "reward", separator=";")
    if options.scale == "smoke" and options.rewards is None:  # a quick look
        wanted = dict.fromkeys(FEW)
    paid = {paid_name(row, reward): paid_with(rows[row], reward) for row in rows for reward in wanted}
    records = run_units(units_of(names, paid, seeds, options.scale), options, progress)
    table = with_basic(rows_of(records, list(rows), list(wanted)))
    figures = {}
    for name in names:
        if any(reward in FUNCTIONS.values() for reward in wanted):
            figures[f"{name}-training"] = partial(draw_training, name, _of(records, name), list(rows))
        if sum(reward in WEIGHTS.values() for reward in wanted) > 1:
            figures[f"{name}-weights"] = partial(draw_weights, name, [row for row in table if row["graph"] == name])
    return Table(
        "Rewards of the papers, learned in the dream",
        COLUMNS,
        FORMATS,
        table,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. {presets_of(rows)} Printed: Figure 6 of RLFlow.",
        finding(table),
        figures,
    )


def _all() -> list[str]:
    """Returns all rewards, each once."""
    return list(dict.fromkeys((OURS, *FUNCTIONS.values(), *WEIGHTS.values())))


def paid_name(row: str, reward: str) -> str:
    """Returns the name of the units of an agent with a reward: that of `controllers` if it is the presets' own."""
    return row if reward == OURS else f"{row}, {reward.translate(str.maketrans(':=', '-' * 2))}"


def paid_with(player: Player, reward: str) -> Player:
    """Returns a player that learns with another reward.

    A dream whose rewards are differences of predicted costs can pay only what is such a difference in reality.
    """
    if reward == OURS:
        return player
    plain = () if rewards.find(reward).telescopes else ("dream.telescoping=false", "recollect.searched=0")
    return dataclasses.replace(player, settings=(*player.settings, f"environment.reward={reward}", *plain))


def _of(records: Sequence[Record], graph: str) -> list[Record]:
    return [record for record in records if record["graph"] == graph]


def rows_of(records: Sequence[Record], agents: Sequence[str], wanted: Sequence[str]) -> Iterator[Record]:
    """Yields a row for each reward of each agent on each graph."""
    names = {reward: name for name, reward in FUNCTIONS.items()}
    alphas = {reward: alpha for alpha, reward in WEIGHTS.items()}
    for graph in dict.fromkeys(record["graph"] for record in records):
        for row in agents:
            for reward in wanted:
                same = [each for each in _of(records, graph) if each["controller"] == paid_name(row, reward)]
                own = [float(record["own"]) for record in same]
                returns = [record["curves"].get("controller", {}).get("return", []) for record in same]
                ends = [(each[0], each[-1]) for each in returns if each]
                name = names.get(reward, UNDEFINED)
                yield {
                    "graph": graph,
                    "row": row,
                    "reward": reward,
                    "name": name,
                    "alpha": alphas.get(reward, UNDEFINED),
                    "seeds": len(same),
                    **of_seeds("gain", own, least=0.0, largest=WHOLE),
                    "end": mean_of([{"end": record.get("sampled")} for record in same], "end"),
                    "first": float(np.mean([first for first, _ in ends])) if ends else UNDEFINED,
                    "last": float(np.mean([last for _, last in ends])) if ends else UNDEFINED,
                    "printed": "{} ± {}".format(*PRINTED[name]) if name in PRINTED else UNDEFINED,
                }


def finding(rows: Sequence[Record]) -> str:
    """Returns the best and the worst reward of each agent on each graph, in a sentence each."""
    said = []
    for graph, agent in dict.fromkeys((row["graph"], row["row"]) for row in rows):
        same = sorted(
            (row for row in rows if (row["graph"], row["row"]) == (graph, agent)), key=lambda row: -float(row["gain"])
        )
        best, worst = same[0], same[-1]
        gains = spanned([float(row["gain"]) for row in same])
        if " to " not in gains:
            said.append(f"{graph}, {agent}: with each of the {len(same)} rewards, {gains} % is gained.")
            continue
        apart = "one seed has no interval"
        if isinstance(best["low"], float):
            are = "are" if best["low"] > worst["high"] else "are not shown to be"
            apart = f"their intervals {are} apart"
        said.append(
            f"{graph}, {agent}: {best['reward']} gains most ({spanned([best['gain']])} %) and {worst['reward']} least "
            f"({spanned([worst['gain']])} %); {apart}."
        )
    return " ".join(said)


def draw_training(graph: str, records: Sequence[Record], agents: Sequence[str], path: Path) -> None:
    """Draws the returns of training, a panel for each reward of the papers, with a line for each agent."""
    from experiments.reports.plots import Band, plot_bands

    panels: dict[str, dict[str, Band]] = {}
    for name, reward in FUNCTIONS.items():
        for row in agents:
            runs = [each["curves"] for each in records if each["controller"] == paid_name(row, reward)]
            points = list(averaged([run["controller"] for run in runs if "controller" in run], "return"))
            if points:
                panels.setdefault(f"{name}: {reward}", {})[row] = Band.of_rows(points, x="step", y="mean")
    plot_bands(
        path, f"{graph}: return in the dream, in the unit of the reward", panels, {}, "updates", logarithmic=False
    )


def draw_weights(graph: str, rows: Sequence[Record], path: Path) -> None:
    """Draws the improvement by α, with a line for each agent."""
    from experiments.reports.plots import Band, plot_bands

    lines = {}
    for agent in dict.fromkeys(row["row"] for row in rows):
        swept = sorted(
            (row for row in rows if row["row"] == agent and row["alpha"] != UNDEFINED), key=lambda row: row["alpha"]
        )
        lines[agent] = Band.of_rows(swept, x="alpha", y="gain")
    title = f"{graph}: weights α of run time and 1 - α of memory"
    plot_bands(path, title, {"improvement of run time [%]": lines}, {}, "α", logarithmic=False)
