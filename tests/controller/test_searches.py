from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from controller.evaluate import play_episode, replay
from controller.greedy import GreedyController
from controller.random import RandomController
from controller.records import EpisodeRecord, best_improvement, is_improvement
from controller.taso import TasoController
from environment import GraphSubstitutionEnv

NAMES = ["squeezenet1.1-tiny", "bert-base-tiny"]


@pytest.fixture(scope="module", params=NAMES)
def env(request: pytest.FixtureRequest) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(request.param, strict=True)  # strict: an illegal action raises


def searched(env: GraphSubstitutionEnv, **options: float) -> TasoController:
    controller = TasoController(**options)  # type: ignore[arg-type]
    env.reset()
    controller.train(env)
    return controller


def played(env: GraphSubstitutionEnv, controller: TasoController | GreedyController) -> EpisodeRecord:
    return play_episode(env, controller, seed=0, deterministic=True)


def test_greedy_only_ever_improves_and_leaves_nothing_that_does(env: GraphSubstitutionEnv) -> None:
    record = played(env, GreedyController())
    assert all(is_improvement(after, before) for before, after in pairwise(record.costs_ms[:-1]))
    costs_ms = env.candidates()[2]  # the environment is where the episode ended
    assert record.actions[-1][0] == env.num_rules
    assert not any(is_improvement(cost_ms, record.costs_ms[-1]) for cost_ms in costs_ms)


def test_taso_replays_to_the_cost_that_its_search_found(env: GraphSubstitutionEnv) -> None:
    reported = []
    env.reset()
    controller = TasoController(budget=50)
    controller.train(env, on_progress=lambda done, total, metrics: reported.append((done, total, metrics)))
    record = played(env, controller)
    assert record.best_actions == tuple(controller.actions or ())
    assert record.actions in (record.best_actions, (*record.best_actions, (env.num_rules, 0)))  # and then it stops
    assert replay(env, record.actions, record.costs_ms) == list(record.costs_ms)
    assert reported[-1][0] <= reported[-1][1] == 50
    assert reported[-1][2]["best_cost_ms"] == pytest.approx(record.best_cost_ms)


def test_taso_is_never_worse_with_more_budget_and_finds_what_greedy_misses(env: GraphSubstitutionEnv) -> None:
    improvements = [played(env, searched(env, alpha=1.2, budget=budget)).improvement for budget in (1, 20, 400)]
    assert improvements == sorted(improvements)
    greedy, random = played(env, GreedyController()), [play_episode(env, RandomController(), seed=s) for s in range(5)]
    assert improvements[-1] > max(greedy.improvement, best_improvement(random) - 1e-9)


def test_taso_is_stored_and_read_back(env: GraphSubstitutionEnv, tmp_path: Path) -> None:
    controller, restored = searched(env, budget=50), TasoController()
    controller.save(tmp_path / "log.json")
    restored.load(tmp_path / "log.json")
    assert played(env, restored) == played(env, controller)


def test_a_log_is_not_played_on_another_graph(env: GraphSubstitutionEnv) -> None:
    controller = searched(env, budget=50)
    env.reset()
    env.step(env.legal_actions()[0])
    with pytest.raises(ValueError, match="search again"):
        controller.begin_episode(env, seed=0)
    with pytest.raises(ValueError, match="no action log"):
        TasoController().begin_episode(env, seed=0)


@pytest.mark.parametrize(("options", "text"), [({"alpha": 0.9}, "alpha is 0.9"), ({"budget": 0}, "budget of 0")])
def test_impossible_options_are_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TasoController(**options)  # type: ignore[arg-type]


def test_random_is_a_function_of_its_seed(env: GraphSubstitutionEnv) -> None:
    first, again, other = (play_episode(env, RandomController(), seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.actions != other.actions
