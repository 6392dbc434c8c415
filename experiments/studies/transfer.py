"""What a world model predicts of a graph that it was not trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from environment import zoo
from environment.policies.random import RandomAgent
from experiments.reproduce.units import Record
from experiments.runs.progress import ProgressDisplay
from experiments.runs.seeds import seed_for
from experiments.studies.evaluation import (
    GREEDY,
    RANDOM,
    Yardsticks,
    as_record,
    fitted_intervals,
    held_out_facts,
    held_out_figures,
    held_out_play,
)
from experiments.studies.rounds import Rounds, noting
from experiments.studies.setting import Effort
from worldmodel.data.episodes import collect


@dataclasses.dataclass(frozen=True)
class Target:
    """A graph to meet.

    Attributes:
      name: in the zoo.
      changes: of its configuration, see `zoo.build`.
    """

    name: str
    changes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """For tables and files."""
        return "-".join([self.name, *(f"{key}{value}" for key, value in self.changes.items())])


def transfer(rounds: Rounds, target: Target, effort: Effort, progress: ProgressDisplay) -> Record:
    """Figures of the model that knows random play of its own graph only, on another graph.

    Random play of the other graph says which actions it has. The trivial predictors and the frozen heads, which the
    model stands beside, are made of that play; the model itself learns nothing from it.

    Returns:
      See `judge`; "graph" is the other one, "training" that play of it.
    """
    model = rounds.model(0)
    intervals = fitted_intervals(model, *rounds.episodes(0), effort)
    proto = zoo.build(target.name, **target.changes)
    collecting, seed = rounds.setting.config.collect, seed_for(rounds.seed, "meet")
    title = f"{rounds.setting.graph} seed {rounds.seed}: meet {target.label}"
    with progress.stage(title, effort.episodes) as bar:
        env = rounds.environment(effort.max_steps, proto)
        agent = RandomAgent(noop_probability=collecting.noop_probability)
        met = rounds.named(collect(env, agent, effort.episodes, seed, on_episode=noting(bar)))
    facing = model.meet(met)
    yardsticks = Yardsticks.of(facing, met)
    played = {play: held_out_play(rounds, env, play, effort, progress) for play in (RANDOM, GREEDY)}
    return {
        "graph": target.label,
        "trained_on": rounds.setting.graph,
        "seed": rounds.seed,
        "round": 0,
        "actions": facing.num_actions,
        "held_out": {play: held_out_facts(facing, met, held_out, effort) for play, held_out in played.items()},
        "intervals": intervals,
        "figures": [
            {"play": play, **as_record(figure)}
            for play, held_out in played.items()
            for figure in held_out_figures(facing, yardsticks, held_out, intervals["factor"], effort)
        ],
    }
