"""Builds the controller and trains it in its world; searches do their work here too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.interface import Controller, factory
from controller.records import EpisodeRecord
from controller.search.replayed import SHORTEST_S, Actions, Search, SearchLimits
from experiments.config.run import RunConfig
from experiments.pipeline.accuracy import measure_accuracy
from experiments.pipeline.collect import best_collected, collect_episodes, joined, parted
from experiments.pipeline.exploit import compare_with_reality
from experiments.pipeline.load import Loaded
from experiments.pipeline.recollect import recollect_episodes
from experiments.pipeline.retime import can_sharpen, sharpen_gain
from experiments.pipeline.world_model import RoundModel, train_further, train_world_model
from experiments.runs.run import Run, in_round, of_round
from experiments.runs.tensorflow_start import start_tensorflow
from worldmodel.data.episodes import EpisodeBuffer

if TYPE_CHECKING:  # TensorFlow is imported by the stage, not with the module
    from controller.ppo.controller import PpoController

STAGE = "controller"
BEST_IN_TRAINING = "checkpoints/best_in_training.json"
FIGURES_SHOWN = ("return", "best_return", "best_cost_ms")


@dataclasses.dataclass(frozen=True)
class TrainingFacts:
    """What the report says of the training.

    Attributes:
      num_collected: episodes played in the real environment before the evaluation.
      accuracy: of the last world model on held-out episodes, a row for each number of steps.
      stop_reason: why a search stopped; empty where nothing searched.
      rounds: a row for each round of recollection, that before the first included, see `_Trained.row`.
    """

    num_collected: int = 0
    accuracy: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    stop_reason: str = ""
    rounds: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """
    Attributes:
      controller: ready to play.
      collection: the best real episode before the evaluation: of the random collection and of recollection, or of
        model-free training.
      facts: about its training.
    """

    controller: Controller
    collection: EpisodeRecord | None = None
    facts: TrainingFacts = TrainingFacts()


def prepare_controller(run: Run, loaded: Loaded) -> Prepared:
    """The controller that the configuration names, trained with everything that it needs."""
    if run.config.controller == "ppo":
        return _ppo_in_the_dream(run, loaded) if run.config.world == "dream" else _ppo_in_the_real_world(run, loaded)
    controller = _new_controller(run.config, run.config.search.seconds)
    return _searched(run, loaded) if isinstance(controller, Search) else Prepared(controller)


def _searched(run: Run, loaded: Loaded) -> Prepared:
    """The search that, of several rounds, has found the cheapest graph, by prices as they are at last."""
    config = run.config.search
    rounds = config.rounds if can_sharpen(loaded) and config.sharpen_seconds else 1
    searches: list[Search] = []
    for number in range(rounds):
        search = _new_controller(run.config, _time_left(run, number) / (rounds - number))
        assert isinstance(search, Search)
        loaded.env.reset(seed=run.seed(STAGE))
        train(run, search, lambda: loaded.env, config.budget, number=number)
        searches.append(search)
        if not sharpen_gain(run, loaded, _found(_best(loaded, searches)), number):
            break
    best = _best(loaded, searches)
    return Prepared(best, facts=TrainingFacts(stop_reason=str(best.stop_reason or "")))


def _best(loaded: Loaded, searches: Sequence[Search]) -> Search:
    """The first of equals, by prices as they are now."""
    return min(searches, key=lambda search: loaded.env.replay(_found(search)).cost(loaded.env.cost_model).ms)


def _found(search: Search) -> Actions:
    assert search.actions is not None  # it has been trained
    return search.actions


def _time_left(run: Run, number: int) -> float:
    """Seconds that rounds of a search before this one have left of their limit; 0 where there is none."""
    spent = run.directory.stage_seconds()
    left = run.config.search.seconds - sum(spent.get(of_round(STAGE, before), 0.0) for before in range(number))
    return max(left, SHORTEST_S) if run.config.search.seconds else 0.0


def _new_controller(config: RunConfig, seconds: float) -> Controller:
    """One that needs no world model; a search gets so much time."""
    search = config.search
    limits = SearchLimits(search.budget, seconds, search.memory_mb, search.threads)
    settings: Mapping[str, Mapping[str, Any]] = {
        "taso": {"alpha": search.alpha, "passes": search.passes, "limits": limits},
        "beam": {"width": search.width, "limits": limits},
        "passes": {"limits": limits},
        "restarts": {"walk": search.walk, "limits": limits},
        "random": {"noop_probability": config.collect.noop_probability},
    }
    return factory(config.controller)(**settings.get(config.controller, {}))


def _ppo_in_the_dream(run: Run, loaded: Loaded) -> Prepared:
    """Collection, world model, then PPO on nothing but that; in each round again, with what PPO really plays."""
    random_play = collect_episodes(run, loaded)
    training, held_out = parted(run.config, random_play)
    start_tensorflow(run)
    latest = _trained(run, loaded, train_world_model(run, loaded, training), [training], held_out)
    played: list[EpisodeBuffer] = []
    rounds = [latest.row]
    for _ in range(run.config.recollect.rounds):
        played.append(recollect_episodes(run, loaded, latest.model, latest.controller.policy))
        parts = [training, *played]
        latest = _trained(run, loaded, train_further(run, latest.model, parts), parts, held_out)
        rounds.append(latest.row)
    collected = joined([random_play, *played])
    best = best_collected(collected, "recollection" if played else "collection")
    return Prepared(latest.controller, best, TrainingFacts(len(collected), latest.accuracy, rounds=rounds))


class _Trained(NamedTuple):
    """What a round has come to.

    Attributes:
      accuracy: see `measure_accuracy`.
      row: for the report: the number of the round, episodes and real steps of training, the accuracy after most steps,
        and the figures of `compare_with_reality` under "plans".
    """

    model: RoundModel
    controller: PpoController
    accuracy: list[dict[str, Any]]
    row: dict[str, Any]


def _trained(
    run: Run, loaded: Loaded, model: RoundModel, parts: Sequence[EpisodeBuffer], held_out: EpisodeBuffer
) -> _Trained:
    """Judges a round's world model, trains a fresh policy in its dream, and compares that with reality."""
    training = joined(parts)
    accuracy = measure_accuracy(run, model, training, held_out)
    controller = _trained_in_the_dream(run, model, training)
    facts = {"round": model.number, "episodes": len(training), "real_steps": training.num_transitions}
    after_most_steps = accuracy[-1] if accuracy else {}
    plans = compare_with_reality(run, loaded, model, controller.policy)
    return _Trained(model, controller, accuracy, facts | after_most_steps | {"plans": plans})


def _trained_in_the_dream(run: Run, model: RoundModel, training: EpisodeBuffer) -> PpoController:
    from controller.ppo.controller import PpoController
    from worldmodel.dream.dream_env import DreamEnv

    config, seed = run.config, run.seed(of_round(STAGE, model.number))
    controller = PpoController.for_dream(
        model.fresh(), config.ppo, config.policy, seed=seed, sampling_temperature=config.evaluate.sampling_temperature
    )

    def make_dream() -> DreamEnv:
        dreaming = model.fresh()
        return DreamEnv(dreaming, dreaming.start_states(training, seed=seed), **dataclasses.asdict(config.dream))

    train(run, controller, make_dream, config.ppo.updates, config.updates_per_checkpoint, number=model.number)
    return controller


def _ppo_in_the_real_world(run: Run, loaded: Loaded) -> Prepared:
    """Model-free PPO: no collection and no world model."""
    start_tensorflow(run)
    from controller.ppo.controller import PpoController
    from controller.worlds.real import RealWorld

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

    updates, every = config.ppo_real.updates, config.updates_per_checkpoint
    train(run, controller, lambda: world, updates, every, before_checkpoint=keep_best)
    return Prepared(controller, world.best, TrainingFacts(config.ppo_real.updates * config.ppo_real.batch))


def train(
    run: Run,
    controller: Controller,
    make_world: Callable[[], Any],
    total: int,
    checkpoint_every: int | None = None,
    before_checkpoint: Callable[[], None] = lambda: None,
    number: int = 0,
) -> None:
    """Trains `controller`, continuing from its last checkpoint.

    Args:
      run: the run.
      controller: changed in place.
      make_world: what it trains in, a dream or the real environment; not called where all training is done.
      total: units of work, for the progress bar.
      checkpoint_every: units between checkpoints; None for a controller that cannot continue half-way.
      before_checkpoint: saves what else must survive; work that an interruption makes come again may be in it twice.
      number: of the round.
    """
    stage = of_round(STAGE, number)
    if type(controller).train is Controller.train:  # it plays as it is
        return
    path = run.directory.checkpoint(of_round("controller", number))
    if path.is_file():
        controller.load(path)
    if run.directory.finished(stage):
        return
    with run.stage(stage, in_round(f"train {controller.name}", number), total) as bar:
        rewound = False

        def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
            nonlocal rewound
            if not rewound:  # what came after the last checkpoint comes again
                run.metrics.rewind(stage, done)
                rewound = True
            run.metrics.append(stage, done, metrics)
            bar.update(done, **{name: metrics[name] for name in FIGURES_SHOWN if name in metrics})
            if checkpoint_every and done % checkpoint_every == 0:
                before_checkpoint()
                controller.save(path)

        controller.train(make_world(), seed=run.seed(stage), on_progress=note)
        before_checkpoint()
        controller.save(path)
