"""Builds the controller and trains it in its world; searches do their work here too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from controller.base import Controller, factory
from controller.records import EpisodeRecord
from controller.search import SearchLimits
from experiments.run import Run
from experiments.stages.accuracy import measure_accuracy
from experiments.stages.collect import best_collected, collect_episodes, parted
from experiments.stages.load import Loaded
from experiments.stages.world_model import train_world_model
from experiments.tensorflow_start import start_tensorflow

STAGE = "controller"
BEST_IN_TRAINING = "checkpoints/best_in_training.json"
FIGURES_SHOWN = ("return", "best_return", "best_cost_ms")


@dataclasses.dataclass(frozen=True)
class TrainingFacts:
    """What the report says of the training.

    Attributes:
      num_collected: episodes played in the real environment before the evaluation.
      accuracy: of the world model on held-out episodes, a row for each number of steps.
      stop_reason: why a search stopped; empty where nothing searched.
    """

    num_collected: int = 0
    accuracy: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    stop_reason: str = ""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """
    Attributes:
      controller: ready to play.
      collection: the best real episode before the evaluation: of the random collection, or of model-free training.
      facts: about its training.
    """

    controller: Controller
    collection: EpisodeRecord | None = None
    facts: TrainingFacts = TrainingFacts()


def prepare_controller(run: Run, loaded: Loaded) -> Prepared:
    """The controller that the configuration names, trained with everything that it needs."""
    if run.config.controller == "ppo":
        return _ppo_in_the_dream(run, loaded) if run.config.world == "dream" else _ppo_in_the_real_world(run, loaded)
    search = run.config.search
    limits = SearchLimits(search.budget, search.seconds, search.memory_mb, search.threads)
    settings: Mapping[str, Mapping[str, Any]] = {
        "taso": {"alpha": search.alpha, "passes": search.passes, "limits": limits},
        "beam": {"width": search.width, "limits": limits},
        "passes": {"limits": limits},
        "restarts": {"walk": search.walk, "limits": limits},
        "random": {"noop_probability": run.config.collect.noop_probability},
    }
    controller = factory(run.config.controller)(**settings.get(run.config.controller, {}))
    loaded.env.reset(seed=run.seed(STAGE))
    train(run, controller, loaded.env, search.budget)
    return Prepared(controller, facts=TrainingFacts(stop_reason=getattr(controller, "stop_reason", "")))


def _ppo_in_the_dream(run: Run, loaded: Loaded) -> Prepared:
    """Collection, world model, then PPO on nothing but the world model."""
    config = run.config
    buffer = collect_episodes(run, loaded)
    training, held_out = parted(config, buffer)
    start_tensorflow(run)
    from controller.ppo_controller import PpoController
    from worldmodel.dream import DreamEnv

    model = train_world_model(run, training)
    accuracy = measure_accuracy(run, model, training, held_out)
    seed = run.seed(STAGE)
    controller = PpoController.for_dream(
        model, config.ppo, config.policy, seed=seed, sampling_temperature=config.evaluate.sampling_temperature
    )
    starts = model.start_states(training, seed=seed)
    dream = DreamEnv(model, starts, **dataclasses.asdict(config.dream))
    train(run, controller, dream, config.ppo.updates, config.updates_per_checkpoint)
    return Prepared(controller, best_collected(buffer), TrainingFacts(len(buffer), accuracy))


def _ppo_in_the_real_world(run: Run, loaded: Loaded) -> Prepared:
    """Model-free PPO: no collection and no world model."""
    start_tensorflow(run)
    from controller.ppo_controller import PpoController
    from controller.real_world import RealWorld

    config = run.config
    controller = PpoController.for_real(
        loaded.env,
        config.ppo_real,
        config.policy,
        config.world_model.encoder,
        seed=run.seed(STAGE),
        sampling_temperature=config.evaluate.sampling_temperature,
    )
    stored = run.directory.read_json(BEST_IN_TRAINING)
    world = RealWorld(loaded.make_env, best=EpisodeRecord.from_json(stored) if stored else None)

    def keep_best() -> None:
        assert world.best is not None  # an update has been played
        run.directory.write_json(BEST_IN_TRAINING, world.best.to_json())

    train(run, controller, world, config.ppo_real.updates, config.updates_per_checkpoint, before_checkpoint=keep_best)
    return Prepared(controller, world.best, TrainingFacts(config.ppo_real.updates * config.ppo_real.batch))


def train(
    run: Run,
    controller: Controller,
    world: Any,
    total: int,
    checkpoint_every: int | None = None,
    before_checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Trains `controller`, continuing from its last checkpoint.

    Args:
      run: the run.
      controller: changed in place.
      world: what it trains in: a dream or the real environment.
      total: units of work, for the progress bar.
      checkpoint_every: units between checkpoints; None for a controller that cannot continue half-way.
      before_checkpoint: saves what else must survive; work that an interruption makes come again may be in it twice.
    """
    if type(controller).train is Controller.train:  # it plays as it is
        return
    path = run.directory.checkpoint("controller")
    if path.is_file():
        controller.load(path)
    if run.directory.finished(STAGE):
        return
    with run.stage(STAGE, f"train {controller.name}", total) as bar:
        rewound = False

        def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
            nonlocal rewound
            if not rewound:  # what came after the last checkpoint comes again
                run.metrics.rewind(STAGE, done)
                rewound = True
            run.metrics.append(STAGE, done, metrics)
            bar.update(done, **{name: metrics[name] for name in FIGURES_SHOWN if name in metrics})
            if checkpoint_every and done % checkpoint_every == 0:
                before_checkpoint()
                controller.save(path)

        controller.train(world, seed=run.seed(STAGE), on_progress=note)
        before_checkpoint()
        controller.save(path)
