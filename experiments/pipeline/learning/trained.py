"""`rlflow optimise MODEL --from RUN`: the controller that another run has trained plays on this model's graph.

On the graph that it was trained on, the controller plays as it is. On another graph, random play shows which rewrites
there are. The world model adapts to the graph without learning from it (`worldmodel.from_episodes.adapt`), and the
policy's weights are transferred to the actions of the other graph (`controller.policies.transfer`). A policy with the
head `pointer` plays on every graph as it is, and so does `xrlflow`. A world model also adapts to the same graph under
other costs, which are features of its nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.interface import Controller
from controller.registry import needs_tensorflow
from experiments.config.effect import ON_GRAPHS
from experiments.config.run import OF_CONTROLLERS, RunConfig, load_config, overrides, stored_config
from experiments.config.tree import as_mapping, replaced
from experiments.errors import UserError
from experiments.pipeline.clock.timings import adopt_timings
from experiments.pipeline.learning.collect import best_collected, collect_episodes
from experiments.pipeline.learning.controller import Prepared, TrainingFacts
from experiments.pipeline.learning.rounds import STAGE, learner
from experiments.pipeline.learning.world_model import BUNDLE, MDN_RNN
from experiments.pipeline.loading.load import Loaded
from experiments.runs.directory import RunDirectory, differences
from experiments.runs.rounds import EXPLOIT, first_of, last_round, played_round
from experiments.runs.run import Run, of_round, start_tensorflow

FIXED = ("controller", "world", "world_model", "dream", "recollect", "options", *OF_CONTROLLERS)
"""Settings with which the controller was trained; it has to play with the same."""
TAKEN = (*FIXED, "costs", "rules", "only", "skip", "opset", "portable", "environment", "collect")
"""Settings that are taken from RUN unless the command says otherwise."""
FINGERPRINTS = {
    "rules": "other rules",
    "features": "other features of graphs",
    "formats": "other formats of checkpoints",
}
"""Parts of the fingerprint that have to be the same, and what the error calls a difference."""


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A run that has trained a controller.

    Attributes:
      path: the run directory.
      config: the settings of the run.
      fingerprint: fingerprint of its graph, rules, features and formats.
    """

    path: Path
    config: RunConfig
    fingerprint: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, reward: object = None) -> TrainedRun:
        """Reads a run directory.

        Args:
          path: the directory.
          reward: the reward that the command itself names, if any.
        Raises:
          UserError: it is no run directory, it holds no trained controller, or its reward would be imported although
            the command does not name it.
        """
        if not RunDirectory.holds_run(path):
            raise UserError(
                f"{path} is no run directory: config.json is missing. --from expects what `rlflow optimise` or "
                "`rlflow train controller` has left."
            )
        directory = RunDirectory(path, resumed=True)
        stored = directory.stored("config.json", dict)
        fingerprint = stored.pop("fingerprint", {})
        config = stored_config(stored, str(path / "config.json"), reward=reward)
        if not config.learns_in:
            raise UserError(
                f"{path} holds no trained controller: its controller is '{config.controller}', which does not learn. "
                "Name a run of a controller that does, such as --controller ppo."
            )
        run = cls(path, config, fingerprint)
        compared, needed = of_round(EXPLOIT, run.last_round), []
        if config.uses_world_model:
            needed.append(of_round(MDN_RNN, run.last_round))
            if config.reward_telescopes:
                needed.append(compared)  # it decides which round plays
        # A controller that trains nothing has no stage of training, but one of those that follow it.
        ends = of_round(STAGE, run.last_round), compared, "evaluate"
        has_model = all(directory.finished(each) or first_of(directory).finished(each) for each in needed)
        if not (has_model and any(map(directory.finished, ends))):
            raise run._unfinished()
        return run

    def load_into(self, controller: Controller) -> None:
        """Gives a controller what the run has trained, if it has anything to train.

        Raises:
          UserError: the run has not trained it.
        """
        if not controller.trains:
            return
        if not RunDirectory(self.path, resumed=True).finished(of_round(STAGE, self.last_round)):
            raise self._unfinished()
        controller.load(self.checkpoint("controller"))

    def _unfinished(self) -> UserError:
        return UserError(
            f"{self.path} holds no trained controller: its training is not finished. Repeat the command of that run, "
            "or `rlflow train controller` with its options."
        )

    def require(self, fingerprint: Mapping[str, Any]) -> None:
        """Raises UserError unless the controller was trained with the same rules, features and formats."""
        for name, said in FINGERPRINTS.items():
            there, here = self.fingerprint.get(name), fingerprint[name]
            if there != here:
                raise UserError(
                    f"The controller of {self.path} was trained under {said}: {there} there, {here} here. Use the "
                    "rules (--rules, --opset, --portable) and the version that it was trained with, or train one anew."
                )

    @property
    def last_round(self) -> int:
        """The number of the last round."""
        return last_round(RunDirectory(self.path, resumed=True), self.config)

    @property
    def played_round(self) -> int:
        """The number of the round whose policy plays."""
        return played_round(RunDirectory(self.path, resumed=True), self.config)

    def checkpoint(self, name: str) -> Path:
        """Returns the path of an artefact of the round whose policy plays."""
        directory, played = RunDirectory(self.path, resumed=True), self.played_round
        if name == BUNDLE and not played:
            directory = first_of(directory)
        return directory.checkpoint(of_round(name, played))


def playing_config(path: Path, preset: str, given: Mapping[str, Any], assignments: Sequence[str]) -> RunConfig:
    """Returns the settings of a command that plays a trained controller.

    Args:
      path: run directory of the trained controller.
      preset, given, assignments: see `load_config`; settings of training must be equal to those of the run.
    Raises:
      UserError: the run holds no trained controller, or the command asks for other settings of training.
    """
    changes = overrides(assignments)
    section = changes.get("environment")
    trained = TrainedRun.read(path, section.get("reward") if isinstance(section, Mapping) else None)
    stored = as_mapping(trained.config)
    base = replaced(load_config(preset, {}), {name: stored[name] for name in TAKEN}, str(path / "config.json"))
    config = replaced(replaced(base, given, "the command line"), changes, "--set")
    wanted = as_mapping(config)
    for part in (*FIXED, "environment"):
        for difference in differences(stored[part], wanted[part], part):
            if not difference.startswith("environment.max_steps "):
                raise UserError(
                    f"The controller of {path} was trained with other settings: {difference}. Leave that out, or train "
                    "a controller with it."
                )
    config.bound_dims()
    return config


def prepare_trained(run: Run, loaded: Loaded, path: Path) -> Prepared:
    """Prepares the controller of another run to play on this run's graph.

    Raises:
      UserError: the rules, features or formats differ, or the controller can only play on the graph that it learned on.
    """
    trained = TrainedRun.read(path, run.config.environment.reward)
    trained.require(loaded.fingerprint)
    same_graph = trained.fingerprint["graph"] == loaded.fingerprint["graph"]
    if same_graph and trained.config.costs == run.config.costs:
        adopt_timings(run, loaded, RunDirectory(trained.path, resumed=True))
    if trained.config.uses_world_model or needs_tensorflow(run.config.controller):
        start_tensorflow(run)
    if not trained.config.uses_world_model:
        points = run.config.controller in ON_GRAPHS and run.config.policy.head == "pointer"
        plays_anywhere = points or run.config.controller == "xrlflow"
        if not (same_graph or plays_anywhere):
            raise UserError(
                f"The controller of {path} was trained in the real environment of another graph, and knows no other. "
                "Name a run of --world dream, whose world model adapts to this graph, or of policy.head=pointer or "
                "--controller xrlflow, which play on any graph."
            )
        controller = learner(run.config, loaded, run.seed(STAGE))
        trained.load_into(controller)
        return Prepared(controller)
    from worldmodel.signature import Signature
    from worldmodel.world_model import WorldModel

    world_model = WorldModel.load(trained.checkpoint(BUNDLE), Signature.of(loaded.env))
    controller = learner(run.config, loaded, run.seed(STAGE), world_model, trained.played_round)
    trained.load_into(controller)
    if same_graph and trained.config.costs == run.config.costs:
        return Prepared(controller)
    if controller.policy is None:
        raise UserError(
            f"The controller of {path}, '{controller.name}', was trained on another graph or for other costs, and only "
            "policies are transferred. Train one on this graph, or name a run of --controller ppo."
        )
    from controller.policies.transfer import warm_start
    from worldmodel.from_episodes import adapt

    play = collect_episodes(run, loaded)
    adapted = adapt(world_model, play)
    player = learner(run.config, loaded, run.seed(STAGE), adapted, trained.played_round)
    warm_start(controller.policy, world_model.table, player.policy, adapted.table)
    return Prepared(player, best_collected(play, "collection"), TrainingFacts(len(play)))
