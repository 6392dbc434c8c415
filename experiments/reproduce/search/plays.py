"""One controller on one graph with one seed, on paper: a unit of `controllers`, and the run that others continue.

A controller is credited with its own episodes alone: with those of its evaluation and, if it learns in the real
environment, with those of its training. Beside it stands random play with as many episodes as in its evaluation, and
the best episode of the random collection that it has learned from. Prices are those of the roofline of an RTX 2070, so
that a unit has the same result on every machine, apart from its minutes; a figure of run times can have them measured.
A search that only its time ends finds more on a faster machine; TASO's, greedy's and what learns are not among these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord, best_improvement
from environment.costs.prices.settings import setting_of
from environment.runtimes import OnnxRuntime
from environment.substitution.env import WAYPOINT
from experiments.config.effect import effective, in_effect, same_play
from experiments.config.run import RunConfig, load_config
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.learning.evaluate import STAGE as EVALUATION_STAGE
from experiments.pipeline.learning.evaluate import train_and_evaluate
from experiments.pipeline.loading.load import Loaded, load
from experiments.pipeline.optimise import begin_run
from experiments.reproduce.table import mean_of
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from experiments.runs.run import Run
from experiments.studies.setting import fingerprint
from taso_ext import Graph
from taso_ext.onnx_io.checked_model import CheckedModel
from worldmodel.config import FORMAT_VERSION

RESULT = "result"
"""The key, in a record, of the hash of the best graph."""
UNITS = "controllers"
"""The folder of `runs/reproduce` in which the units are kept."""
MOST_STEPS = 50
"""Evenly spread steps of a stage that its curve keeps at most."""
BEST_COST = "best_cost_ms"
"""The figure of a search in its curve."""
TRAINED_ON = "training"
"""The kind of the best real episode of a training in the real environment."""
SECONDS = {"smoke": 1, "full": 400}
"""Time of a search, by scale."""
PRICES = "roofline:rtx2070"
ON_PAPER = (f"costs={PRICES}", "device=cpu", "evaluate.climb_seconds=0")
SMALL = (
    *("environment.max_steps=6", "collect.episodes=40", "evaluate.sampled_episodes=2"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("graph_encoder.rounds=1", "graph_encoder.hidden=8", "graph_encoder.latent=4"),
    *("world_model.encoder_training.steps=2", "world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn.mixtures=2"),
    *("world_model.mdn_rnn_training.steps=4", "ppo.updates=2", "ppo.batch=4", "ppo.horizon=6", "ppo.epochs=1"),
    *("ppo_real.updates=2", "ppo_real.batch=2", "ppo_real.horizon=4", "ppo_real.epochs=1"),
    *("mcts.iterations=1", "mcts.games=2", "mcts.warm_up=2", "mcts.simulations=4"),
    *("xrlflow.updates=1", "xrlflow.batch=2", "xrlflow.epochs=1", "xrlflow.width=8", "xrlflow.layers=2"),
    *("recollect.more=0", "recollect.episodes=4", "recollect.steps=10"),
    *("cmaes.generations=1", "cmaes.population=4", "cmaes.rollouts=1", "cmaes.features=4", "cmaes.keys=4"),
    *("mpc.plans=8", "mpc.elites=2", "mpc.iterations=1", "mpc.horizon=3", "mpc.replan=3"),
)
"""Changes that make everything that learns small, for a quick look, also where a row makes it large."""
PREDICTED = ("dream.legality=predicted", "recollect.searched=0.2", "policy.everywhere=always")
"""Dreams whose world model predicts which rewrites are legal, and learns from plans of searches too, for policies that
carry rules out everywhere in every round."""
EXACT = ("dream.legality=exact", "recollect.searched=0")
"""Dreams that the engine follows, which need no such plans."""
ROUNDS = (
    *("recollect.rounds=4", "recollect.more=0", "recollect.episodes=50", "recollect.steps=300"),
    *("ppo.updates=50", "cmaes.generations=50"),
    *PREDICTED,
)
"""Rounds of recollection with half of the usual work each: what two rounds take mends such dreams oftener in four."""
SCHEDULES: Mapping[str, tuple[str, ...]] = {"smoke": PREDICTED, "full": ROUNDS}
"""Changes of the presets by scale, which a row's settings may change again."""
COUNTED = {
    "real_steps": "steps of the exact engine, without those that follow a dream, mean",
    "dreamed_steps": "steps in dreams, mean; where the engine follows a dream, it takes as many",
    "evaluations": "graphs that were priced, mean",
    "kernel_timings": "single kernels that were timed, mean",
    "end_to_end_timings": "whole graphs that were timed, mean",
}
"""Columns of what runs have done, which `counts_of` fills."""
AS_PUBLISHED = ("paper", "paper-cut")
"""The presets of the published model, which at full scale nothing is added to."""


@dataclass(frozen=True)
class Player:
    """A row of the table.

    Attributes:
      controller: its name.
      settings: as for `--set`.
      drawn: whether it draws at random; what does not is played with the first seed only.
      preset: the preset that the settings change.
      as_preset: whether nothing but the settings changes the preset at full scale.
    """

    controller: str
    settings: tuple[str, ...] = ()
    drawn: bool = True
    preset: str = "demo"
    as_preset: bool = False

    @property
    def learns(self) -> bool:
        """Whether it learns, from the settings of the row."""
        return bool(load_config(self.preset, {"controller": self.controller}, self.settings).learns_in)

    def changes(self, scale: str) -> tuple[str, ...]:
        """Returns the changes of its preset at a scale, before the settings of the row."""
        return () if self.as_preset or self.preset in AS_PUBLISHED else SCHEDULES[scale]


@dataclass(frozen=True)
class Play:
    """One player on one graph with one seed: a unit of work, and the run that it makes.

    Attributes:
      graph: its name in the zoo.
      row: the name of the player's row.
      player: the player.
      scale: `smoke` or `full`.
      seconds: time of a search.
      seed: the seed.
      costs: the cost model.
      device: the device that measured costs are of.
    """

    graph: str
    row: str
    player: Player
    scale: str
    seconds: int
    seed: int
    costs: str = PRICES
    device: str = "cpu"

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        limit = () if self.player.learns else (f"search.seconds={self.seconds}",)
        priced = (f"costs={self.costs}", f"device={self.device}", "evaluate.climb_seconds=0")
        own, small = (*limit, *self.player.settings), SMALL if self.scale == "smoke" else ()
        changes = (*priced, *self.player.changes(self.scale), *own, *small)
        values = {"controller": self.player.controller, "seed": self.seed}
        return effective(load_config(self.player.preset, values, changes))

    @property
    def settings(self) -> Record:
        """Everything that the result depends on.

        Of what plays in dreams, this is also which kind of world model there is; of measured costs, the setting that
        they are measured in.
        """
        config = self.config
        known: Record = {"config": in_effect(config), "fingerprint": fingerprint(self.graph)}
        if config.uses_world_model:
            known["formats"] = {"world_model": FORMAT_VERSION}
        if config.measures_costs:
            known["setting"] = str(setting_of(OnnxRuntime(self.device)))
        return known

    @property
    def measures_costs(self) -> bool:
        """Whether its costs are measured on this machine."""
        return self.config.measures_costs

    @property
    def name(self) -> str:
        """The name of the unit."""
        return f"{self.graph}-{slug(self.row)}-{self.scale}-{self.seed}"

    @property
    def request(self) -> Request:
        """The request of the run, whose directory lies beside the unit's file."""
        directory = unit_path(UNITS, self.name, self.settings).with_suffix("")
        return Request(self.graph, None, self.config, directory, (UNITS,))

    def record(self, progress: ProgressDisplay) -> Record:
        """Returns the record of the unit; a finished one is not done again."""

        def work() -> Record:
            return {"settings": self.settings, **play(self.row, self.request, progress)}

        anywhere = not self.measures_costs
        return once(UNITS, self.name, self.settings, work, anywhere=anywhere, agree=same_play)

    @property
    def unit(self) -> Unit:
        """The unit of work that finishes the run and returns its record."""
        name, alone = f"{self.graph} {self.row} seed {self.seed}", self.scale == "full"  # processes take time to start
        return Unit(name, self.record, keeps=True, alone=alone)

    def models(self, progress: ProgressDisplay) -> tuple[CheckedModel, CheckedModel]:
        """Returns the start graph and the one that the controller is credited with, as models.

        The rewrites of the record are carried out. If they lead to it no more, or the graph is a waypoint, which
        records do not keep, it is read from the files of the run; a run whose files are gone is done again.

        Raises:
          ModelError: a graph can be written in no opset.
        """
        record, request = self.record(progress), self.request
        loaded = load(request.model, request.config)
        best = best_graph(record, loaded)
        if best is None:
            run, loaded = self.begun(progress)
            own, _ = credited(train_and_evaluate(run, loaded)[0])
            best = loaded.env.replay(own.best_actions)
            run.directory.mark_done()
        export = loaded.model.export_checked
        return export(loaded.model.graph), export(best)

    def begun(self, progress: ProgressDisplay) -> tuple[Run, Loaded]:
        """Returns the run, whose stages that are finished on this machine are not done again, and what it is about."""
        request = self.request
        loaded = load(request.model, request.config)
        return begin_run(request, loaded, progress), loaded


def slug(row: str) -> str:
    """Returns the name of a row or a graph as a part of a file's name."""
    return row.replace(",", "").translate(str.maketrans(" :=", "---"))


def units_of(
    graphs: Sequence[str],
    players: Mapping[str, Player],
    seeds: Sequence[int],
    scale: str,
    seconds: int | Mapping[str, int] | None = None,
) -> list[Unit]:
    """Returns the units of all players on all graphs; all of one seed come before those of the next.

    Args:
      players: the players by the names of their rows.
      seconds: of each search, or of each search on a graph; None: those of the scale.
    """
    limits = seconds if isinstance(seconds, Mapping) else dict.fromkeys(graphs, seconds or SECONDS[scale])
    return [
        Play(graph, row, player, scale, limits[graph], seed).unit
        for seed in seeds
        for graph in graphs
        for row, player in players.items()
        if player.drawn or seed == seeds[0]
    ]


def play(row: str, request: Request, progress: ProgressDisplay) -> Record:
    """Trains what the request asks for, or takes what it names, plays it for real, and returns what came of it."""
    loaded = load(request.model, request.config)
    run = begin_run(request, loaded, progress)
    evaluation, training = train_and_evaluate(run, loaded, request.trained)
    counts, spent = run.directory.counts(), run.directory.stage_seconds()
    run.directory.mark_done()
    plans = training.plans
    own, learned_from = credited(evaluation)
    return {
        "graph": request.model,
        "controller": row,
        "seed": request.config.seed,
        "world": request.config.learns_in,
        "own": 100 * own.improvement,
        "sampled": _mean_end(evaluation.sampled),
        "random": _percent(evaluation.random),
        "learned_from": None if learned_from is None else 100 * learned_from.improvement,
        "bound": None if training.bound_ms is None else 100 * (1 - training.bound_ms / own.costs_ms[0]),
        "gap": plans.get("gap"),
        "illegal": None if plans.get("illegal_share") is None else 100 * plans["illegal_share"],
        "recall": None if plans.get("offered") is None else 100 * plans["offered"],
        "rounds": [round_of(row) for row in training.rounds],
        **counts.to_json(),
        "minutes": sum(spent.values()) / 60,
        "memory_mb": run.directory.peak_memory_bytes() / 1e6,
        "stages": spent,
        "rules": rules_of(own),
        "actions": actions_of(own),
        RESULT: loaded.env.replay(own.best_actions).hash,
        "curves": curves_of(run.metrics.read()),
    }


def counts_of(records: Sequence[Record]) -> Record:
    """Returns the means of what runs have done, in the columns of `COUNTED`."""
    return {key: mean_of(records, "cost_evaluations" if key == "evaluations" else key) for key in COUNTED}


def playing_of(records: Sequence[Record], factor: float = 1.0) -> float | str:
    """Returns the mean time of the real episodes that follow learning [s], times a factor; a search has none."""
    seconds = [each["stages"].get(EVALUATION_STAGE, 0.0) if each["world"] else None for each in records]
    return mean_of([{"seconds": each} for each in seconds], "seconds", factor)


def credited(evaluation: Evaluation) -> tuple[EpisodeRecord, EpisodeRecord | None]:
    """Returns the best episode that a controller is credited with, and the best one that it has learned from, if any.

    A controller that learns for real has played the episodes of its training itself.
    """
    own, learned_from = evaluation.controller_best, evaluation.collection
    if learned_from is not None and learned_from.kind == TRAINED_ON:
        return max(own, learned_from, key=lambda record: record.improvement), None
    return own, learned_from


def round_of(row: Mapping[str, Any]) -> Record:
    """Returns the figures of a round: real steps that its world model has learned from, and what its plans are worth.

    `dream` and `real` are the mean improvements at the end of the plans, in the dream and of the same rewrites in
    reality without the illegal ones [%]; None if the sums of rewards are no improvements.
    """
    plans = row["plans"]
    return {
        "real_steps": row["real_steps"],
        "dream": plans.get("dreamed_percent"),
        "real": plans.get("skipping_percent"),
    }


def rules_of(record: EpisodeRecord) -> dict[str, int]:
    """Returns how many rewrites by each rule lead to the best graph of an episode."""
    return dict(Counter(record.action_names[: len(record.best_actions)]))


def actions_of(own: EpisodeRecord) -> list[list[int]] | None:
    """Returns the rewrites that lead to the best graph of an episode, each a rule and a location.

    Returns:
      None if the episode goes to a waypoint, which has no meaning beyond its run.
    """
    names = own.action_names[: len(own.best_actions)]
    return None if WAYPOINT in names else [list(action) for action in own.best_actions]


def best_graph(record: Record, loaded: Loaded) -> Graph | None:
    """Returns the best graph of a record; None if its rewrites do not lead there, or it has none."""
    if record.get("actions") is None:  # records of older versions have none
        return None
    try:
        graph = loaded.env.replay(record["actions"])
    except ValueError:
        return None
    return graph if graph.hash == record[RESULT] else None


def curves_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Returns the figures of a run's stages, each as a list beside the list of steps.

    Of a stage, these are at most `MOST_STEPS` steps with the last among them; of a search also its first step, and
    those at which its best cost changes.
    """
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["stage"] != EVALUATION_STAGE:
            stages.setdefault(row["stage"], []).append(row)
    curves = {}
    for stage, of_stage in stages.items():
        every = -(-len(of_stage) // MOST_STEPS)
        before = [None, *(row.get(BEST_COST) for row in of_stage)]
        last = len(of_stage) - 1
        kept = [
            row
            for at, row in enumerate(of_stage)
            if (last - at) % every == 0 or (BEST_COST in row and row[BEST_COST] != before[at])
        ]
        names = [name for name, value in kept[-1].items() if name != "stage" and isinstance(value, int | float)]
        curves[stage] = {name: [row[name] for row in kept] for name in names if all(name in row for row in kept)}
    return curves


def _mean_end(records: Sequence[EpisodeRecord]) -> float | None:
    """Returns the mean improvement at the end of episodes [%]; None if there are none."""
    ends = [100 * (1 - record.costs_ms[-1] / record.costs_ms[0]) for record in records if record.costs_ms[0] > 0]
    return sum(ends) / len(ends) if ends else None


def _percent(records: Sequence[EpisodeRecord]) -> float | None:
    return 100 * best_improvement(records) if records else None
