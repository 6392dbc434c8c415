"""Tests of runs that time few whole graphs: when they time them, what they keep, and what then has which price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.evaluation import Evaluation, replay_record
from environment.costs.corrected.cost_model import Corrected
from environment.counting import counting
from experiments.config.run import RunConfig, load_config
from experiments.errors import DamagedRun, UserError
from experiments.pipeline.clock import retime, timings
from experiments.pipeline.clock.timings import CHECKPOINT, adopt_timings, restore_timings, share_of, time_batch
from experiments.pipeline.learning.collect import best_plans
from experiments.pipeline.learning.controller import prepare_controller
from experiments.pipeline.learning.evaluate import EVALUATION, train_and_evaluate
from experiments.pipeline.learning.rounds import Learning, train_for_real
from experiments.pipeline.loading.load import Loaded, load
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import make_progress
from experiments.runs.run import Run
from tests.environment.costs.fake_kernels import price_without_a_clock
from tests.environment.costs.timed_graphs import fake_costs
from worldmodel.data.episodes import EpisodeBuffer

MODEL = "bert-base-tiny"
LEARNER = "controller=xrlflow", "xrlflow.updates=2", "xrlflow.batch=2", "xrlflow.epochs=1", "xrlflow.width=8"


@pytest.fixture(autouse=True)
def _made_up_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    price_without_a_clock(monkeypatch)
    clock = fake_costs()
    monkeypatch.setattr(Corrected, "clock_of_graphs", property(lambda costs: clock))


def config_of(timings: int, *assignments: str) -> RunConfig:
    small = (
        *("environment.max_steps=6", "collect.episodes=12", "evaluate.sampled_episodes=3"),
        *("recollect.rounds=1", "recollect.more=0"),
    )
    return load_config("demo", {}, [f"costs=endtoend:cpu:timings={timings}", "device=cpu", *small, *assignments])


def begun(folder: Path, config: RunConfig) -> tuple[Run, Loaded]:
    run, loaded = Run(config, RunDirectory.open(folder, {}, {}), make_progress()), load(MODEL, config)
    restore_timings(run.directory, loaded)
    return run, loaded


def kept(run: Run) -> list[dict[str, Any]]:
    return json.loads((run.directory.path / CHECKPOINT).read_text())


def require_prices_of(loaded: Loaded, buffer: EpisodeBuffer) -> None:
    """Checks that episodes have the costs, the rewards and the graphs that the environment shows now."""
    for episode in buffer:
        observation, info = loaded.env.reset()
        assert info["cost_ms"] == pytest.approx(episode.cost_ms[0])
        for step, action in enumerate(episode.actions):
            observation, reward, _, _, info = loaded.env.step(action)
            assert info["cost_ms"] == pytest.approx(episode.cost_ms[step + 1])
            assert reward == pytest.approx(episode.rewards[step], abs=1e-4)
            seen = buffer.graphs[episode.hashes[step + 1]].nodes
            assert np.allclose(seen, observation["graph"].nodes, atol=1e-5)


def test_a_round_learns_from_the_prices_that_its_batch_has_left(tmp_path: Path) -> None:
    run, loaded = begun(tmp_path / "run", config_of(9))
    learning = Learning(run, loaded)
    before = [episode.cost_ms / episode.cost_ms[0] for episode in learning.random_play]
    with counting() as counts:
        training, held_out = learning.episodes(0)
    assert 0 < len(kept(run)) <= share_of(loaded, 3, 0) == 3
    assert counts.end_to_end_timings == len(kept(run)) + 1, "the start graph too"
    assert all(loaded.env.replay(each["actions"]).hash == each["hash"] for each in kept(run))
    assert len(training) + len(held_out) == len(learning.random_play)
    require_prices_of(loaded, training)
    require_prices_of(loaded, held_out)
    after = {episode.index: episode.cost_ms / episode.cost_ms[0] for episode in (*training, *held_out)}
    assert any(np.abs(cost - after[number]).max() > 0.01 for number, cost in enumerate(before)), "nothing was learned"
    require_prices_of(loaded, learning.collected())
    assert learning.best_episode().costs_ms[0] == pytest.approx(loaded.env.initial_cost.ms)


def test_a_resumed_run_times_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(9)
    right, done = timings.time_graph, list[int]()

    def interrupted(*arguments: Any) -> int:
        if done:
            raise KeyboardInterrupt
        done.append(right(*arguments))
        return done[-1]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(timings, "time_graph", interrupted)
        Learning(*begun(tmp_path / "run", config)).episodes(0)
    run, loaded = begun(tmp_path / "run", config)
    first = kept(run)
    assert len(first) == 1
    training, _ = Learning(run, loaded).episodes(0)
    assert kept(run)[0] == first[0] and len(kept(run)) <= 3
    with counting() as counts:
        run, loaded = begun(tmp_path / "run", config)
        again, _ = Learning(run, loaded).episodes(0)
    assert counts.end_to_end_timings == 0
    assert [each.cost_ms.tolist() for each in again] == [each.cost_ms.tolist() for each in training]


def test_kept_timings_that_are_damaged_are_named(tmp_path: Path) -> None:
    run, _ = begun(tmp_path / "run", config_of(9))
    run.directory.write_json(CHECKPOINT, [{"hash": "x"}])
    with pytest.raises(DamagedRun, match=r"whole-graphs\.json"):
        begun(tmp_path / "run", config_of(9))


def test_what_is_left_is_spent_on_the_graphs_of_the_evaluation(tmp_path: Path) -> None:
    """A search is asked for its best graph each round; the rest goes to whatever may be faster."""
    config = config_of(5, "controller=restarts", "search.budget=40", "evaluate.climb_seconds=0")
    run, loaded = begun(tmp_path / "run", config)
    assert prepare_controller(run, loaded).controller.name == "restarts"
    assert 1 <= len(kept(run)) <= config.search.rounds
    learner = config_of(5, *LEARNER)
    run, loaded = begun(tmp_path / "learned", learner)
    evaluation, _ = train_and_evaluate(run, loaded)
    assert 1 <= len(kept(run)) <= 5
    for record in (evaluation.deterministic, *evaluation.sampled, *evaluation.random):
        replay_record(loaded.env, record)  # by the costs that the environment has now
    assert train_and_evaluate(*begun(tmp_path / "learned", learner))[0] == evaluation


@pytest.mark.full
def test_an_evaluation_whose_timings_were_interrupted_at_their_end_has_the_new_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(5, *LEARNER)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    run, loaded = begun(tmp_path / "run", config)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Evaluation, "repriced", interrupted)
        train_and_evaluate(run, loaded)
    stale = Evaluation.load(run.directory.path / EVALUATION)
    run, loaded = begun(tmp_path / "run", config)
    evaluation, _ = train_and_evaluate(run, loaded)
    assert evaluation != stale, "the batch has changed no price, so nothing was tested"
    for record in (evaluation.deterministic, *evaluation.sampled, *evaluation.random):
        replay_record(loaded.env, record)


@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.full), True])
def test_whoever_resumes_a_run_has_the_prices_of_its_timings(shared: bool, tmp_path: Path) -> None:
    """Points of a sweep open their directories themselves, and share the timings of random play."""
    config = config_of(5, *LEARNER)
    run, loaded = begun(tmp_path / "run", config)
    evaluation, _ = train_and_evaluate(run, loaded)
    first = Run(config, RunDirectory.open(tmp_path / "first", {}, {}), make_progress())
    if shared:
        first.directory.write_json(CHECKPOINT, kept(run))
        (run.directory.path / CHECKPOINT).unlink()
    loaded = load(MODEL, config)
    assert train_and_evaluate(run, loaded, first=first)[0] == evaluation
    for record in (evaluation.deterministic, *evaluation.sampled, *evaluation.random):
        replay_record(loaded.env, record)


def test_a_search_that_was_interrupted_after_a_timing_goes_on_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(5, "controller=restarts", "search.budget=40", "evaluate.climb_seconds=0")
    right = retime.time_graph

    def interrupted(*arguments: Any) -> int:
        assert right(*arguments) == 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(retime, "time_graph", interrupted)
        prepare_controller(*begun(tmp_path / "run", config))
    run, loaded = begun(tmp_path / "run", config)
    prepare_controller(run, loaded)
    assert run.directory.finished("retime-1"), "it searches anew by the price that it has by now"


def test_a_batch_for_which_no_timing_is_left_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, loaded = begun(tmp_path / "run", config_of(1))
    plans = best_plans(Learning(run, loaded).random_play)
    said: list[str] = []
    monkeypatch.setattr(run.progress, "note", said.append)
    for stage in ("first", "second"):
        time_batch(run, loaded, plans, stage, stage, 1)
    assert any(each.startswith("Timed 1 graph, 1 of at most 1 so far") for each in said)
    assert [each for each in said if each.startswith("No graph")] == [
        "No graph was timed: all 1 timings of whole graphs were made before."
    ]


def test_a_training_for_real_times_its_best_graph_at_its_checkpoints(tmp_path: Path) -> None:
    small = "xrlflow.updates=3", "xrlflow.batch=2", "xrlflow.epochs=1", "xrlflow.width=8", "updates_per_checkpoint=1"
    run, loaded = begun(tmp_path / "run", config_of(2, "controller=xrlflow", *small))
    _, best = train_for_real(run, loaded)
    assert best is not None and 1 <= len(kept(run)) <= 2
    replay_record(loaded.env, best)


def test_a_trained_controller_plays_by_the_prices_that_it_has_learned_from(tmp_path: Path) -> None:
    small = "xrlflow.updates=2", "xrlflow.batch=2", "xrlflow.epochs=1", "xrlflow.width=8", "updates_per_checkpoint=1"
    config = config_of(2, "controller=xrlflow", *small)
    run, loaded = begun(tmp_path / "trained", config)
    train_for_real(run, loaded)
    other, fresh = begun(tmp_path / "played", config)
    adopt_timings(other, fresh, RunDirectory(run.directory.path, resumed=True))
    assert kept(other) == kept(run) and fresh.env.initial_cost.ms == loaded.env.initial_cost.ms
    _, again = begun(tmp_path / "played", config)
    assert again.env.initial_cost.ms == loaded.env.initial_cost.ms


def test_rewrites_named_by_their_rank_cannot_be_priced_anew(tmp_path: Path) -> None:
    run, loaded = begun(tmp_path / "run", config_of(9, "collect.actions=rank"))
    with pytest.raises(UserError, match=r"expected collect\.actions=site, got rank"):
        Learning(run, loaded).episodes(0)
