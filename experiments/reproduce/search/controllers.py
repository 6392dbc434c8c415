"""What every controller makes of the same graphs, on paper: searches, planners, and what learns in dreams or for real.

rlflow reproduce controllers
rlflow reproduce controllers bert-base generated-100 --controllers greedy,taso,ppo --seeds 0,1

Each unit is one controller on one graph with one seed, priced by the roofline of an RTX 2070. A controller is credited
with its own episodes alone. Beside it stands random play with as many episodes, and the best episode of what it has
learned from. The searches that can use time are given `--seconds` each (300 at full scale); those that end earlier have
found what they can. What draws nothing at random is played once. Learning is given the preset `demo` with one round of
recollection, and its time counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from controller.records import EpisodeRecord, best_improvement
from controller.registry import require_name
from environment.statistics.intervals import mean_of_seeds
from experiments.config.effect import in_effect, same_effect
from experiments.config.run import RunConfig, load_config
from experiments.errors import require_at_least
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.evaluate import train_and_evaluate
from experiments.pipeline.load import load
from experiments.pipeline.optimise import begin_run
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from experiments.studies.setting import fingerprint
from experiments.studies.study import numbers_of
from taso_ext import RuleSet

NAME = "controllers"
GRAPHS = ("squeezenet1.1", "resnet18", "resnet50", "inception-v3", "bert-base", "vit-base")
"""The six graphs of the papers."""
SEEDS = "0,1,2,3,4"
SECONDS = {"smoke": 5, "full": 300}
ON_PAPER = ("costs=roofline:rtx2070", "device=cpu", "evaluate.climb_seconds=0")
SMALL = (
    *("environment.max_steps=8", "collect.episodes=40", "evaluate.sampled_episodes=2"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("world_model.encoder_training.steps=4", "world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn.mixtures=2"),
    *("world_model.mdn_rnn_training.steps=4", "ppo.updates=2", "ppo.batch=4", "ppo.horizon=6"),
    *("ppo_real.updates=1", "ppo_real.batch=2", "ppo_real.horizon=4"),
)
"""Changes that make everything that learns small, for a quick look."""
SCHEDULES: Mapping[str, tuple[str, ...]] = {"smoke": SMALL, "full": ("recollect.rounds=1",)}
"""Changes of the preset `demo` by scale."""
BETTER = 0.05
"""A controller is better than another one if it gains more by this fraction."""
WORTH = 0.01
"""A graph does not count if the best known gain is below this."""


@dataclass(frozen=True)
class Player:
    """A row of the table.

    Attributes:
      controller: its name.
      settings: as for `--set`.
      drawn: whether it draws at random; what does not is played with the first seed only.
    """

    controller: str
    settings: tuple[str, ...] = ()
    drawn: bool = True

    @property
    def learns(self) -> bool:
        """Whether it learns, from the settings of the row."""
        return bool(load_config("demo", {"controller": self.controller}, self.settings).learns_in)


PLAYERS: Mapping[str, Player] = {
    "greedy": Player("greedy", drawn=False),
    "taso": Player("taso", ("search.budget=50000",), drawn=False),
    "beam": Player("beam", ("search.budget=1000000",), drawn=False),
    "restarts": Player("restarts", ("search.budget=1000000",)),
    "passes": Player("passes", ("search.budget=1000000",), drawn=False),
    "best-of-n": Player("best-of-n", ("search.budget=1000000",)),
    "ppo, dream": Player("ppo", ("world=dream",)),
    "ppo, mixed": Player("ppo", ("world=mixed",)),
    "ppo, real": Player("ppo", ("world=real",)),
    "cmaes": Player("cmaes"),
    "mpc": Player("mpc"),
    "mcts": Player("mcts"),
}
"""The rows by name."""

COLUMNS = {
    "graph": "cleaned in full",
    "controller": "the row, and the world that it learns in",
    "seeds": "runs",
    "gain": "improvement of the best of its own episodes, mean of the seeds [%]",
    "low": "95 % interval of this mean, lower end",
    "high": "upper end",
    "best": "the best seed [%]",
    "random": "random play with as many episodes as its own, mean [%]",
    "learned_from": "best episode of what it has learned from, mean; credited to nobody [%]",
    "gap": "mean distance between what its dream promises and reality, last round [points]",
    "illegal": "rewrites of these dreams that are not legal in reality [%]",
    "real_steps": "steps of the exact engine, mean",
    "dreamed_steps": "steps in dreams, mean",
    "evaluations": "graphs that were priced, mean",
    "minutes": "for everything, mean",
}
FORMATS = {
    **dict.fromkeys(("gain", "low", "high", "best", "random", "learned_from", "gap", "illegal"), ".2f"),
    **dict.fromkeys(("real_steps", "dreamed_steps", "evaluations"), ",.0f"),
    "minutes": ".1f",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    parser.add_argument("--seeds", metavar="A,B,…", default=SEEDS, help=f"seeds of the runs ({SEEDS})")
    parser.add_argument("--controllers", metavar="A,B,…", help=f"rows of the table (all: {', '.join(PLAYERS)})")
    parser.add_argument("--seconds", metavar="N", type=int, help="of each search (smoke: 5, full: 300)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays each controller on each graph with each seed; finished units are not done again."""
    names = chosen_graphs(options.graphs or GRAPHS)
    rows, seeds = chosen_players(options.controllers), sorted(set(numbers_of("--seeds", options.seeds, least=0)))
    seconds = SECONDS[options.scale] if options.seconds is None else options.seconds
    require_at_least(1, seconds=seconds)
    units = [
        Unit(f"{name} {row} seed {seed}", partial(played, name, row, options.scale, seconds, seed))
        for seed in seeds
        for name in names
        for row in rows
        if player_of(row).drawn or seed == seeds[0]
    ]
    records = run_units(units, options, progress)
    return Table(
        "What every controller makes of the same graphs, on paper",
        COLUMNS,
        FORMATS,
        list(rows_of(records)),
        options.command_line,
        f"{ON_PAPER[0]}, {seconds} s for each search; {len(RuleSet.default())} rules.",
        finding(records),
    )


def chosen_players(named: str | None) -> list[str]:
    """Returns the names of the chosen rows: those that are named, or all.

    A name of a controller stands for all its rows, or for a new one with its defaults.

    Raises:
      UnknownControllerError: there is no such controller.
    """
    if named is None:
        return list(PLAYERS)
    chosen: list[str] = []
    for name in (part.strip() for part in named.split(",")):
        rows = [row for row, player in PLAYERS.items() if name in (row, player.controller)]
        chosen += rows or [require_name(name)]
    return list(dict.fromkeys(chosen))


def player_of(row: str) -> Player:
    """Returns the player of a row; a name that has none stands for that controller with its defaults."""
    return PLAYERS.get(row, Player(row))


def played(name: str, row: str, scale: str, seconds: int, seed: int, progress: ProgressDisplay) -> Record:
    """Returns the record of one unit; a finished one is not done again."""
    config = _config(player_of(row), scale, seconds, seed)
    settings = {"config": in_effect(config), "fingerprint": fingerprint(name)}
    unit = f"{name}-{row.replace(', ', '-')}-{scale}-{seed}"
    path = unit_path(NAME, unit, settings).with_suffix("")

    def work() -> Record:
        return {"settings": settings, **_play(name, row, Request(name, None, config, path, (NAME,)), progress)}

    return once(NAME, unit, settings, work, anywhere=True, agree=same_effect)


def _config(player: Player, scale: str, seconds: int, seed: int) -> RunConfig:
    changes = (*ON_PAPER, *SCHEDULES[scale], *(() if player.learns else (f"search.seconds={seconds}",)))
    return load_config("demo", {"controller": player.controller, "seed": seed}, [*changes, *player.settings])


def _play(name: str, row: str, request: Request, progress: ProgressDisplay) -> Record:
    loaded = load(name, request.config)
    run = begin_run(request, loaded, progress)
    evaluation, training = train_and_evaluate(run, loaded)
    counts, spent = run.directory.counts(), run.directory.stage_seconds()
    run.directory.mark_done()
    plans = training.rounds[-1]["plans"] if training.rounds else {}
    return {
        "graph": name,
        "controller": row,
        "seed": request.config.seed,
        "world": request.config.learns_in,
        "own": 100 * evaluation.controller_best.improvement,
        "random": _percent(evaluation.random),
        "learned_from": None if evaluation.collection is None else 100 * evaluation.collection.improvement,
        "gap": plans.get("gap"),
        "illegal": None if plans.get("illegal_share") is None else 100 * plans["illegal_share"],
        **counts.to_json(),
        "minutes": sum(spent.values()) / 60,
        "stages": spent,
    }


def _percent(records: Sequence[EpisodeRecord]) -> float | None:
    return 100 * best_improvement(records) if records else None


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
                **dict(zip(("gain", "low", "high"), interval_of_seeds(own), strict=True)),
                "best": max(own),
                **{key: mean_of(same, key) for key in ("random", "learned_from", "gap", "illegal")},
                **{key: mean_of(same, key) for key in ("real_steps", "dreamed_steps", "minutes")},
                "evaluations": mean_of(same, "cost_evaluations"),
            }


def interval_of_seeds(own: Sequence[float]) -> tuple[float | str, ...]:
    """Returns the mean of the seeds and the ends of its interval, which one seed does not have."""
    found = mean_of_seeds(own)
    return (found.value, found.low, found.high) if len(own) > 1 else (found.value, UNDEFINED, UNDEFINED)


def mean_of(records: Sequence[Record], key: str, factor: float = 1.0) -> float | str:
    """Returns the mean of a figure over the records that have it, times a factor."""
    known = [factor * float(record[key]) for record in records if record[key] is not None]
    return sum(known) / len(known) if known else UNDEFINED


def finding(records: Sequence[Record]) -> str:
    """Returns where learning finds more than every search, and where less, in two sentences or so."""
    better, worse, graphs = [], [], list(dict.fromkeys(record["graph"] for record in records))
    for graph in graphs:
        learned, searched = (
            _best(record for record in records if record["graph"] == graph and bool(record["world"]) == learns)
            for learns in (True, False)
        )
        if learned is None or searched is None or max(learned[1], searched[1]) < 100 * WORTH:
            continue
        text = f"{graph} ({learned[0]} {learned[1]:.1f} %, {searched[0]} {searched[1]:.1f} %)"
        if learned[1] > (1 + BETTER) * searched[1]:
            better.append(text)
        elif learned[1] < (1 - WORTH) * searched[1]:
            worse.append(text)
    return (
        f"By the mean of the seeds, the best controller that learns gains over {BETTER:.0%} more than every search on "
        f"{_listed(better, graphs)}. It gains over {WORTH:.0%} less than the best search on {_listed(worse, graphs)}."
    )


def _listed(some: Sequence[str], graphs: Sequence[str]) -> str:
    return f"{len(some)} of {len(graphs)} graphs{': ' * bool(some)}{', '.join(some)}"


def _best(records: Iterator[Record]) -> tuple[str, float] | None:
    """Returns the controller with the largest mean gain, and this mean; None if there is no record."""
    gains: dict[str, list[float]] = {}
    for record in records:
        gains.setdefault(record["controller"], []).append(float(record["own"]))
    means = {name: sum(values) / len(values) for name, values in gains.items()}
    return max(means.items(), key=lambda pair: pair[1]) if means else None
