"""What every controller makes of the same graphs, on paper: searches, planners, and what learns in dreams or for real.

rlflow reproduce controllers
rlflow reproduce controllers bert-base generated-100 --controllers greedy,taso,ppo --seeds 0,1

The graphs are the six of the papers with five seeds, and twelve random ones, `generated-100` to `generated-111`, with
two. The schedule of recollection and what bounds a dream were chosen while looking at `generated-100` to
`generated-105`, so that only `generated-106` to `generated-111` test what nobody had looked at. The searches that can
use time are given as much as the slowest of the rows that are judged takes on the same graph in this table, in whole
five minutes and at least 400 s, or else `--seconds`; those that end earlier have found what they can. `best-of-n` is
random play for as long, with more episodes than any controller learns from. What draws nothing at random is played
once. Learning is given the preset `demo`, and its time counts: `ppo exact` as it is, in dreams that the engine follows;
all others that learn in dreams with predicted masks and four rounds of recollection, each with half of the usual
episodes and steps. A unit takes up to 50 minutes, all of them some 80 hours of one core; with `--seconds 400` 60.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from controller.registry import require_name
from experiments.errors import require_at_least
from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.search.plays import COUNTED, ON_PAPER, SECONDS, Player, counts_of, playing_of, units_of
from experiments.reproduce.table import OVER_SEEDS, WHOLE, Table, mean_of, of_seeds
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

GRAPHS = ("squeezenet1.1", "resnet18", "resnet50", "inception-v3", "bert-base", "vit-base")
"""The six graphs of the papers."""
QUICK = ("squeezenet1.1",)
"""Those of them that a quick look at the scale `smoke` is content with."""
GENERATED = tuple(f"generated-{seed}" for seed in range(100, 112))
"""Random graphs; something was tuned on the first six, see above."""
SEEDS = "0,1,2,3,4"
SEEDS_OF_GENERATED = "0,1"
BETTER = 0.05
"""A controller is better than another one if it gains more by this fraction."""
WORTH = 0.01
"""A graph does not count if the best known gain is below this."""
JUDGED = ("ppo exact", "ppo dream", "mcts")
"""The rows that are to find at least as much as every search."""
WHOLE_SECONDS = 300
"""The time of a search that has as much as learning takes is a multiple of this, so that its unit is found again."""


PLAYERS: Mapping[str, Player] = {
    "greedy": Player("greedy", drawn=False),
    "taso": Player("taso", ("search.budget=50000",), drawn=False),
    "beam": Player("beam", ("search.budget=1000000000",), drawn=False),
    "restarts": Player("restarts", ("search.budget=1000000000",)),
    "passes": Player("passes", ("search.budget=1000000000",), drawn=False),
    "best-of-n": Player("best-of-n", ("search.budget=1000000000",)),
    "ppo exact": Player("ppo", ("world=dream",), as_preset=True),  # the engine follows the dreams of `demo`
    "ppo dream": Player("ppo", ("world=dream",)),
    "ppo mixed": Player("ppo", ("world=mixed",)),
    "ppo real": Player("ppo", ("world=real",)),
    "cmaes": Player("cmaes"),
    "mpc": Player("mpc"),
    "mcts": Player("mcts"),
    "xrlflow": Player("xrlflow"),
}
"""The rows by name."""
E_NODES = 20_000
ONLY_LIMIT = ("saturation.seconds=0", "saturation.extraction_seconds=3600")
"""Settings with which the limit of time of a search is the only one."""
PEERS: Mapping[str, Player] = {
    "taso partial": Player("taso", ("rules=default+partial", *PLAYERS["taso"].settings), drawn=False),
    **{
        f"saturation k{k}": Player(
            "saturation",
            (f"saturation.k_multi={k}", f"saturation.nodes={E_NODES}", *ONLY_LIMIT),
            drawn=False,
        )
        for k in (0, 1, 2)
    },
}
"""Rows that only other tables have: PET's rules, and equality saturation by the rounds of rules with several roots."""

COLUMNS = {
    "graph": "cleaned in full",
    "controller": "the row, and the world that it learns in",
    "seeds": "runs",
    "gain": "improvement of the best of its own episodes, mean of the seeds [%]",
    **OVER_SEEDS,
    "best": "the best seed [%]",
    "random": "random play with as many episodes as in its evaluation, mean [%]",
    "learned_from": "best episode of what it has learned from, mean; credited to nobody [%]",
    "gap": "mean distance between what its dream promises and reality, in the round that plays [points]",
    "illegal": "rewrites of these dreams that are not legal in reality [%]",
    **COUNTED,
    "minutes": "for everything, learning included, mean",
    "playing": "of these, for the real episodes at the end, as many of random play included; a search has none",
}
FORMATS = {
    **dict.fromkeys(("gain", "low", "high", "IQM", "best", "random", "learned_from", "gap", "illegal"), ".2f"),
    **dict.fromkeys(COUNTED, ",.0f"),
    "minutes": ".1f",
    "playing": ".1f",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, f"{', '.join(GRAPHS)}, {GENERATED[0]} to {GENERATED[-1]}")
    add_seeds(parser, SEEDS, f"; {SEEDS_OF_GENERATED} on generated graphs")
    parser.add_argument("--controllers", metavar="A,B,…", help=f"rows of the table (all: {', '.join(PLAYERS)})")
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=int,
        help=f"of each search (smoke: {SECONDS['smoke']}; full: at least {SECONDS['full']}, and what the slowest of "
        f"{', '.join(JUDGED)} takes on the graph, of those that the table has)",
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays each controller on each graph with each seed; finished units are not done again."""
    names = chosen_graphs(options, (*GRAPHS, *GENERATED), QUICK)
    players = chosen_players(options.controllers)
    fixed = SECONDS["smoke"] if options.scale == "smoke" and options.seconds is None else options.seconds
    if fixed is not None:
        require_at_least(1, seconds=fixed)
    graphs, rows = sorted(names, key=GENERATED.__contains__), list(players)
    kinds = (
        ([name for name in graphs if name not in GENERATED], chosen_seeds(options, SEEDS)),
        ([name for name in graphs if name in GENERATED], chosen_seeds(options, SEEDS_OF_GENERATED)),
    )

    def records_of(chosen: Mapping[str, Player], seconds: int | Mapping[str, int] | None) -> list[Record]:
        units = [units_of(some, chosen, seeds, options.scale, seconds) for some, seeds in kinds]
        return run_units(list(itertools.chain.from_iterable(units)), options, progress)

    if fixed is not None:
        limits, records = dict.fromkeys(graphs, fixed), records_of(players, fixed)
    else:
        learned = records_of({row: player for row, player in players.items() if player.learns}, None)
        limits = {name: seconds_of_searches(learned, name) for name in graphs}
        records = [*learned, *records_of({row: each for row, each in players.items() if not each.learns}, limits)]
    records.sort(key=lambda record: (graphs.index(record["graph"]), rows.index(record["controller"])))
    return Table(
        "What every controller makes of the same graphs, on paper",
        COLUMNS,
        FORMATS,
        list(rows_of(records)),
        options.command_line,
        f"{ON_PAPER[0]}, {_listed_seconds(limits)} for each search; {len(RuleSet.default())} rules.",
        finding(records, fixed),
    )


def seconds_of_searches(records: Sequence[Record], graph: str) -> int:
    """Returns the time of the searches on a graph: that of the slowest row that is judged there, or more [s]."""
    took = [60 * float(each["minutes"]) for each in records if each["graph"] == graph and each["controller"] in JUDGED]
    return max(SECONDS["full"], WHOLE_SECONDS * math.ceil(max(took, default=0.0) / WHOLE_SECONDS))


def _listed_seconds(limits: Mapping[str, int]) -> str:
    """Returns the times of searches, with the graphs of each if they differ."""
    graphs: dict[int, list[str]] = {}
    for graph, seconds in limits.items():
        graphs.setdefault(seconds, []).append(graph)
    if len(graphs) == 1:
        return f"{next(iter(graphs)):,} s"
    return ", ".join(f"{seconds:,} s ({', '.join(named)})" for seconds, named in sorted(graphs.items()))


def chosen_players(named: str | None) -> dict[str, Player]:
    """Returns the players of the chosen rows by their names: those that are named, or all.

    A name of a controller stands for all its rows, or for a new one with its defaults.

    Raises:
      UnknownControllerError: there is no such controller.
    """
    if named is None:
        return dict(PLAYERS)
    chosen: dict[str, Player] = {}
    for name in (part.strip() for part in named.split(",")):
        rows = {row: player for row, player in PLAYERS.items() if name in (row, player.controller)}
        chosen |= rows or {name: Player(require_name(name))}
    return chosen


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each controller on each graph."""
    for graph in dict.fromkeys(record["graph"] for record in records):
        for controller in dict.fromkeys(record["controller"] for record in records):
            same = [record for record in records if (record["graph"], record["controller"]) == (graph, controller)]
            own = [float(record["own"]) for record in same]
            yield {
                "graph": graph,
                "controller": controller,
                "seeds": len(same),
                **of_seeds("gain", own, least=0.0, largest=WHOLE),
                "best": max(own),
                **{key: mean_of(same, key) for key in ("random", "learned_from", "gap", "illegal")},
                **counts_of(same),
                "minutes": mean_of(same, "minutes"),
                "playing": playing_of(same, 1 / 60),
            }


def finding(records: Sequence[Record], seconds: int | None) -> str:
    """Returns where learning finds more than every search, and where less, in three sentences or so.

    Args:
      seconds: the time of a search; None: at least that of the rows that are judged.
    """
    rows = [name for name in JUDGED if any(record["controller"] == name for record in records)]
    if not rows:
        return f"Nothing is judged: the table has neither {' nor '.join(f'`{name}`' for name in JUDGED)}."
    better, worse, judged = [], [], 0
    longer: dict[str, list[float]] = {name: [] for name in rows}
    for graph in dict.fromkeys(record["graph"] for record in records):
        here = [record for record in records if record["graph"] == graph]
        learned = _best(record for record in here if record["controller"] in rows)
        searched = _best(record for record in here if not record["world"])
        if learned is None or searched is None or max(float(record["own"]) for record in here) < 100 * WORTH:
            continue
        judged += 1
        text = f"{graph} ({learned[0]} {learned[1]:.1f} %, {searched[0]} {searched[1]:.1f} %)"
        if learned[1] > (1 + BETTER) * searched[1]:
            better.append(text)
        elif learned[1] < (1 - WORTH) * searched[1]:
            worse.append(text)
        for name in rows:
            took = [float(record["minutes"]) for record in here if record["controller"] == name]
            if took and seconds is not None and 60 * (minutes := sum(took) / len(took)) > seconds:
                longer[name].append(minutes)
    named = " and ".join(f"`{name}`" for name in rows)
    times = "A search was given at least the time that the slowest of these rows took on the graph."
    if seconds is not None:
        times = " ".join(_longer(name, took, seconds, judged) for name, took in longer.items())
    return (
        f"By the mean of the seeds, {('', 'the better one of ', 'the best one of ')[len(rows) - 1]}{named} gains over "
        f"{BETTER:.0%} more than "
        f"every search on {_listed(better, judged)}. It gains over {WORTH:.0%} less than the best search on "
        f"{_listed(worse, judged)}. {times} "
        f"Graphs on which nobody gains {WORTH:.0%} do not count."
    )


def _longer(name: str, minutes: Sequence[float], seconds: int, judged: int) -> str:
    """Returns a sentence on the graphs on which a row took longer than a search."""
    most = f": up to {max(minutes):.1f} minutes" if minutes else ""
    return f"`{name}` took longer than the {seconds} s of a search on {len(minutes)} of {judged} graphs{most}."


def _listed(some: Sequence[str], judged: int) -> str:
    return f"{len(some)} of {judged} graphs{': ' * bool(some)}{', '.join(some)}"


def _best(records: Iterator[Record]) -> tuple[str, float] | None:
    """Returns the controller with the largest mean gain, and this mean; None if there is no record."""
    gains: dict[str, list[float]] = {}
    for record in records:
        gains.setdefault(record["controller"], []).append(float(record["own"]))
    means = {name: sum(values) / len(values) for name, values in gains.items()}
    return max(means.items(), key=lambda pair: pair[1]) if means else None
