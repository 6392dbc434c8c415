"""Prepares the controller of a run to play: a policy is trained, and a search is run.

If kernels are priced by measuring, the kernels on which the gain of a search rests are timed again afterwards. The
search then starts anew, because another graph may be the cheapest by the new prices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from controller.interface import Controller
from controller.records import EpisodeRecord
from controller.registry import factory, is_foreign, make, worlds_of
from controller.search.ascent import Best
from controller.search.climb import SECONDS
from controller.search.journal import FILE, JournalError, read
from controller.search.portfolio import rooflines
from controller.search.replayed import SHORTEST_S, Actions, Search, SearchLimits
from experiments.config.run import RunConfig
from experiments.errors import DamagedRun
from experiments.pipeline.clock.measure import feeds_of, runtime_of
from experiments.pipeline.clock.retime import retime_after_search, retimes
from experiments.pipeline.learning.rounds import STAGE, Learning, learner, train, train_for_real
from experiments.pipeline.loading.load import Loaded
from experiments.pipeline.loading.waypoints import keep_waypoints
from experiments.runs.progress import format_duration
from experiments.runs.rounds import best_round
from experiments.runs.run import Run, of_round
from experiments.runs.signals import finishing


@dataclasses.dataclass(frozen=True)
class TrainingFacts:
    """The facts of a training that the report shows.

    Attributes:
      num_collected: number of episodes played in the real environment before the evaluation.
      accuracy: accuracy of the world model of the round that plays, on held-out episodes, a row for each number of
        steps.
      stop_reason: why a search stopped; empty if there was no search.
      rounds: a row for each round, including round 0 before any recollection; see `Learning.round_row`.
      bound_ms: no graph that a search could choose costs less; None if nobody knows.
    """

    num_collected: int = 0
    accuracy: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    stop_reason: str = ""
    rounds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    bound_ms: float | None = None

    @property
    def played(self) -> int:
        """The number of the round that plays; 0 without rounds."""
        return best_round([row["plans"] for row in self.rounds])

    @property
    def plans(self) -> Mapping[str, Any]:
        """The figures of the plans of the round that plays; empty without rounds."""
        return self.rounds[self.played]["plans"] if self.rounds else {}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A controller that is ready to play.

    Attributes:
      controller: the controller.
      collection: the best real episode before the evaluation, from the random collection and recollection or from
        model-free training; None if there was none.
      facts: facts of the controller's training.
    """

    controller: Controller
    collection: EpisodeRecord | None = None
    facts: TrainingFacts = TrainingFacts()


def is_clocked(controller: str) -> bool:
    """Returns whether the clock chooses the graph of the controller of this name; see `Controller.clocked`."""
    if worlds_of(controller):  # costs decide; such a class would import TensorFlow
        return False
    return bool(getattr(factory(controller), "clocked", False))


def prepare_controller(run: Run, loaded: Loaded, first: Run | None = None) -> Prepared:
    """Returns the controller that the settings name, ready to play; trains first whatever it needs.

    If the start graph allows no rewrite, nothing can be learned or found, and the controller does nothing.

    Args:
      first: see `Learning`.
    """
    if not loaded.num_candidates:
        return Prepared(new_controller(dataclasses.replace(run.config, controller="random"), loaded, 0.0))
    if run.config.learns_in:
        return (
            _learned_in_the_dream(run, loaded, first) if run.config.uses_world_model else _learned_for_real(run, loaded)
        )
    if is_foreign(run.config.controller):
        return _foreign(run, loaded)
    controller = new_controller(run.config, loaded, run.config.search.seconds)
    if controller.clocked and isinstance(controller, Search):
        return _climbed(run, loaded)
    return _searched(run, loaded) if isinstance(controller, Search) else Prepared(controller)


def _foreign(run: Run, loaded: Loaded) -> Prepared:
    """Returns a controller of another package that learns in no world; its `train` is given the real environment."""
    controller = learner(run.config, loaded, run.seed(STAGE))
    train(run, controller, lambda: loaded.env)
    return Prepared(controller)


def _climbed(run: Run, loaded: Loaded) -> Prepared:
    climb = climbed(run, loaded, run.config.search.seconds, STAGE, "controller")
    return Prepared(climb, facts=TrainingFacts(stop_reason=str(climb.stop_reason or "")))


def climbed(
    run: Run,
    loaded: Loaded,
    seconds: float,
    stage: str,
    checkpoint: str,
    given: Sequence[Sequence[tuple[int, int]]] = (),
) -> Search:
    """Runs a search by the clock, or resumes it; the first Ctrl-C ends it with the best graph so far.

    Args:
      seconds: limit of time.
      stage, checkpoint: names of its stage and of the file of its result.
      given: plans whose graphs race first.
    """
    journal = run.directory.checkpoint(FILE)

    def note(best: Best) -> None:
        since = f"after {format_duration(best.elapsed_s)} and {best.timed} timed graphs"
        run.progress.note(f"Faster: {best.ratio:.3f} of the model's time {since}.")

    with finishing() as is_asked_to_end:
        settings = {"is_asked_to_end": is_asked_to_end, "journal": journal, "on_faster": note, "given": given}
        climb = new_controller(dataclasses.replace(run.config, controller="climb"), loaded, seconds, **settings)
        assert isinstance(climb, Search)
        loaded.env.reset(seed=run.seed(stage))
        try:
            train(run, climb, lambda: loaded.env, base_stage=stage, checkpoint=checkpoint)
        except JournalError as error:
            raise DamagedRun(journal, str(error)) from error
    return climb


def journal_of(run: Run) -> list[dict[str, Any]]:
    """Returns the lines of the journal of the run's climb; none if there was no climb.

    Raises:
      DamagedRun: it cannot be read.
    """
    journal = run.directory.checkpoint(FILE)
    try:
        return list(read(journal)) if journal.is_file() else []
    except JournalError as error:
        raise DamagedRun(journal, str(error)) from error


def num_timed(journal: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of timings of graphs in the lines of a climb's journal."""
    return sum(line["kind"] == "timed" for line in journal)


def _searched(run: Run, loaded: Loaded) -> Prepared:
    """Runs the rounds of a search and returns the search that found the cheapest graph, by the latest prices."""
    config = run.config.search
    rounds = config.rounds if retimes(run, loaded) else 1
    searches: list[Search] = []
    for number in range(rounds):
        search = new_controller(run.config, loaded, _time_left(run, number) / (rounds - number))
        assert isinstance(search, Search)
        loaded.env.reset(seed=run.seed(STAGE))
        train(run, search, lambda: loaded.env, number=number)
        keep_waypoints(run.directory, loaded.model)
        searches.append(search)
        if not retime_after_search(run, loaded, _found(_best(loaded, searches)), number):
            break
    best = _best(loaded, searches)
    stop = best.stop_reason
    return Prepared(best, facts=TrainingFacts(stop_reason=str(stop or ""), bound_ms=stop.bound_ms if stop else None))


def _best(loaded: Loaded, searches: Sequence[Search]) -> Search:
    """Returns the search whose graph is cheapest by the present prices; the first one among equals."""
    return min(searches, key=lambda search: loaded.env.replay(_found(search)).cost(loaded.env.cost_model).ms)


def _found(search: Search) -> Actions:
    assert search.actions is not None  # it has been trained
    return search.actions


def _time_left(run: Run, number: int) -> float:
    """Returns the seconds of the time limit that earlier rounds have not used; 0 if there is no limit."""
    spent = run.directory.stage_seconds()
    left = run.config.search.seconds - sum(spent.get(of_round(STAGE, before), 0.0) for before in range(number))
    return max(left, SHORTEST_S) if run.config.search.seconds else 0.0


def new_controller(config: RunConfig, loaded: Loaded, seconds: float, **of_climb: Any) -> Controller:
    """Returns a new controller that needs no world model; a search is limited to `seconds`, 0 meaning no limit.

    Args:
      of_climb: further arguments of `ClimbController`.
    """
    search = config.search
    limits = SearchLimits(search.budget, seconds, search.memory_mb, search.threads)
    by_clock: dict[str, Any] = {
        "runtime": runtime_of(config),
        "limits": dataclasses.replace(limits, seconds=seconds or SECONDS),
        "feeds": feeds_of(loaded),
        **of_climb,
    }
    settings: Mapping[str, Mapping[str, Any]] = {
        "taso": {"alpha": search.alpha, "passes": search.passes, "limits": limits},
        "beam": {"width": search.width, "limits": limits},
        "passes": {"limits": limits},
        "best-of-n": {"limits": limits},
        "climb": by_clock,
        "restarts": {"walk": search.walk, "limits": limits},
        "saturation": _saturating(config, loaded, limits),
        "random": {"noop_probability": config.collect.noop_probability},
    }
    return make(config.controller, **settings.get(config.controller, {}))


def _saturating(config: RunConfig, loaded: Loaded, limits: SearchLimits) -> dict[str, Any]:
    """Returns the arguments of `SaturationController`; a search that goes on gets half of the time."""
    then, named = None, config.saturation.then
    if config.controller == "saturation" and named is not None:
        limits = dataclasses.replace(limits, seconds=limits.seconds / 2)
        then = new_controller(dataclasses.replace(config, controller=named), loaded, limits.seconds)
    return {"config": config.saturation, "limits": limits, "guides": rooflines(config.device), "then": then}


def _learned_in_the_dream(run: Run, loaded: Loaded, first: Run | None) -> Prepared:
    """Trains all rounds and returns the controller of the best one."""
    learning = Learning(run, loaded, first)
    rows = learning.round_rows()
    best = learning.best_round()
    facts = TrainingFacts(len(learning.collected()), learning.accuracy(best), rounds=rows)
    return Prepared(learning.controller(best), learning.best_episode(), facts)


def _learned_for_real(run: Run, loaded: Loaded) -> Prepared:
    controller, best = train_for_real(run, loaded)
    episodes = getattr(run.config.of_controller, "episodes", 0)
    return Prepared(controller, best, TrainingFacts(episodes))
