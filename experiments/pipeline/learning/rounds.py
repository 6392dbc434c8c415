"""Trains world models and controllers in rounds, for `rlflow optimise`, `rlflow train` and every study.

    learning = Learning(run, loaded)
    learning.model(0)            # collects random episodes and trains a world model on them
    learning.controller(0)       # trains a controller in its dream
    learning.model(1)            # collects real episodes of that controller and trains the world model further
    learning.controller(1)       # …

Each call first makes whatever it needs and the run directory does not hold yet. The results of finished stages are read
from files, and a long stage continues from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.interface import Controller
from controller.records import EpisodeRecord
from controller.registry import build, needs_tensorflow
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.clock.retime import retime_gain, retimes
from experiments.pipeline.clock.timings import STAGE as TIMINGS
from experiments.pipeline.clock.timings import TITLE as TIMINGS_TITLE
from experiments.pipeline.clock.timings import few_timings, restore_timings, share_of, time_batch
from experiments.pipeline.learning import world_model
from experiments.pipeline.learning.collect import (
    best_collected,
    best_plans,
    collect_episodes,
    joined,
    parted,
    read_episodes,
    recollect_episodes,
)
from experiments.pipeline.learning.world_model import RoundModel, train_further, train_world_model
from experiments.pipeline.loading.load import Loaded
from experiments.runs.directory import finite
from experiments.runs.result import omits
from experiments.runs.rounds import EXPLOIT, best_round, keep_played_round, last_round, plans_file
from experiments.runs.run import Run, in_round, of_round, start_tensorflow
from worldmodel.accuracy.omissions import Offers
from worldmodel.data.episodes import EpisodeBuffer, replayed

if TYPE_CHECKING:  # the stage imports TensorFlow when it runs
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.world_model import WorldModel

STAGE = "controller"
MIXED = "mixed"
"""Folder among the checkpoints: real episodes that a policy plays while it is trained in the world `mixed`."""
BEST_IN_TRAINING = "checkpoints/best_in_training.json"
RETURNS = ("return", "best_return")
FIGURES_SHOWN = ("best_cost_ms", "percent", "best_percent", "timed", "dropped")
PLANS = 20
"""Number of episodes that a policy plays in its dream for the comparison with reality."""
FEWEST_CHECKPOINTS = 10
"""Number of checkpoints of a training with few, long units of work."""


class Learning:
    """The world models of one graph, and the controllers trained in their dreams.

    Round 0 learns from random episodes. The world model of each later round starts from the world model of the round
    before and learns from real episodes of that round's controller too; then a new one is trained in its dream. All
    results are determined by the settings.

    Attributes:
      run: the run that keeps the stages.
      loaded: the model, the rules and the real environment.
      first: the run that keeps the random episodes and the world model of round 0.
    """

    def __init__(self, run: Run, loaded: Loaded, first: Run | None = None) -> None:
        """
        Args:
          first: the run that keeps the random episodes and the world model of round 0, if several runs with
            different policies share them; None means `run`.
        """
        self.run, self.loaded, self.first = run, loaded, first or run
        self._models: dict[int, RoundModel] = {}
        self._controllers: dict[int, Controller] = {}
        self._played: dict[int, EpisodeBuffer] = {}
        self._priced: dict[int, tuple[EpisodeBuffer, EpisodeBuffer]] = {}

    @functools.cached_property
    def random_play(self) -> EpisodeBuffer:
        """The random episodes: those that round 0 learns from and those that are held out."""
        return collect_episodes(self.first, self.loaded)

    def episodes(self, number: int) -> tuple[EpisodeBuffer, EpisodeBuffer]:
        """Returns (training, held-out) episodes of a round; only random episodes are held out."""
        training, held_out = parted(self.run.config, self.random_play)
        training = joined([training, *map(self.policy_play, range(number))])
        if few_timings(self.loaded) is None:
            return training, held_out
        if number not in self._priced:
            self._priced[number] = self._priced_anew(number, training, held_out)
        return self._priced[number]

    def _priced_anew(
        self, number: int, training: EpisodeBuffer, held_out: EpisodeBuffer
    ) -> tuple[EpisodeBuffer, EpisodeBuffer]:
        """Times a round's share of whole graphs, and returns its episodes by the prices that follow."""
        run, env, stage = self.run if number else self.first, self.loaded.env, of_round(TIMINGS, number)
        if run.config.collect.actions != "site":
            raise UserError(
                f"With costs={run.config.costs}, episodes are priced anew after graphs were timed, for which rewrites "
                f"must be named by their site: expected collect.actions=site, got {run.config.collect.actions}."
            )
        restore_timings(run.directory, self.loaded)
        if not run.directory.finished(stage):
            most = share_of(self.loaded, run.config.recollect.most + 2, number)  # the last one is of the evaluation
            plans = best_plans(replayed(env, training))
            time_batch(run, self.loaded, plans, stage, in_round(TIMINGS_TITLE, number), most)
        return replayed(env, training), replayed(env, held_out)

    def policy_play(self, number: int) -> EpisodeBuffer:
        """Returns real episodes of a round's controller, which the next round learns from."""
        if number not in self._played:
            from worldmodel.dream.players import player_of

            model, controller = self.model(number), self.controller(number)
            player, short = player_of(controller), self._omits(number)
            played = recollect_episodes(self.run, self.loaded, model, player, omits=short)
            self._played[number] = joined([*self._mixed(number), played])
        return self._played[number]

    def model(self, number: int) -> RoundModel:
        """Returns the world model of a round."""
        if number not in self._models:
            training, _ = self.episodes(number)
            start_tensorflow(self.run)
            self._models[number] = (
                train_further(self.run, self.loaded, self.model(number - 1), training, omits=self._omits(number - 1))
                if number
                else train_world_model(self.first, self.loaded, training)
            )
        return self._models[number]

    def accuracy(self, number: int) -> list[dict[str, Any]]:
        """Returns the accuracy of a round's world model on held-out episodes; see `measure_accuracy`."""
        run = self.run if number else self.first
        return world_model.measure_accuracy(run, self.loaded, self.model(number), *self.episodes(number))

    def root_dream(self, model: WorldModel) -> DreamEnv:
        """Returns the dream of a world model that begins at the start graph, to be compared with frozen costs."""
        from worldmodel.dream.dream_env import DreamEnv

        without_noise = dataclasses.replace(self.run.config.dream, noise=False)
        return DreamEnv.of_root(model, self.loaded.env, without_noise)

    def controller(self, number: int) -> Controller:
        """Returns a round's controller, trained only in the dream of that round's world model.

        Raises:
          UserError: the world model names rewrites in a way that controllers do not support.
        """
        if number not in self._controllers:
            unsaved = {each: made for each, made in self._controllers.items() if not made.saves}
            self._controllers = unsaved | {number: self._trained(number)}  # not all: each holds a world model
        return self._controllers[number]

    def untrained(self, number: int) -> Controller:
        """Returns a round's controller as it is before its training, which has nothing to do if it does not train.

        Raises:
          UserError: see `controller`.
        """
        config, model = self.run.config, self.model(number)
        if config.collect.actions != "site":
            raise UserError(
                f"collect.actions is '{config.collect.actions}', but a controller needs rewrites named by their site: "
                "set collect.actions=site, or only train the world model."
            )
        return learner(config, self.loaded, self.run.seed(of_round(STAGE, number)), model.fresh(), number)

    def _trained(self, number: int) -> Controller:
        controller = self.untrained(number)
        train(self.run, controller, lambda: self._world(number, controller), number=number)
        return controller

    def _world(self, number: int, controller: Controller) -> Any:
        """Returns the world that a round's controller is trained in."""
        from worldmodel.dream.dream_env import DreamEnv

        config, model = self.run.config, self.model(number).fresh()
        seed, episodes = self.run.seed(of_round(STAGE, number)), self.episodes(number)[0]
        if config.learns_in == "dream":
            return DreamEnv.of_episodes(model, episodes, config.dream, seed=seed, env=self.loaded.env)
        from controller.worlds.mixed import MixedWorld

        return MixedWorld(
            model,
            self.loaded.env,
            episodes,
            config.dream,
            **dataclasses.asdict(config.mixed),
            directory=self._mixed_directory(number),
            done=controller.num_updates,
            seed=seed,
        )

    def _mixed_directory(self, number: int) -> Path:
        return self.run.directory.checkpoint(of_round(MIXED, number))

    def _mixed(self, number: int) -> list[EpisodeBuffer]:
        """Returns the real episodes that a round's controller has played while it was trained; empty if it did not."""
        directory = self._mixed_directory(number)
        return [read_episodes(directory)] if directory.is_dir() else []

    def plans(self, number: int) -> dict[str, Any]:
        """Plays a round's controller wholly in its dream, from the start graph, and tries the same rewrites in reality.

        This shows how much it exploits the mistakes of the dream that it was trained in. The result is kept as
        `checkpoints/exploit.json`, of a later round as `checkpoints/exploit-<number>.json`.

        Returns:
          The fields of `worldmodel.accuracy.exploit.Comparison`, with None for undefined ones, and the
          `worldmodel.accuracy.omissions.Offers.facts` of the plans, and whether the dream telescopes; empty if rewards
          do not, so that their sum depends on the way to a graph.
        """
        run, stage = self.run, of_round(EXPLOIT, number)
        name = plans_file(number)
        if not run.config.reward_telescopes:
            self.controller(number)
            return {}
        if not run.directory.finished(stage):
            controller = self.controller(number)
            with run.stage(stage, in_round("compare dream and reality", number), 1) as bar:
                run.directory.write_json(name, _dreamed_and_real(self, number, controller))
                bar.update(1)
        return run.directory.stored(name, dict)

    def _omits(self, number: int) -> bool:
        """Returns whether a round's dream offers too few of the rewrites that pay, if anything depends on it."""
        weighted = self.run.config.recollect.omitted or self.run.config.recollect.emphasis
        return bool(weighted) and omits(self.accuracy(number), self.plans(number))

    def round_row(self, number: int) -> dict[str, Any]:
        """Trains a round to its end.

        Returns:
          A row of the report: the number of the round, the numbers of training episodes and of their real steps, the
          accuracy after the largest number of steps, and under "plans" the figures of `plans`.
        """
        accuracy = self.accuracy(number)
        training, _ = self.episodes(number)
        facts = {"round": number, "episodes": len(training), "real_steps": training.num_transitions}
        return facts | (accuracy[-1] if accuracy else {}) | {"plans": self.plans(number)}

    @property
    def last_round(self) -> int:
        """The number of the last round, by what the dreams have promised so far; see `experiments.runs.rounds`."""
        return last_round(self.run.directory, self.run.config)

    def round_rows(self) -> list[dict[str, Any]]:
        """Trains all rounds, one after another, and returns their rows; see `round_row`."""
        rows: list[dict[str, Any]] = []
        while len(rows) <= self.last_round:
            rows.append(self.round_row(len(rows)))
        return rows

    def best_round(self) -> int:
        """Returns the number of the round whose policy plays, and keeps it; see `experiments.runs.rounds`."""
        number = best_round([self.plans(number) for number in range(self.last_round + 1)])
        keep_played_round(self.run.directory, number)
        return number

    def best_episode(self) -> EpisodeRecord:
        """Returns the best real episode so far, of random play and of what the controllers have played to learn."""
        return best_collected(self.collected(), "recollection" if self._own_play() else "collection")

    def collected(self) -> EpisodeBuffer:
        """Returns all real episodes so far."""
        played = joined([self.random_play, *self._own_play()])
        return played if few_timings(self.loaded) is None else replayed(self.loaded.env, played)

    def _own_play(self) -> list[EpisodeBuffer]:
        return [*self._played.values(), *self._mixed(self.last_round)]


def _dreamed_and_real(learning: Learning, number: int, controller: Controller) -> dict[str, Any]:
    from worldmodel.accuracy.exploit import compare, dreamed_then_replayed
    from worldmodel.dream.players import player_of

    model = learning.model(number).fresh()
    played = dreamed_then_replayed(
        model,
        learning.root_dream(model),
        learning.loaded.env,
        player_of(controller),
        episodes=PLANS,
        horizon=learning.loaded.env.max_steps,
        seed=learning.run.seed(of_round(EXPLOIT, number)),
    )
    found = dataclasses.asdict(compare(played))
    offers = Offers.joined(each.offers for each in played)
    facts = offers.facts(learning.loaded.env.rule_names) | {"telescoping": learning.run.config.dream.telescoping}
    return {name: finite(value) for name, value in found.items()} | facts


def learner(
    config: RunConfig, loaded: Loaded, seed: int, model: WorldModel | None = None, number: int = 0
) -> Controller:
    """Returns the controller that the settings name, not trained yet.

    Args:
      model: the world model whose dreams it learns in; None if it learns elsewhere, or nothing.
      number: that of its round of recollection.
    Raises:
      UserError: it cannot be built with these settings.
    """
    offered = {
        "env": loaded.env,
        "world": config.learns_in,
        "dream": config.dream,
        "policy": config.policy.of_round(number),
        "encoder": config.graph_encoder,
        "seed": seed,
        "sampling_temperature": config.evaluate.sampling_temperature,
        "budget": config.search.budget,
        **({} if model is None else {"world_model": model}),
        **({} if config.of_controller is None else {"config": config.of_controller}),
    }
    return build(config.controller, config.options.get(config.controller, {}), offered)


def train_for_real(run: Run, loaded: Loaded) -> tuple[Controller, EpisodeRecord | None]:
    """Trains a controller in the real environment, without a world model.

    Returns:
      The controller, and the best episode of its training; None if there was no episode.
    """
    if needs_tensorflow(run.config.controller):
        start_tensorflow(run)
    from controller.worlds.real import RealWorld

    controller = learner(run.config, loaded, run.seed(STAGE))
    best = run.directory.stored(BEST_IN_TRAINING, lambda fields: EpisodeRecord.from_json(fields) if fields else None)
    world = RealWorld(loaded.make_env, best=best)

    def make_world() -> RealWorld:
        if retimes(run, loaded):
            world.reprice()  # before an interruption, kernels may have been timed after `best` was stored
        return world

    def keep_best() -> None:
        if world.best is not None:
            plan = world.best.best_actions
            if plan and retimes(run, loaded) and retime_gain(run, loaded, plan)["timed"]:
                world.reprice()
            run.directory.write_json(BEST_IN_TRAINING, world.best.to_json())

    train(run, controller, make_world, before_checkpoint=keep_best)
    return controller, world.best


def train(
    run: Run,
    controller: Controller,
    make_world: Callable[[], Any],
    before_checkpoint: Callable[[], None] = lambda: None,
    number: int = 0,
    base_stage: str = STAGE,
    checkpoint: str = "controller",
) -> None:
    """Trains a controller, continuing from its last checkpoint.

    Args:
      run: the run.
      controller: the controller, which is changed in place.
      make_world: makes the world to train in, a dream or the real environment; not called if no training is left.
      before_checkpoint: saves whatever else must survive an interruption; it may include work that is then repeated.
      number: number of the round.
      base_stage, checkpoint: names of the stage and of the checkpoint in the first round.
    """
    stage = of_round(base_stage, number)
    if not controller.trains:  # it plays as it is
        return
    path = run.directory.checkpoint(of_round(checkpoint, number))
    finished = run.directory.finished(stage)
    if controller.saves and (finished or path.is_file()):
        controller.load(path)
    if finished and controller.saves:
        return
    if finished:
        run.progress.note(f"{controller.name} keeps nothing of its training, and is trained again.")
    every = min(run.config.updates_per_checkpoint, max(1, controller.total // FEWEST_CHECKPOINTS))
    every = every if controller.worlds and controller.saves else 0
    title = in_round(f"train {controller.name}", number)
    with run.stage(stage, title, controller.total, controller.limit_s) as bar:
        world, rewound = make_world(), False
        figures = getattr(world, "figures", dict)  # of the real environment alone

        def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
            nonlocal rewound
            if not rewound:  # the work after the last checkpoint is repeated
                run.metrics.rewind(stage, done)
                rewound = True
            metrics = {**metrics, **figures()}
            run.metrics.append(stage, done, metrics)
            shown = FIGURES_SHOWN if "percent" in metrics else (*RETURNS, *FIGURES_SHOWN)
            bar.update(done, **{name: metrics[name] for name in shown if name in metrics})
            if every and done % every == 0:
                before_checkpoint()
                controller.save(path)
                run.directory.keep_counts(stage)
            elif controller.clocked:  # its journal keeps all that it has done
                run.directory.keep_counts(stage)

        controller.train(world, seed=run.seed(stage), on_progress=note)
        before_checkpoint()
        controller.save(path)
