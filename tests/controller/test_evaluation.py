from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from controller.evaluation import Evaluation, ReplayError, evaluate, play_episode, replay
from controller.interface import Controller
from controller.search.one_step import GreedyController, RandomController
from tests.controller.toy_env import ToyEnv

CHANGES = np.array([[-1.0, -5.0, 2.0], [0.0, -1e-12, 3.0]])


class Sampler(Controller):
    """A controller that draws legal actions with the episode's seed, or takes the first one if it is deterministic."""

    name: ClassVar[str] = "sampler"
    stochastic: ClassVar[bool] = True

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self.rng, self.env = np.random.default_rng(seed), view

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        actions = self.env.legal_actions()
        return actions[0] if deterministic else self.rng.choice(actions)


class RenamedActions:
    """A view that renames actions, as latent views do: an action is a position in the list of legal actions."""

    def __init__(self, env: ToyEnv) -> None:
        self.env, self.reset, self.unwrapped = env, env.reset, env

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        real = self.env.legal_actions()[action]
        *rest, info = self.env.step(real)
        return *rest, {**info, "action": real}  # type: ignore[return-value]


class First(Controller):
    """A controller that always takes the first legal action, through a view that renames actions."""

    name: ClassVar[str] = "first"

    def view(self, env: Any) -> Any:
        return RenamedActions(env)

    def act(self, observation: Any, *, deterministic: bool) -> int:
        return 0


def test_greedy_takes_what_pays_most_first_and_stops_at_rounding() -> None:
    record = play_episode(ToyEnv(CHANGES), GreedyController(), seed=0, deterministic=True)
    assert record.actions == ((0, 1), (0, 0), (2, 0))
    assert record.improvement == pytest.approx(0.06)
    assert record.terminated


def test_greedy_stops_at_once_where_nothing_pays() -> None:
    record = play_episode(ToyEnv(np.abs(CHANGES)), GreedyController(), seed=0)
    assert record.actions == ((2, 0),)
    assert record.improvement == 0


def test_records_hold_the_real_actions_whatever_the_controller_calls_them() -> None:
    record = play_episode(ToyEnv(CHANGES), First(), seed=0)
    assert record.actions == ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))
    assert record.best_step == 2
    assert replay(ToyEnv(CHANGES), record.actions, record.costs_ms) == list(record.costs_ms)


def test_parts_are_kept_apart_and_random_plays_as_many_episodes() -> None:
    env, played = ToyEnv(CHANGES, max_steps=3), []
    collection = play_episode(env, RandomController(), seed=99, kind="collection")
    result = evaluate(
        env, Sampler(), num_sampled=4, seed=5, collection=collection, on_episode=lambda *call: played.append(call)
    )
    assert result.collection is collection
    assert len(result.sampled) == 4
    assert len(result.random) == 5
    assert [record.seed for record in result.random] == [5, 6, 7, 8, 9]
    assert {record.kind for record in result.random} == {"random"}
    assert [(done, total) for done, total, _ in played] == [(done, 10) for done in range(1, 11)]
    parts = result.improvements()
    assert parts["controller"] == pytest.approx(max(parts["deterministic"], parts["sampled"]))
    assert parts["best"] == pytest.approx(max(parts["controller"], parts["random"], parts["collection"]))


def test_equal_seeds_give_equal_evaluations() -> None:
    first, second = (evaluate(ToyEnv(CHANGES), Sampler(), num_sampled=2, seed=1) for _ in range(2))
    assert first == second
    assert first.sampled[0] != first.sampled[1]


def test_controllers_that_do_not_sample_are_not_sampled() -> None:
    result = evaluate(ToyEnv(CHANGES), GreedyController(), num_sampled=8, seed=0)
    assert result.sampled == ()
    assert len(result.random) == 1
    assert result.best is result.deterministic


def test_every_log_replays_to_its_costs_and_its_prefix_to_its_best() -> None:
    env = ToyEnv(CHANGES, max_steps=4)
    for seed in range(10):
        record = play_episode(env, RandomController(), seed=seed)
        assert replay(env, record.actions, record.costs_ms) == list(record.costs_ms)
        assert replay(env, record.best_actions)[-1] == record.best_cost_ms


def test_a_log_that_is_not_true_is_refused() -> None:
    env = ToyEnv(CHANGES)
    with pytest.raises(ReplayError, match="Action 1"):
        replay(env, [(0, 1), (0, 1)])
    with pytest.raises(ReplayError, match="After 1 actions the log claims 90"):
        replay(env, [(0, 1)], [100.0, 90.0])
    with pytest.raises(ReplayError, match="1 costs for 2 graphs"):
        replay(env, [(0, 1)], [100.0])


def test_evaluations_are_stored_and_read_back(tmp_path: Path) -> None:
    result = evaluate(ToyEnv(CHANGES), Sampler(), num_sampled=2, seed=0)
    result.save(tmp_path / "evaluation.json")
    assert Evaluation.load(tmp_path / "evaluation.json") == result
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]
