"""All that looks for faster graphs, on one engine: what each has found after 10, 60 and 600 seconds.

rlflow reproduce peers
rlflow reproduce peers squeezenet1.1 --rows "taso,saturation k1,ppo dream" --limits 10,60
rlflow reproduce peers bert-base --clock

A search has one run for each limit of time, which holds for it alone; it may end earlier. What learns has one run with
its usual schedule, of which the column of a limit shows what it had reached by then: the best episode that it had
played for real, or of what learns in dreams the end of its plans in reality, and 0 before there is either. To those who
have the trained policy, its gain at the end (`end`) takes the time of its evaluation alone (`play_s`). Prices are those
of the roofline of an RTX 2070. With `--clock`, the best graphs are timed on this machine in one interleaved run for
each graph, with the result of `rlflow optimise` by its defaults, which climbs by the clock. A search takes up to ten
minutes for each graph, what learns up to 45: all of it some 35 hours of one core. The rows of saturation need the
extra `saturation`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from controller.saturation.saturate import require_egglog
from environment.costs.prices.settings import processor
from environment.runtimes import OnnxRuntime
from experiments.baselines.tools import THREADS, Tool
from experiments.executors.local import Unit
from experiments.executors.units import Record
from experiments.reproduce.baselines.comparison import Comparison, estimate
from experiments.reproduce.baselines.table import EFFORTS
from experiments.reproduce.options import (
    add_device,
    add_graphs,
    add_seeds,
    chosen_graphs,
    chosen_seeds,
    named,
    require_one_process,
    run_units,
)
from experiments.reproduce.papers.convergence import FOR_REAL, gain_within, points_of, seconds_before
from experiments.reproduce.search.controllers import E_NODES, PEERS, PLAYERS, WORTH
from experiments.reproduce.search.never_slower import our_best
from experiments.reproduce.search.plays import ON_PAPER, RESULT, SECONDS, Play, Player
from experiments.reproduce.table import UNDEFINED, Table, mean_of
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import numbers_of
from taso_ext.onnx_io.checked_model import CheckedModel

GRAPHS = (
    *("squeezenet1.1", "resnet18", "resnext50", "inception-v3", "nasnet-a", "nasrnn", "bert-base"),
    *("generated-104", "generated-105"),
)
QUICK = ("squeezenet1.1-tiny",)
"""The graph that a quick look at the scale `smoke` is content with."""
SEEDS = "0"
LIMITS = {"smoke": "1,2", "full": "10,60,600"}
"""Limits of time [s], by scale."""
ROWS: Mapping[str, Player] = {
    **{row: PLAYERS[row] for row in ("greedy", "taso")},
    "taso partial": PEERS["taso partial"],
    **{row: PLAYERS[row] for row in ("beam", "restarts", "passes")},
    **{row: player for row, player in PEERS.items() if player.controller == "saturation"},
    **{row: PLAYERS[row] for row in ("ppo real", "xrlflow", "ppo exact", "ppo dream", "mcts")},
}
"""The rows by name; those that learn are rows of `controllers` and share its runs."""
MODEL, BY_CLOCK = "input", "rlflow optimise"

COLUMNS = {
    "graph": "cleaned in full",
    "row": "what looks for a faster graph",
    "learns": "the world in which it learns; - if it learns nothing",
    "seeds": "runs",
}
AFTER = {
    "end": "improvement at the end of the longest run, mean of the seeds [%]",
    "bound": "no graph of the e-graph of the longest run gains more, mean [%]",
    "seconds": "time of the longest run, learning included, mean [s]",
    "play_s": "time of playing what was learned, mean [s]; of searches the same as seconds",
    "evaluations": "graphs that were priced in the longest run, mean",
    "memory_mb": "peak of the process in the longest run, mean [MB]",
}
CLOCKED = {
    "ratio": "time of the best graph over the input's, by the clock; one measurement for rows with the same graph",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
}
FORMATS = {
    **dict.fromkeys(("end", "bound"), ".2f"),
    **dict.fromkeys(("seconds", "play_s"), ".1f"),
    "evaluations": ",.0f",
    "memory_mb": ",.0f",
    **dict.fromkeys(CLOCKED, ".3f"),
}


@dataclass(frozen=True)
class Peer:
    """One row on one graph with one seed.

    Attributes:
      plays: its runs by limit of time [s]; what learns has one run for all limits.
    """

    plays: Mapping[int, Play]

    @property
    def row(self) -> str:
        """The name of the row."""
        return self.longest.row

    @property
    def longest(self) -> Play:
        """The run with the largest limit of time."""
        return self.plays[max(self.plays)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_seeds(parser, SEEDS)
    parser.add_argument("--rows", metavar="A,B,…", help=f"rows of the table (all: {', '.join(ROWS)})")
    parser.add_argument(
        "--limits", metavar="A,B,…", help=f"limits of time [s] (smoke: {LIMITS['smoke']}, full: {LIMITS['full']})"
    )
    parser.add_argument("--clock", action="store_true", help="time the best graphs too, on an idle machine")
    add_device(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Runs each row on each graph with each limit and seed; finished units are not done again."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    players = named(options.rows, ROWS, "row")
    limits = sorted(numbers_of("--limits", options.limits or LIMITS[options.scale], least=1))
    if any(player.controller == "saturation" for player in players.values()):
        require_egglog()
    if options.clock:
        require_one_process(options)
    peers = [
        Peer(plays_of(name, row, player, options.scale, limits, seed))
        for seed in seeds
        for name in names
        for row, player in players.items()
        if player.drawn or seed == seeds[0]
    ]
    units = {play: play.unit for peer in peers for play in peer.plays.values()}
    records = dict(zip(units, run_units(list(units.values()), options, progress), strict=True))
    on_paper = list(rows_of(peers, records, limits))
    rows = _with_clock(on_paper, peers, records, names, options, progress) if options.clock else on_paper
    return Table(
        "What looks for faster graphs, on one engine",
        {**COLUMNS, **gain_columns(limits), **AFTER, **(CLOCKED if options.clock else {})},
        {**FORMATS, **dict.fromkeys(gain_columns(limits), ".2f")},
        rows,
        options.command_line,
        f"{ON_PAPER[0]}. Saturation: at most {E_NODES:,} e-nodes, half of the time for exploration.",
        finding(on_paper, limits),
        {f"after-{limit}-s": partial(_draw, on_paper, f"{limit} s") for limit in limits},
    )


def gain_columns(limits: Sequence[int]) -> dict[str, str]:
    """Returns the columns of the gains by limit of time."""
    return {f"{limit} s": f"improvement after {limit} s, mean of the seeds [%]" for limit in limits}


def plays_of(graph: str, row: str, player: Player, scale: str, limits: Sequence[int], seed: int) -> dict[int, Play]:
    """Returns the runs of a row by limit of time; what learns has the run of `controllers` for all."""
    if player.learns:
        return dict.fromkeys(limits, Play(graph, row, player, scale, SECONDS[scale], seed))
    return {limit: Play(graph, row, player, scale, limit, seed) for limit in limits}


def rows_of(peers: Sequence[Peer], records: Mapping[Play, Record], limits: Sequence[int]) -> Iterator[Record]:
    """Yields a row of the table for each row on each graph.

    Args:
      records: those of all runs.
    """
    for graph, row in dict.fromkeys((peer.longest.graph, peer.row) for peer in peers):
        same = [peer for peer in peers if (peer.longest.graph, peer.row) == (graph, row)]
        longest = [_spent(records[peer.longest]) for peer in same]
        gains = {f"{limit} s": [reached(records[peer.plays[limit]], limit) for peer in same] for limit in limits}
        yield {
            "graph": graph,
            "row": row,
            "learns": records[same[0].longest]["world"] or UNDEFINED,
            "seeds": len(same),
            **{column: sum(values) / len(values) for column, values in gains.items()},
            **{key: mean_of(longest, key) for key in AFTER},
        }


def _spent(record: Record) -> Record:
    stages = record["stages"]
    seconds = sum(stages.values())
    return {
        "end": record["own"],
        "bound": record.get("bound"),  # runs of older versions have none
        "seconds": seconds,
        "play_s": stages.get("evaluate") if record["world"] else seconds,
        "evaluations": record["cost_evaluations"],
        "memory_mb": record.get("memory_mb"),
    }


def reached(record: Record, limit: int) -> float:
    """Returns the improvement that a run has reached within a limit of time [%]; 0 is that of the graph as it was."""
    if not record["world"] or sum(record["stages"].values()) <= limit:
        return float(record["own"])
    if record["world"] == "real":
        return gain_within(record, limit - seconds_before(record)) or 0.0
    played = (point.score for point in points_of(record) if point.curve == FOR_REAL and point.seconds <= limit)
    return max([0.0, *played])


def finding(rows: Sequence[Record], limits: Sequence[int]) -> str:
    """Returns who has found most within each limit, a sentence for each graph; rows within 1 % of the best share it."""
    said = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        parts, here = [], [row for row in rows if row["graph"] == graph]
        for limit in limits:
            gains = {row["row"]: row[f"{limit} s"] for row in here}
            best = max(gains.values())
            if best < 100 * WORTH:
                parts.append(f"nobody gains {WORTH:.0%} after {limit} s")
                continue
            first = [name for name, gain in gains.items() if gain >= (1 - WORTH) * best]
            parts.append(f"{best:.1f} % after {limit} s by {', '.join(first)}")
        said.append(f"{graph}: {'; '.join([*parts, *_distances(here)])}.")
    return "\n\n".join(said)


def _distances(rows: Sequence[Record]) -> Iterator[str]:
    """Yields how far the rows on a graph end from the cheapest graph of an e-graph, if it is known and nobody has more.

    Who has more has found a graph that is not in the e-graph.
    """
    known = [row for row in rows if row["bound"] != UNDEFINED and row["end"] >= (1 - WORTH) * row["bound"]]
    best = max(known, key=lambda row: float(row["end"]), default=None)
    most = max(float(row["end"]) for row in rows)
    if best is None or best["end"] < max(100 * WORTH, (1 - WORTH) * most):
        return
    short: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: float(row["end"])):
        if row is not best:
            short.setdefault(f"{best['end'] - row['end']:.1f}".replace("-0.0", "0.0"), []).append(row["row"])
    points = ", ".join(f"{distance} ({', '.join(names)})" for distance, names in short.items())
    yield f"{best['row']} ends with the cheapest graph of its e-graph; others end so many points short of it: {points}"


def _with_clock(
    rows: Sequence[Record],
    peers: Sequence[Peer],
    records: Mapping[Play, Record],
    names: Sequence[str],
    options: argparse.Namespace,
    progress: ProgressDisplay,
) -> list[Record]:
    """Returns the rows with the ratios by the clock, and a row for the result of `rlflow optimise` on each graph."""
    plays = {name: {peer.row: peer.longest for peer in reversed(peers) if peer.longest.graph == name} for name in names}
    first = {name: firsts({row: records[play] for row, play in plays[name].items()}) for name in names}
    distinct = {name: {row: plays[name][row] for row in dict.fromkeys(first[name].values())} for name in names}
    units = [Unit(f"{name}: clock", partial(_clocked, name, distinct[name], options)) for name in names]
    measured = dict(zip(names, run_units(units, options, progress, measures=True), strict=True))
    timed = []
    for name in names:
        ratios = {row: estimate(each) for row, each in measured[name]["ratios"].items()}
        own = [row for row in rows if row["graph"] == name]
        blank = dict.fromkeys(own[0], UNDEFINED)
        for row in [*own, {**blank, "graph": name, "row": BY_CLOCK, "seeds": 1}]:
            ratio = ratios[first[name].get(row["row"], BY_CLOCK)]
            timed.append({**row, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return timed


def firsts(records: Mapping[str, Record]) -> dict[str, str]:
    """Returns for each row the first one that has found the same graph, which is timed for all of them."""
    first: dict[str, str] = {}
    # records of older versions do not say which graph was found
    return {row: first.setdefault(record.get(RESULT, row), row) for row, record in records.items()}


def _clocked(name: str, plays: Mapping[str, Play], options: argparse.Namespace, progress: ProgressDisplay) -> Record:
    """Times the best graph of each of these rows beside the model, in one interleaved run."""
    runtime = OnnxRuntime(options.device, THREADS)
    ours = our_best(name, options.scale, options.device, None, progress)

    def made(prepare: partial[CheckedModel]) -> Tool:
        return Tool(runtime.label, runtime, lambda _: prepare())

    tools = {
        MODEL: Tool(runtime.label, runtime, lambda model: model),
        **{row: made(partial(_played, play, progress)) for row, play in plays.items()},
        BY_CLOCK: made(partial(ours.model)),
    }
    settings = {"graphs": {row: play.settings for row, play in plays.items()} | {BY_CLOCK: ours.settings}}
    comparison = Comparison(name, tools, MODEL, set(tools), processor(options.device), table="peers")
    return comparison.times(EFFORTS[options.scale], settings)


def _played(play: Play, progress: ProgressDisplay) -> CheckedModel:
    return play.models(progress)[1]


def _draw(rows: Sequence[Record], column: str, path: Path) -> None:
    """Draws the gains of all rows on all graphs within one limit; the best row of a graph is the darkest."""
    from experiments.reports.plots import plot_heatmap

    found = {(row["row"], row["graph"]): row[column] for row in rows}
    names, graphs = (list(dict.fromkeys(row[key] for row in rows)) for key in ("row", "graph"))
    values = np.array([[found.get((name, graph), 0.0) for graph in graphs] for name in names])
    best = values.max(axis=0)
    shades = np.where(best < 100 * WORTH, 0.0, values / np.maximum(best, 1e-12))
    plot_heatmap(path, f"Improvement after {column} [%]", names, graphs, values, shades)
