"""Tests of searches, trainings and episodes under measured costs: the kernels that a gain rests on are timed again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.evaluation import Evaluation, play_episode, replay_record
from controller.interface import ProgressCallback
from controller.records import EpisodeRecord
from controller.search.native import NativeSearch, TasoController
from controller.search.one_step import RandomController
from controller.search.replayed import Found, Search, StopCause, StopReason
from controller.worlds.real import RealWorld
from controller.xrlflow.config import XrlflowConfig
from environment.costs.measured import kernel_prices, retiming
from environment.costs.measured.cost_model import Measured
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.retiming import SURE, difference
from environment.costs.prices.price_list import Price
from experiments.config.run import RunConfig
from experiments.config.sections import EvaluateConfig, MeasureConfig, SearchConfig
from experiments.pipeline.clock.retime import retime_gain
from experiments.pipeline.learning.controller import prepare_controller
from experiments.pipeline.learning.evaluate import train_and_evaluate
from experiments.pipeline.learning.rounds import BEST_IN_TRAINING, train_for_real
from experiments.pipeline.loading.load import Loaded, load
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import make_progress
from experiments.runs.run import Run
from taso_ext import State

pytestmark = pytest.mark.filterwarnings("ignore::environment.costs.limits.NoisyClockWarning")

MODEL = "squeezenet1.1-tiny"
CONFIG = RunConfig(
    controller="taso", costs="measured:cpu", search=SearchConfig(budget=20), measure=MeasureConfig(predict=False)
)


class Optimist:
    """A made-up clock that first times every kernel that the model itself does not run as too short and unsure."""

    def __init__(self) -> None:
        self.timings: Counter[str] = Counter()
        self.knows_the_model = False

    def __call__(self, kernel: Kernel, *_: object) -> Price:
        self.timings[kernel.signature] += 1
        elements = sum(math.prod(operand.dims) for operand in kernel.operands if operand is not None)
        true_ms = 1 + elements / 1000
        if self.knows_the_model and self.timings[kernel.signature] == 1:
            return Price(0.7 * true_ms, 0.3, 1)
        return Price(true_ms, 0.001, 1000)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Optimist:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    optimist = Optimist()
    monkeypatch.setattr(kernel_prices, "time_kernel", optimist)
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    return optimist


def run_in(folder: Path, config: RunConfig = CONFIG) -> Run:
    return Run(config, RunDirectory.open(folder / "run", {}, {}), make_progress())


def loaded_by(clock: Optimist, config: RunConfig = CONFIG) -> Loaded:
    """Returns the loaded model, whose own kernels have the right prices; from now on, `clock` is optimistic."""
    found = load(MODEL, config)
    clock.knows_the_model = True
    return found


def rounds(folder: Path) -> list[dict[str, Any]]:
    """Returns the stored record of each round in which kernels were timed again, in order."""
    paths = sorted((folder / "run" / "checkpoints").glob("retime*.json"), key=lambda path: len(path.name))
    return [json.loads(path.read_text()) for path in paths]


def test_luck_is_found_out(tmp_path: Path, clock: Optimist) -> None:
    loaded = loaded_by(clock)
    search = prepare_controller(run_in(tmp_path), loaded).controller
    assert isinstance(search, Search) and search.actions
    first, *_, last = rounds(tmp_path)
    assert len(rounds(tmp_path)) <= CONFIG.search.rounds
    assert first["timed"] and first["after"][0] < first["before"][0]
    assert last["after"][1] <= SURE < first["before"][1]
    costs = loaded.env.costs
    assert isinstance(costs, Measured)
    prices, start, found = costs.of(loaded.model), loaded.model.graph, loaded.env.replay(search.actions)
    gain, half_width = difference(prices, start, found)
    infos = [loaded.env.reset()[1], *(loaded.env.step(action)[4] for action in search.actions)]
    assert infos[0]["ratio_noise"] == 0 < infos[0]["cost_noise"]
    assert infos[-1]["ratio_noise"] == pytest.approx(half_width) and half_width > 0
    assert loaded.env.initial_cost.ms == pytest.approx(prices.full(start).ms)  # the environment has the new prices
    assert found.cost(loaded.env.cost_model).ms == pytest.approx((1 - gain) * loaded.env.initial_cost.ms)


def test_a_later_round_that_finds_less_is_not_followed(
    tmp_path: Path, clock: Optimist, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, plans = TasoController.find, list[Found]()

    def find_once(self: TasoController, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        plans.append(
            find(self, state, seed, on_progress) if not plans else Found([], state.cost.ms, StopReason(StopCause.TIME))
        )
        return plans[-1]

    monkeypatch.setattr(TasoController, "find", find_once)
    search = prepare_controller(run_in(tmp_path), loaded_by(clock)).controller
    assert isinstance(search, Search) and len(plans) > 1
    assert search.actions == plans[0].actions != []


def test_a_resumed_run_does_nothing_twice(tmp_path: Path, clock: Optimist) -> None:
    first = prepare_controller(run_in(tmp_path), loaded_by(clock)).controller
    timings, kept = clock.timings.total(), rounds(tmp_path)
    again = prepare_controller(run_in(tmp_path), loaded_by(clock)).controller
    assert isinstance(first, Search) and isinstance(again, Search)
    assert again.actions == first.actions
    assert clock.timings.total() == timings and rounds(tmp_path) == kept


@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_round_counts_what_it_has_timed(
    after: int, tmp_path: Path, clock: Optimist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices are stored one by one, so nothing may be left to time although another round is still due."""
    whole, timings = retiming.retime, 0

    def interrupted(*args: Any, on_timed: Callable[[float], None], **options: Any) -> int:
        def count(elapsed: float) -> None:
            nonlocal timings
            on_timed(elapsed)
            timings += 1
            if timings == after:
                raise KeyboardInterrupt

        return whole(*args, on_timed=count, **options)

    monkeypatch.setattr("experiments.pipeline.clock.retime.retime", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_controller(run_in(tmp_path), loaded_by(clock))
    (stopped,) = rounds(tmp_path)
    assert stopped["timed"] == after
    prepare_controller(run_in(tmp_path), loaded_by(clock))
    first = rounds(tmp_path)[0]
    assert first["timed"] >= after and first["after"][0] < first["before"][0] == stopped["before"][0]
    assert (tmp_path / "run" / "checkpoints" / "controller-1").exists()


def test_rounds_share_the_limit_of_time(tmp_path: Path, clock: Optimist, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    search = NativeSearch.find

    def find(self: TasoController, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        seconds.append(self._limits.seconds)
        return search(self, state, seed, on_progress)

    monkeypatch.setattr(TasoController, "find", find)
    config = dataclasses.replace(CONFIG, search=dataclasses.replace(CONFIG.search, seconds=60.0))
    prepare_controller(run_in(tmp_path, config), loaded_by(clock, config))
    # The searches take next to no time, so that each round may use its share of all seconds. Processors differ in their
    # kernels, and so in whether a third round is due.
    assert len(seconds) >= 2 and seconds == pytest.approx([20.0, 30.0, 60.0][: len(seconds)], rel=0.05)


@pytest.mark.parametrize("changes", [{"rounds": 1}, {"retiming_seconds": 0.0}])
def test_one_round_can_be_asked_for(changes: dict[str, Any], tmp_path: Path, clock: Optimist) -> None:
    config = dataclasses.replace(CONFIG, search=dataclasses.replace(CONFIG.search, **changes))
    prepare_controller(run_in(tmp_path, config), loaded_by(clock, config))
    assert len(rounds(tmp_path)) == (1 if "rounds" in changes else 0)
    assert not (tmp_path / "run" / "checkpoints" / "controller-1.json").exists()


def test_exact_costs_are_searched_once(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, costs="roofline:xeon")
    search = prepare_controller(run_in(tmp_path, config), load(MODEL, config)).controller
    assert isinstance(search, Search) and search.actions and not rounds(tmp_path)


def gain_now(loaded: Loaded, record: EpisodeRecord) -> tuple[float, float]:
    """Returns the gain of the best graph of an episode by the present prices, and half the width of its interval."""
    costs = loaded.env.costs
    assert isinstance(costs, Measured)
    return difference(costs.of(loaded.model), loaded.model.graph, loaded.env.replay(record.best_actions))


LEARNER = dataclasses.replace(
    CONFIG,
    controller="xrlflow",
    xrlflow=XrlflowConfig(updates=3, batch=4, epochs=1, width=8, layers=1),
    evaluate=EvaluateConfig(sampled_episodes=4),
)


@pytest.mark.parametrize("seconds", [pytest.param(0.0, marks=pytest.mark.full), 30.0])
def test_a_training_does_not_learn_from_luck(seconds: float, tmp_path: Path, clock: Optimist) -> None:
    config = dataclasses.replace(LEARNER, search=dataclasses.replace(CONFIG.search, retiming_seconds=seconds))
    loaded = loaded_by(clock, config)
    run = run_in(tmp_path, config)
    _, best = train_for_real(run, loaded)
    assert best is not None and best.best_actions
    gain, noise = gain_now(loaded, best)
    assert best.improvement == pytest.approx(gain)
    assert (noise <= SURE) == (seconds > 0)
    stored = EpisodeRecord.from_json(run.directory.read_json(BEST_IN_TRAINING))
    assert stored == best


def test_a_resumed_training_prices_its_best_graph_anew(tmp_path: Path, clock: Optimist) -> None:
    """An interruption after a timing and before the checkpoint leaves a best episode with the prices from before."""
    loaded = loaded_by(clock, LEARNER)
    _, best = train_for_real(run_in(tmp_path, LEARNER), loaded)
    assert best is not None and best.best_actions
    costs_ms = (best.costs_ms[0], *(0.5 * cost_ms for cost_ms in best.costs_ms[1:]))
    resumed = run_in(tmp_path / "resumed", LEARNER)
    resumed.directory.write_json(BEST_IN_TRAINING, dataclasses.replace(best, costs_ms=costs_ms).to_json())
    _, again = train_for_real(resumed, loaded)
    assert again is not None
    assert again.improvement == pytest.approx(gain_now(loaded, again)[0])


def test_the_world_follows_new_prices(tmp_path: Path, clock: Optimist) -> None:
    config = dataclasses.replace(CONFIG, controller="random")
    loaded = loaded_by(clock, config)
    world = RealWorld(loaded.make_env)
    env = world.make_env()
    world.note([play_episode(env, RandomController(), seed=seed) for seed in range(4)])
    assert world.best is not None and world.best.best_actions
    promised = world.best.improvement
    assert retime_gain(run_in(tmp_path, config), loaded, world.best.best_actions)["timed"]
    world.reprice()
    assert world.best.improvement < promised
    replay_record(env, world.best)  # by the costs that the environment has now


def test_episodes_have_the_prices_by_which_the_best_is_chosen(tmp_path: Path, clock: Optimist) -> None:
    loaded = loaded_by(clock, LEARNER)
    evaluation, _ = train_and_evaluate(run_in(tmp_path, LEARNER), loaded)
    assert evaluation.best.best_actions
    gain, noise = gain_now(loaded, evaluation.best)
    assert evaluation.best.improvement == pytest.approx(gain) and noise <= SURE
    for record in (evaluation.deterministic, *evaluation.sampled, *evaluation.random):
        replay_record(loaded.env, record)
    timings = clock.timings.total()
    again, _ = train_and_evaluate(run_in(tmp_path, LEARNER), loaded_by(clock, LEARNER))
    assert again == evaluation and clock.timings.total() == timings


@pytest.mark.full
def test_an_interrupted_evaluation_is_priced_by_what_was_timed(
    tmp_path: Path, clock: Optimist, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(LEARNER, xrlflow=dataclasses.replace(LEARNER.xrlflow, updates=1))

    def interrupted(self: Evaluation, env: Any) -> Evaluation:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Evaluation, "repriced", interrupted)
        train_and_evaluate(run_in(tmp_path, config), loaded_by(clock, config))
    loaded = loaded_by(clock, config)
    evaluation, _ = train_and_evaluate(run_in(tmp_path, config), loaded)
    assert evaluation.best.improvement == pytest.approx(gain_now(loaded, evaluation.best)[0])
    for record in (evaluation.deterministic, *evaluation.sampled, *evaluation.random):
        replay_record(loaded.env, record)
