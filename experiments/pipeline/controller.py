"""Makes the controller of a run ready to play: a policy learns, and a search searches.

Where kernels are priced by measuring, those are timed again on which the gain of what a search has found rests; then
the search begins anew, since another graph may be the cheapest by the new prices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from controller.interface import Controller, factory
from controller.records import EpisodeRecord
from controller.search.replayed import SHORTEST_S, Actions, Search, SearchLimits
from environment.costs.measured.cost_model import Measured
from environment.costs.measured.retiming import difference, retime
from experiments.config.run import RunConfig
from experiments.pipeline.learning import STAGE, Learning, train, train_for_real
from experiments.pipeline.load import Loaded
from experiments.runs.run import Run, in_round, of_round

RETIME = "retime"


@dataclasses.dataclass(frozen=True)
class TrainingFacts:
    """What the report says of the training.

    Attributes:
      num_collected: episodes played in the real environment before the evaluation.
      accuracy: of the last world model on held-out episodes, a row for each number of steps.
      stop_reason: why a search stopped; empty where nothing searched.
      rounds: a row for each round of recollection, that before the first included, see `Learning.round_row`.
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
    """Returns the controller that the settings name, ready to play; whatever it needs is trained first."""
    if run.config.controller == "ppo":
        return _learned_in_the_dream(run, loaded) if run.config.world == "dream" else _learned_for_real(run, loaded)
    controller = _new_controller(run.config, run.config.search.seconds)
    return _searched(run, loaded) if isinstance(controller, Search) else Prepared(controller)


def _searched(run: Run, loaded: Loaded) -> Prepared:
    """Returns the search that has found the cheapest graph in any round, by the latest prices."""
    config = run.config.search
    rounds = config.rounds if can_retime(loaded) and config.retiming_seconds else 1
    searches: list[Search] = []
    for number in range(rounds):
        search = _new_controller(run.config, _time_left(run, number) / (rounds - number))
        assert isinstance(search, Search)
        loaded.env.reset(seed=run.seed(STAGE))
        train(run, search, lambda: loaded.env, config.budget, number=number)
        searches.append(search)
        if not retime_gain(run, loaded, _found(_best(loaded, searches)), number):
            break
    best = _best(loaded, searches)
    return Prepared(best, facts=TrainingFacts(stop_reason=str(best.stop_reason or "")))


def _best(loaded: Loaded, searches: Sequence[Search]) -> Search:
    """Returns the search whose graph is cheapest by the present prices; the first of equals."""
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
    """Makes a controller that needs no world model; `seconds` limit a search."""
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


def _learned_in_the_dream(run: Run, loaded: Loaded) -> Prepared:
    """Trains all rounds, and returns the policy of the last one."""
    learning, last = Learning(run, loaded), run.config.recollect.rounds
    rows = [learning.round_row(number) for number in range(last + 1)]
    facts = TrainingFacts(len(learning.collected()), learning.accuracy(last), rounds=rows)
    return Prepared(learning.controller(last), learning.best_episode(), facts)


def _learned_for_real(run: Run, loaded: Loaded) -> Prepared:
    controller, best = train_for_real(run, loaded)
    return Prepared(controller, best, TrainingFacts(run.config.ppo_real.updates * run.config.ppo_real.batch))


def can_retime(loaded: Loaded) -> bool:
    """Whether kernels are priced by measuring, here."""
    return isinstance(loaded.env.costs, Measured)


def retime_gain(run: Run, loaded: Loaded, plan: Actions, number: int) -> bool:
    """Makes the price of what a search has found by some round surer; `loaded.env` goes by the new prices.

    Returns:
      Whether any price has changed; then another round may find something else.
    """
    costs, seconds = loaded.env.costs, run.config.search.retiming_seconds
    if not isinstance(costs, Measured) or not plan or not seconds:
        return False
    stage = of_round(RETIME, number)
    name = f"checkpoints/{stage}.json"
    if not run.directory.finished(stage):
        prices, start, found = costs.of(loaded.model), loaded.model.graph, loaded.env.replay(plan)
        facts = run.directory.read_json(name) or {"timed": 0, "before": difference(prices, start, found)}
        with run.stage(stage, in_round("time what the gain rests on [s]", number), round(seconds)) as bar:

            def on_timed(passed: float) -> None:
                facts["timed"] += 1
                run.directory.write_json(name, facts)  # what prices were before would be lost to an interruption
                bar.update(round(passed))

            retime(prices, start, found, seconds=seconds, on_timed=on_timed)
            facts["after"] = difference(prices, start, found)
            run.directory.write_json(name, facts)
        if facts["timed"]:
            run.progress.note(
                f"Kernels were timed again, {facts['timed']} times: what the search has found saves "
                f"{_percent(*facts['after'])} of the model's time; {_percent(*facts['before'])} before."
            )
            costs.forget(loaded.model)
            loaded.env.reset(options={"graph": loaded.model})
    return bool(run.directory.read_json(name)["timed"])


def _percent(value: float, half_width: float) -> str:
    return f"{100 * value:.1f} ± {100 * half_width:.1f} %"
