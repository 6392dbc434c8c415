"""What each part of learning brings: runs of `rlflow reproduce controllers` that differ in one thing each.

rlflow reproduce ablations
rlflow reproduce ablations bert-base --changes "no recollection,untrained networks" --seeds 0,1
rlflow reproduce ablations nasrnn --base "ppo exact" --changes "one site at a time,no recollection" --seeds 0

A change is compared with the row that it changes, seed by seed: the interval is that of the mean difference. Changes of
PPO in dreams are made where rewrites are predicted, or, with `--base "ppo exact"`, to the preset `demo` as it is, whose
dreams the engine follows. What the temperature of a dream does beside recollection and an ensemble, which have rows
too, shows in its gap and in what is really gained. A unit takes up to 45 minutes; the rows that are changed are units
of `controllers`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.search.controllers import PLAYERS, QUICK
from experiments.reproduce.search.plays import COUNTED, EXACT, ON_PAPER, Player, counts_of, units_of
from experiments.reproduce.table import Table, interval_of_seeds, mean_of
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

GRAPHS = ("squeezenet1.1", "bert-base")
SEEDS = "0,1,2"


class Change(NamedTuple):
    """A row of the table.

    Attributes:
      base: the row of `controllers` that is changed.
      settings: what is changed, as for `--set`.
    """

    base: str
    settings: tuple[str, ...]

    def of(self, base: str) -> Change:
        """Returns the same change, of `base` if it is one of PPO in dreams."""
        return self._replace(base=base) if self.base == DREAM else self

    @property
    def player(self) -> Player:
        """The player of the changed row."""
        base = PLAYERS[self.base]
        return dataclasses.replace(base, settings=(*base.settings, *self.settings))


DREAM, REAL, SEARCH, CANDIDATES = "ppo dream", "ppo real", "mcts", "xrlflow"
TURNS = "ppo exact"
DREAMS = (DREAM, TURNS)
"""The rows of PPO in dreams, with predicted rewrites and with those that the engine knows."""
CHANGES: Mapping[str, Change] = {
    "four networks": Change(DREAM, ("policy.head=four-networks",)),
    "pointer": Change(REAL, ("policy.head=pointer",)),
    "one site at a time": Change(DREAM, ("environment.everywhere=false",)),
    "everywhere in every round": Change(TURNS, ("policy.everywhere=always",)),
    "no recollection": Change(DREAM, ("recollect.rounds=0",)),
    "two large rounds": Change(
        DREAM, ("recollect.rounds=2", "recollect.episodes=100", "recollect.steps=600", "ppo.updates=100")
    ),
    "one round": Change(DREAM, ("recollect.rounds=1",)),
    "no searched plans": Change(DREAM, ("recollect.searched=0",)),
    "what is omitted": Change(DREAM, ("recollect.omitted=0.2", "recollect.emphasis=3")),
    "directed collection": Change(DREAM, ("collect.directed=0.5",)),
    "legal from 0.9": Change(DREAM, ("dream.legal_from=0.9",)),
    "exact": Change(DREAM, EXACT),  # the run of the schedule of this name in `truth`
    "no potential": Change(DREAM, ("world_model.mdn_rnn.potential=false",)),
    "no memory of sites": Change(DREAM, ("world_model.mdn_rnn.remembers=false",)),
    "ensemble": Change(DREAM, ("world_model.mdn_rnn.ensemble=3",)),
    "uncertain rewrites": Change(DREAM, ("world_model.mdn_rnn.ensemble=3", "recollect.uncertain=0.2")),
    "no telescoping": Change(DREAM, ("dream.telescoping=false",)),
    "cold dream": Change(DREAM, ("dream.temperature=0.5",)),
    "warm dream": Change(DREAM, ("dream.temperature=1.5",)),
    "more exploration": Change(DREAM, ("ppo.rule_entropy=[0.1,0.002]",)),
    "more exploration of single sites": Change(DREAM, ("ppo.rule_entropy=[0.1,0.002]", "environment.everywhere=false")),
    "50 steps": Change(DREAM, ("environment.max_steps=50",)),
    "globals": Change(REAL, ("graph_encoder.kind=message_passing",)),
    "best graph": Change(DREAM, ("ppo.goal=best",)),
    "last graph": Change(REAL, ("ppo_real.goal=last",)),
    "last graph of candidates": Change(CANDIDATES, ("xrlflow.goal=last",)),
    "best graph alone": Change(CANDIDATES, ("xrlflow.reward_share=0",)),
    "NO-OP": Change(CANDIDATES, ("xrlflow.noop=true",)),
    "five attention layers": Change(CANDIDATES, ("xrlflow.layers=5",)),
    "means over nodes": Change(CANDIDATES, ("xrlflow.pool=mean",)),
    "untrained networks": Change(SEARCH, ("mcts.learning_rate=0", "mcts.last_learning_rate=0")),
    "no search": Change(SEARCH, ("mcts.simulations=1", "mcts.considered=1")),
}
"""The rows by name."""

COLUMNS = {
    "graph": "cleaned in full",
    "changed": "the row of `controllers` that is changed",
    "change": "what is changed",
    "seeds": "runs",
    "gain": "improvement of the best of its own episodes, mean of the seeds [%]",
    "more": "gain with the change less gain without it, mean of the seeds [points]",
    "low": "95 % interval of this mean, lower end",
    "high": "upper end",
    "gap": "mean distance between what its dream promises and reality, in the round that plays [points]",
    "illegal": "rewrites of these dreams that are not legal in reality [%]",
    "recall": "rewrites that pay along these dreams' plans, share that the dream offers [%]",
    **COUNTED,
    "minutes": "for everything, mean",
}
FORMATS = {
    **dict.fromkeys(("gain", "more", "low", "high", "gap", "illegal"), ".2f"),
    **dict.fromkeys(("recall", "minutes"), ".1f"),
    **dict.fromkeys(COUNTED, ",.0f"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_seeds(parser, SEEDS)
    parser.add_argument("--changes", metavar="A,B,…", help=f"rows of the table (all: {', '.join(CHANGES)})")
    parser.add_argument("--base", choices=DREAMS, default=DREAM, help=f"the row of PPO in dreams to change ({DREAM})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays each change and what it changes; finished units are not done again."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    changes = {name: change.of(options.base) for name, change in named(options.changes, CHANGES, "change").items()}
    bases = {change.base: PLAYERS[change.base] for change in changes.values()}
    changed = {f"{change.base}, {name}": change.player for name, change in changes.items()}
    records = run_units(units_of(names, bases | changed, seeds, options.scale), options, progress)
    rows = list(rows_of(records, changes))
    return Table(
        "What each part of learning brings",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules.",
        finding(rows),
    )


def rows_of(records: Sequence[Record], changes: Mapping[str, Change]) -> Iterator[Record]:
    """Yields the row without a change, and one for each of its changes, on each graph."""
    for graph in dict.fromkeys(record["graph"] for record in records):
        runs: dict[str, dict[int, Record]] = {}
        for record in records:
            if record["graph"] == graph:
                runs.setdefault(record["controller"], {})[record["seed"]] = record
        for base in dict.fromkeys(change.base for change in changes.values()):
            yield _row(graph, base, "–", runs[base], None)
            for name, change in changes.items():
                if change.base == base:
                    yield _row(graph, base, name, runs[f"{base}, {name}"], runs[base])


def _row(graph: str, base: str, name: str, runs: Mapping[int, Record], without: Mapping[int, Record] | None) -> Record:
    row: Record = {"graph": graph, "changed": base, "change": name, "seeds": len(runs)}
    if without is not None:
        more = [float(run["own"]) - float(without[seed]["own"]) for seed, run in runs.items()]
        row |= dict(zip(("more", "low", "high"), interval_of_seeds(more), strict=True))
    return row | {
        "gain": mean_of(list(runs.values()), "own"),
        **{key: mean_of(list(runs.values()), key) for key in ("gap", "illegal", "recall", "minutes")},
        **counts_of(list(runs.values())),
    }


def finding(rows: Sequence[Record]) -> str:
    """Returns which changes gain or lose beyond chance, in a sentence or two."""
    intervals = [row for row in rows if isinstance(row.get("low"), float)]
    more = [f"{row['change']} on {row['graph']} ({row['more']:+.1f})" for row in intervals if row["low"] > 0]
    less = [f"{row['change']} on {row['graph']} ({row['more']:+.1f})" for row in intervals if row["high"] < 0]
    said = [f"{word} beyond chance: {', '.join(some)}." for word, some in (("More", more), ("Less", less)) if some]
    return " ".join(said) or "No change gains or loses beyond chance."
