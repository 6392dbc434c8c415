from __future__ import annotations

import numpy as np
import pytest

from controller.evaluation import play_episode, replay_record
from controller.search.best_of_n import BestOfNController
from controller.search.replayed import SearchLimits, StopCause, StopReason
from environment import GraphSubstitutionEnv
from environment.policies import random as random_play
from taso_ext.errors import UnpricedError
from tests.controller.exhaustive import best_improvement
from tests.controller.search.test_searches import Clock, played, searched, shared_transpose
from tests.controller.shared_product import shared_product

PROBLEMS = {"product": lambda: shared_product(everywhere=False, max_steps=6), "transpose": shared_transpose}


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_finds_the_optimum_of_what_can_be_enumerated(name: str) -> None:
    """In 20 of 20 seeds. No single rewrite helps in either graph, so that greedy descent finds nothing."""
    env = PROBLEMS[name]()
    optimum = best_improvement(env)
    env.reset()
    assert optimum > 0 and env.state.cost.ms <= env.candidates()[2].min()
    for seed in range(20):
        controller = searched(env, BestOfNController(SearchLimits(200)), seed)
        assert played(env, controller).improvement == pytest.approx(optimum)


def test_more_episodes_never_find_less_and_seeds_decide() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", strict=True, max_steps=20)
    few, many, again, other = (
        searched(env, BestOfNController(SearchLimits(budget)), seed)
        for budget, seed in [(5, 0), (60, 0), (60, 0), (60, 1)]
    )
    assert many.actions == again.actions != other.actions
    costs_ms = [played(env, controller).best_cost_ms for controller in (few, many)]
    assert costs_ms[0] >= costs_ms[1] and costs_ms[1] < env.state.cost.ms + 1e-9


def test_an_episode_is_no_longer_than_the_environment_allows() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", strict=True, max_steps=3)
    controller = searched(env, BestOfNController(SearchLimits(30)))
    assert 0 < len(controller.actions or ()) <= 3


def test_rules_carried_out_everywhere_are_logged_as_single_rewrites() -> None:
    env, single = shared_product(max_steps=1), shared_product(everywhere=False)
    controller = searched(env, BestOfNController(SearchLimits(20), everywhere_probability=1.0))
    assert len(controller.actions or ()) > 1  # one step of an episode
    replay_record(single, play_episode(single, controller, seed=0))


def test_time_ends_within_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search reads the clock once before the first episode, after each rewrite and after each episode."""
    env = GraphSubstitutionEnv("bert-base-tiny", strict=True, max_steps=20)  # always has something left to rewrite
    Clock(monkeypatch, tick=1.0)
    done: list[int] = []
    controller = BestOfNController(SearchLimits(1000, seconds=25.5))
    controller.train(env, on_progress=lambda episode, total, metrics: done.append(episode))
    assert controller.stop_reason == StopReason(StopCause.TIME)
    assert done == [1, 2]


def test_a_callback_can_stop_it() -> None:
    def stop(done: int, total: int, metrics: object) -> None:
        if done == 3:
            raise KeyboardInterrupt

    controller = BestOfNController(SearchLimits(10))
    with pytest.raises(KeyboardInterrupt):
        controller.train(GraphSubstitutionEnv("squeezenet1.1-tiny"), on_progress=stop)
    assert controller.actions is None


def test_an_episode_ends_before_a_graph_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    step = random_play.random_step

    def some_fail(state: object, generator: np.random.Generator, probability: float) -> list[tuple[int, int]]:
        if generator.random() < 0.2:
            raise UnpricedError("no price")
        return step(state, generator, probability)  # type: ignore[arg-type]

    monkeypatch.setattr("controller.search.best_of_n.random_step", some_fail)
    env = GraphSubstitutionEnv("bert-base-tiny", strict=True, max_steps=20)
    controller = searched(env, BestOfNController(SearchLimits(20)))
    assert controller.stop_reason and controller.stop_reason.unpriced_rewrites > 10
    assert played(env, controller).improvement > 0
