"""`mcts` finds the optimum of problems that can be searched exhaustively, and goes on bit for bit from a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.evaluation import play_episode, replay_record
from controller.interface import StoredControllerError
from controller.mcts.config import MctsConfig
from controller.mcts.controller import MctsController
from controller.ppo.config import PolicyConfig
from controller.worlds.real import RealWorld
from environment import GraphSubstitutionEnv
from taso_ext import search_greedy, search_taso
from tests.controller.mcts.tiny_dreams import TinyDream, TinyView, tiny_controller
from tests.controller.tiny_worlds import TinyWorld, detour, independent_sites
from worldmodel.config import EncoderConfig

CONFIG = MctsConfig(
    simulations=8,
    considered=8,
    iterations=4,
    games=16,
    gradient_steps=10,
    batch=32,
    learning_rate=1e-2,
)
QUICK = dataclasses.replace(CONFIG, iterations=3, games=2, warm_up=3, considered=4, gradient_steps=1)
ENCODER = EncoderConfig(latent=8, hidden=16, edge_hidden=4, rounds=2)
POLICY = PolicyConfig(torso=(32,), width=8, mask_width=8, noop_logit=-2.0)
MAX_STEPS = 12
MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
HARMFUL = independent_sites(-np.ones((2, 3)))


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=MAX_STEPS, strict=True)


@pytest.fixture(scope="module")
def optimum(env: GraphSubstitutionEnv) -> float:
    """Returns the improvement of the best of all graphs that rewrites lead to."""
    env.reset()
    state = env.state.copy()
    found = search_taso(state, alpha=1e6, budget=3000)
    assert found.stop_reason == "exhausted"
    assert len(found.actions) <= MAX_STEPS
    assert search_greedy(state).cost_ms == pytest.approx(state.cost.ms, rel=1e-4)  # hardly any single rewrite pays
    return 1 - found.cost_ms / state.cost.ms


def on_engine(env: GraphSubstitutionEnv, config: MctsConfig, seed: int = 0) -> tuple[MctsController, RealWorld]:
    world = RealWorld(lambda: GraphSubstitutionEnv(env.model, max_steps=env.max_steps, strict=True))
    controller = MctsController.build(env=env, config=config, policy=POLICY, encoder=ENCODER, seed=seed)
    return controller, world


def finds(env: GraphSubstitutionEnv, optimum: float, seed: int) -> bool:
    controller, world = on_engine(env, CONFIG, seed)
    controller.train(world)
    record = play_episode(env, controller, seed=0, deterministic=True)
    replay_record(GraphSubstitutionEnv(env.model, max_steps=MAX_STEPS, everywhere=False), record)
    return record.improvement == pytest.approx(optimum)


def test_it_finds_the_best_graph_where_single_rewrites_do_not_pay(env: GraphSubstitutionEnv, optimum: float) -> None:
    assert finds(env, optimum, seed=0)


@pytest.mark.full
def test_it_finds_the_best_graph_with_19_of_20_seeds(env: GraphSubstitutionEnv, optimum: float) -> None:
    assert sum(finds(env, optimum, seed) for seed in range(20)) >= 19


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("world", [MIXED, HARMFUL, detour()], ids=["mixed", "harmful", "detour"])
def test_it_learns_the_optimum_of_a_dream(world: TinyWorld) -> None:
    dream = TinyDream(world)
    controller, metrics = tiny_controller(dream, CONFIG), []
    controller.train(dream, on_progress=lambda done, total, values: metrics.append(values))
    record = play_episode(TinyView(dream), controller, seed=0, deterministic=True)
    best = world.best_return(dream.longest)
    assert max(np.cumsum(record.rewards).max(), 0.0) == pytest.approx(best)
    assert metrics[-1]["best_return"] == pytest.approx(best)
    if world is HARMFUL:
        assert record.num_steps == 1  # NO-OP at once


def stored(controller: MctsController, path: Path) -> dict[str, np.ndarray]:
    controller.save(path)
    with np.load(path) as arrays:
        return dict(arrays)


def in_tiny_dream() -> tuple[MctsController, Any, Any]:
    dream = TinyDream(MIXED)
    return tiny_controller(dream, QUICK), dream, TinyView(dream)


def in_tiny_graph() -> tuple[MctsController, Any, Any]:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=3, strict=True)
    return *on_engine(env, QUICK), env


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("make", [in_tiny_dream, in_tiny_graph], ids=["dream", "engine"])
def test_training_goes_on_bit_for_bit_from_a_checkpoint(make: Callable[[], Any], tmp_path: Path) -> None:
    path, seen = tmp_path / "controller", []
    (whole, world, view), (resumed, other, _) = make(), make()

    def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
        seen.append((done, total, metrics))
        if done == 2:
            whole.save(path)

    whole.train(world, on_progress=note)
    resumed.load(path)
    assert resumed.num_iterations == 2
    resumed.train(other)
    assert resumed.num_iterations == resumed.total == QUICK.iterations
    expected, found = stored(whole, tmp_path / "whole"), stored(resumed, tmp_path / "resumed")
    assert expected.keys() == found.keys()
    for name in expected:  # weights, moments of the optimiser, games and counters
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)
    for deterministic in (True, False):
        played = [play_episode(view, each, seed=1, deterministic=deterministic) for each in (whole, resumed)]
        assert played[0] == played[1]
    assert [(done, total) for done, total, _ in seen] == [(done, QUICK.iterations) for done in range(1, 4)]
    for _, _, metrics in seen:
        assert 0 <= metrics["return"] <= metrics["best_return"]
        assert metrics["policy_loss"] > -1e-6 and metrics["value_loss"] >= 0 and metrics["evaluated"] > 0
    if isinstance(world, RealWorld):  # the best game has become an episode of the real environment
        assert world.best is not None and world.best.kind == "training"
        best = max(metrics["best_return"] for _, _, metrics in seen)
        assert max(0.0, np.cumsum(world.best.rewards).max()) == pytest.approx(best)
        replay_record(GraphSubstitutionEnv(view.model, max_steps=50, everywhere=False), world.best)


@pytest.mark.usefixtures("untraced")
def test_noise_makes_episodes_differ_and_seeds_repeat_them() -> None:
    dream = TinyDream(MIXED)
    controller, view = tiny_controller(dream, dataclasses.replace(QUICK, c_scale=0.0)), TinyView(dream)
    sampled = [play_episode(view, controller, seed=seed).actions for seed in (0, 1, 2, 3, 0)]
    assert len(set(sampled)) > 1
    assert sampled[0] == sampled[4]
    assert len({play_episode(view, controller, seed=seed, deterministic=True).actions for seed in range(3)}) == 1


@pytest.mark.usefixtures("untraced")
def test_a_checkpoint_of_another_graph_is_refused(tmp_path: Path) -> None:
    in_tiny_dream()[0].save(tmp_path / "controller")
    stranger = tiny_controller(TinyDream(detour()), QUICK)
    with pytest.raises(StoredControllerError, match="trained for another graph"):
        stranger.load(tmp_path / "controller")


@pytest.mark.usefixtures("untraced")
def test_an_environment_of_another_graph_is_refused(env: GraphSubstitutionEnv) -> None:
    controller, _ = on_engine(env, QUICK)
    other = GraphSubstitutionEnv("nasrnn-tiny")
    other.reset()
    with pytest.raises(ValueError, match="build the controller for that environment"):
        controller.begin_episode(other, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"simulations": 0}, "simulations is 0"), ({"c_scale": -1.0}, "c_scale is -1"), ({"horizon": 0}, "horizon is 0")],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MctsConfig(**changes)
