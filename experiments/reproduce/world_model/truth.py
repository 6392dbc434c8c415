"""How far dreams are from reality for everything that looks for gains in them, and whether the alarm tells.

rlflow reproduce truth
rlflow reproduce truth nasrnn generated-100 --seeds 0,1 --schedules usual
rlflow reproduce truth nasrnn --costs measured:cpu

A unit is one graph, seed and schedule. By the schedules `usual` and `own`, world models and controllers are those of
`rlflow reproduce controllers`, whose runs are shared. By `usual`, everything plays in a dream that was recollected by
PPO in four rounds. By `own`, each controller plays in a dream that was recollected by itself, in two rounds; all of
them begin with one world model of random play. By `exact`, the engine says in dreams what is legal, and everything
plays in a dream that was recollected by PPO in two rounds, without plans of searches. By `starved`, world models learn
from few episodes and without recollection. In the dream of the round that plays, PPO, `cmaes` and `mpc` play; in PPO's
dream, a beam search and a cross-entropy planning look for the best plan. All plans are tried in reality. On a quiet
machine a unit of the usual schedule takes about ten minutes, one of `exact` a quarter of an hour, one of `own` half an
hour, and a starved one two minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from environment.costs import registry as cost_models
from experiments.config.effect import same_play
from experiments.config.run import MEASURED_COSTS, RunConfig
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.learning.rounds import Learning, learner, train
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.search.controllers import GENERATED, GRAPHS, PLAYERS, QUICK
from experiments.reproduce.search.plays import EXACT, PRICES, SECONDS, Play
from experiments.reproduce.table import UNDEFINED, Table, mean_of
from experiments.runs.directory import RunDirectory
from experiments.runs.manifest import make_manifest
from experiments.runs.progress import ProgressDisplay
from experiments.runs.result import LARGE_GAP, LEAST_OFFERED, is_far
from experiments.runs.rounds import best_round
from experiments.runs.run import Run
from experiments.studies.exploiters import Planning, beam_plan, cross_entropy_plan
from taso_ext import RuleSet

if TYPE_CHECKING:  # TensorFlow is imported when something is played
    from worldmodel.accuracy.exploit import ComparedPlan

NAME = "truth"
ROW = "ppo dream"
PPO, CMAES, MPC, BEAM, CROSS_ENTROPY = "ppo", "cmaes", "mpc", "beam search", "cross-entropy planning"
PLAYED_BY: Mapping[str, str] = {PPO: ROW, CMAES: "cmaes", MPC: "mpc"}
"""The rows of `controllers` of the controllers that play."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How the world models learn in whose dreams controllers play.

    Attributes:
      rounds: number of rounds of recollection; of these and round 0, the one plays whose plans really save most.
      own: whether each controller plays in a dream that was recollected by itself; else, all play in PPO's.
      settings: changes of the settings of the rows of `controllers`.
      planned: number of dreams of `mpc`, which plans at every few steps. By half of them the alarm sounds, and the
        other half are judged. Four are too few: of the first unit of `generated-102`, the alarm heard two true ones,
        and of the two that were judged one was 9.8 points off.
    """

    rounds: int
    own: bool = False
    settings: tuple[str, ...] = ()
    planned: int = 4


SCHEDULES: Mapping[str, Schedule] = {
    "usual": Schedule(4),
    "own": Schedule(2, own=True, planned=20),
    "exact": Schedule(2, settings=EXACT, planned=20),
    "starved": Schedule(0, settings=("collect.episodes=12", "recollect.rounds=0")),
}
PLANNING = {"smoke": Planning(width=4, population=8, elites=4, iterations=2), "full": Planning()}
EPISODES = {"smoke": 2, "full": 40}
"""Dreams of a policy. By half of them the alarm sounds, and the other half are judged."""
FIGURES = ("gap", "illegal_share", "dreamed_percent", "real_percent", "paying_recall")
JUDGED = (PPO, CMAES, MPC, BEAM)
"""The players whose plans are to be true in a dream that was mended."""
GAP, ILLEGAL, ROUNDS = 2.0, 0.02, 2
"""What these plans may be from reality at most [points], their share of illegal rewrites, and the rounds of mending."""
TOLD, FALSE, KIND = 0.95, 0.05, 60
"""How often the alarm should sound where gaps are large, and at most where they are not; and runs of each kind."""

SEEDS = "0,1"
COLUMNS = {
    "graph": "cleaned in full",
    "schedule": "how the world model learns",
    "player": "what plays or plans in the dream of the round that plays",
    "seeds": "runs",
    "gap": "|dreamed - real| of its plans, mean [points]",
    "largest": "the largest gap of a seed",
    "illegal": "rewrites of these plans that are not legal in reality [%]",
    "dreamed": "dreamed improvement, mean [%]",
    "real": "real improvement of the same plans, mean [%]",
    "recall": "share of the rewrites that really pay along its plans that the dream offers [%]; none where nothing "
    "pays, or a unit is from before searches kept it",
    "alarms": f"runs in which the alarm sounds: other plans of the player are over {LARGE_GAP:g} points apart; none of "
    "searches, which have one plan",
    "large": f"runs whose gap is over {LARGE_GAP:g} points",
    "omission_alarms": f"runs in which the alarm of omissions sounds: the dream offers less than {LEAST_OFFERED:.0%} "
    "of what pays along other plans of the player; none of searches, which have one plan, none where nothing pays, and "
    "none in units from before it was kept",
    "omitting": f"runs whose recall is under {LEAST_OFFERED:.0%}",
}
FORMATS = dict.fromkeys(("gap", "largest", "illegal", "dreamed", "real", "recall"), ".2f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, f"{', '.join(GRAPHS)}, {GENERATED[0]} to {GENERATED[-1]}")
    add_seeds(parser, SEEDS)
    parser.add_argument("--costs", metavar="NAME", default=PRICES, help=f"what is learned and dreamed of ({PRICES})")
    parser.add_argument("--schedules", metavar="A,B", help=f"how world models learn (all: {', '.join(SCHEDULES)})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains and judges each graph by each schedule with each seed; finished units are not done again."""
    names = chosen_graphs(options, (*GRAPHS, *GENERATED), QUICK)
    schedules, seeds = named(options.schedules, SCHEDULES, "schedule"), chosen_seeds(options, SEEDS)
    units = [
        Unit(f"{name} {schedule} seed {seed}", partial(judged, name, schedule, options.scale, seed, options.costs))
        for seed in seeds
        for name in names
        for schedule in schedules
    ]
    measures = RunConfig(costs=options.costs).measures_costs
    records = run_units(units, options, progress, measures=measures, times_tensorflow=False)
    return Table(
        "How far dreams are from reality",
        COLUMNS,
        FORMATS,
        list(rows_of(records)),
        options.command_line,
        f"costs={options.costs}; {len(RuleSet.default())} rules.",
        finding(records),
    )


def judged(name: str, schedule: str, scale: str, seed: int, costs: str, progress: ProgressDisplay) -> Record:
    """Returns the record of one unit; a finished one is not done again."""
    plays = {controller: play_of(name, schedule, scale, seed, controller, costs) for controller in PLAYED_BY}
    first, own = plays[PPO], SCHEDULES[schedule].own
    settings = {
        **first.settings,
        "planning": dataclasses.asdict(PLANNING[scale]),
        "episodes": [EPISODES[scale], planned_episodes(schedule, scale)],
        **({"own": _own_settings(plays, SCHEDULES[schedule])} if own else {}),
    }
    unit = f"{name}-{schedule}-{scale}-{seed}"

    def work() -> Record:
        learning = Learning(*first.begun(progress))
        directory = unit_path(NAME, unit, settings).with_suffix("")
        others = RunDirectory.open(directory, settings, make_manifest((), name, seed))
        learnings = {
            each: Learning(*play.begun(progress), first=learning.run) if own and each != PPO else learning
            for each, play in plays.items()
        }
        configs = {each: play.config for each, play in plays.items()}
        players = judge(learnings, Run(first.config, others, progress), configs, schedule, scale)
        return {"settings": settings, "graph": name, "schedule": schedule, "seed": seed, "players": players}

    return once(NAME, unit, settings, work, anywhere=not first.measures_costs, agree=same_play)


def _own_settings(plays: Mapping[str, Play], schedule: Schedule) -> Record:
    """Returns what the result of a unit depends on beside the settings of PPO, if controllers have their own dreams."""
    sections = {name: dataclasses.asdict(play.config.of_controller) for name, play in plays.items() if name != PPO}
    return {"rounds": schedule.rounds, **sections}


def play_of(name: str, schedule: str, scale: str, seed: int, controller: str = PPO, costs: str = PRICES) -> Play:
    """Returns the play whose world models and controller a unit judges; a quick look has two rounds of recollection."""
    row, settings = PLAYED_BY[controller], SCHEDULES[schedule].settings
    player = PLAYERS[row]
    if scale == "smoke" and SCHEDULES[schedule].rounds:
        settings = (*settings, "recollect.rounds=2")
    player = replace(player, settings=(*player.settings, *settings))
    row += f", {schedule}" * bool(SCHEDULES[schedule].settings)
    return Play(name, row, player, scale, SECONDS[scale], seed, costs, device_of(costs))


def device_of(costs: str) -> str:
    """Returns the device of a unit: the one that its costs are measured on, else the CPU, where all runs are made.

    Raises:
      UserError: a parameter of the costs is unknown.
    """
    try:
        name = cost_models.parse(costs)
    except ValueError as error:
        raise UserError(str(error)) from error
    return name.place if name.kind in MEASURED_COSTS and name.place and not name.is_file else "cpu"


def planned_episodes(schedule: str, scale: str) -> int:
    """Returns the number of dreams of `mpc`; a quick look has as few of them as of the others."""
    return SCHEDULES[schedule].planned if scale == "full" else EPISODES[scale]


def judge(
    learnings: Mapping[str, Learning], others: Run, configs: Mapping[str, RunConfig], schedule: str, scale: str
) -> dict[str, Record]:
    """Returns the figures of every player in the dream of the round whose controller plays.

    These are `FIGURES`, and under "checked" and "checked_recall" the gap and the recall of other plans, by which a
    run's alarms sound; None if the player has one plan only, and if nothing pays along them.

    Args:
      learnings: the world models in whose dreams each controller plays.
      others: the run that keeps the controllers that are trained only to be judged.
      configs: the settings of each controller.
      schedule: how the world models learn.
      scale: `smoke` or `full`.
    """
    rounds = SCHEDULES[schedule].rounds
    numbers = {name: _round_that_plays(learning, rounds) for name, learning in learnings.items()}
    episodes = {PPO: EPISODES[scale], CMAES: EPISODES[scale], MPC: planned_episodes(schedule, scale)}
    searched, number = learnings[PPO], numbers[PPO]
    played = {
        PPO: _played(searched, others, number, configs[PPO], episodes[PPO]),
        BEAM: [beam_plan(searched, number, PLANNING[scale])],
        CROSS_ENTROPY: [cross_entropy_plan(searched, number, PLANNING[scale])],
        **{
            name: _played(learnings[name], others, numbers[name], configs[name], episodes[name])
            for name in (CMAES, MPC)
        },
    }
    from worldmodel.accuracy.exploit import compare

    found: dict[str, Record] = {}
    for player, plans in played.items():
        half = len(plans) // 2
        compared = dataclasses.asdict(compare(plans[half:]))
        figures = {key: _known(compared[key]) for key in FIGURES}
        checked = compare(plans[:half]) if half else None
        found[player] = {
            **figures,
            "checked": checked and checked.gap,
            "checked_recall": checked and _known(checked.paying_recall),
        }
    return found


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _round_that_plays(learning: Learning, rounds: int) -> int:
    """Returns the number of the round whose plans really save most, of at most so many rounds."""
    last = min(rounds, learning.run.config.recollect.rounds)
    return best_round([learning.plans(number) for number in range(last + 1)])


def _played(learning: Learning, others: Run, number: int, config: RunConfig, episodes: int) -> Sequence[ComparedPlan]:
    """Returns dreams of a controller, tried in reality; it is trained in the dream, unless it is that of the rounds."""
    from worldmodel.accuracy.exploit import dreamed_then_replayed
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.dream.players import player_of

    run, env, model = learning.run, learning.loaded.env, learning.model(number).fresh()
    name = config.controller
    if name == run.config.controller:
        controller = learning.controller(number)
    else:
        seed = run.seed(name)
        controller = learner(config, learning.loaded, seed, model, number)
        training = learning.episodes(number)[0]

        def dream() -> DreamEnv:
            return DreamEnv.of_episodes(model, training, config.dream, seed=seed, env=env)

        train(others, controller, dream, number=number, base_stage=name, checkpoint=name)
    return dreamed_then_replayed(
        model,
        learning.root_dream(model),
        env,
        player_of(controller),
        episodes=episodes,
        horizon=env.max_steps,
        seed=run.seed(f"truth {name}"),
    )


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each player on each graph by each schedule."""
    for graph, schedule in dict.fromkeys((record["graph"], record["schedule"]) for record in records):
        units = [record for record in records if (record["graph"], record["schedule"]) == (graph, schedule)]
        for player in units[0]["players"]:
            runs = [unit["players"][player] for unit in units]
            yield {
                "graph": graph,
                "schedule": schedule,
                "player": player,
                "seeds": len(runs),
                "gap": mean_of(runs, "gap"),
                "largest": max(run["gap"] for run in runs),
                "illegal": mean_of(runs, "illegal_share", 100),
                "dreamed": mean_of(runs, "dreamed_percent"),
                "real": mean_of(runs, "real_percent"),
                "recall": mean_of(runs, "paying_recall", 100),
                "alarms": UNDEFINED if runs[0]["checked"] is None else sum(is_far(run["checked"]) for run in runs),
                "large": sum(is_far(run["gap"]) for run in runs),
                **{key: _omitting(runs, figure) for key, figure in OMISSIONS.items()},
            }


OMISSIONS = {"omission_alarms": "checked_recall", "omitting": "paying_recall"}
"""The columns that count the runs with too few offers, and the figure of each."""


def _omitting(runs: Sequence[Record], figure: str) -> int | str:
    """Returns how many runs offer too few of the rewrites that pay; units from before a figure was kept have none."""
    known = [run[figure] for run in runs if run.get(figure) is not None]
    return sum(recall < LEAST_OFFERED for recall in known) if known else UNDEFINED


def finding(records: Sequence[Record]) -> str:
    """Returns which goals are reached: what mended dreams are worth by each schedule, and whether the alarms tell."""
    mended = [name for name in dict.fromkeys(record["schedule"] for record in records) if SCHEDULES[name].rounds]
    sentences = [_truth([record for record in records if record["schedule"] == name], name) for name in mended]
    runs = [run for record in records for run in record["players"].values() if run["checked"] is not None]
    large, small = ([run for run in runs if is_far(run["gap"]) == is_large] for is_large in (True, False))
    told, false = (sum(is_far(run["checked"]) for run in kind) for kind in (large, small))
    enough = "and there are as many" if min(len(large), len(small)) >= KIND else "and these are too few"
    sentences.append(
        f"The alarm sounds in {told} of {len(large)} runs whose gap is over {LARGE_GAP:g} points (goal: at least "
        f"{TOLD:.0%}, {_verdict(told >= TOLD * len(large), large)}), and in {false} of {len(small)} others (goal: at "
        f"most {FALSE:.0%}, {_verdict(false <= FALSE * len(small), small)}). It is to be judged by at least {KIND} "
        f"runs of each kind, {enough}. Searches, which have one plan, do not count there."
    )
    return " ".join([*sentences, _omissions(runs)])


def _truth(records: Sequence[Record], schedule: str) -> str:
    """Returns how true the plans of the players that are judged are by a schedule, in a sentence."""
    runs = [run for record in records for player, run in record["players"].items() if player in JUDGED]
    gaps = [run["gap"] for run in runs]
    illegal = [run["illegal_share"] or 0.0 for run in runs]
    recalls = [run["paying_recall"] for run in runs if run["paying_recall"] is not None]
    near = sum(gap <= GAP for gap in gaps)
    legal = sum(share <= ILLEGAL for share in illegal)
    offered = sum(recall >= LEAST_OFFERED for recall in recalls)
    rounds = SCHEDULES[schedule].rounds
    least = f" (least {min(recalls):.1%})" if recalls else ""
    return (
        f"`{schedule}`, {rounds} rounds{f', which are more than the {ROUNDS} of the goal' * (rounds > ROUNDS)}: of "
        f"{len(runs)} runs of {', '.join(JUDGED)}, {near} are at most {GAP:g} points from reality (largest gap "
        f"{max(gaps, default=0.0):.1f}): {_verdict(near == len(runs), runs)}; {legal} have at most {ILLEGAL:.0%} "
        f"illegal rewrites (most {max(illegal, default=0.0):.1%}): {_verdict(legal == len(runs), runs)}; {offered} of "
        f"{len(recalls)} whose recall is known offer at least {LEAST_OFFERED:.0%} of the rewrites that pay{least}: "
        f"{_verdict(offered == len(recalls), recalls)}."
    )


def _omissions(runs: Sequence[Record]) -> str:
    """Returns whether the alarm of omissions tells the runs whose dream offers too little, in a sentence."""
    both = [run for run in runs if run["paying_recall"] is not None and run.get("checked_recall") is not None]
    few, most = ([run for run in both if (run["paying_recall"] < LEAST_OFFERED) == is_few] for is_few in (True, False))
    told, false = (sum(run["checked_recall"] < LEAST_OFFERED for run in kind) for kind in (few, most))
    return (
        f"The alarm of omissions sounds in {told} of {len(few)} runs whose recall is under {LEAST_OFFERED:.0%}, and in "
        f"{false} of {len(most)} others; {len(runs) - len(both)} runs have no recall, or none of other plans."
    )


def _verdict(holds: bool, among: Sequence[object]) -> str:
    """Returns whether a goal is reached, which nothing shows without any figures."""
    return "not judged" if not among else "reached" if holds else "missed"
