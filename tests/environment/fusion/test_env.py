"""The fusion environment: Gymnasium's contract, rewards that telescope, and queries that nobody can hide."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from environment.fusion import DEFAULT, DEVICES, RANDOM, FusionEnv, FusionGraph, Objective, load
from environment.fusion.graphs import NODE_COLUMNS
from taso_ext import FusionPlan, GraphBuilder

TINY = "nasrnn-tiny"


@pytest.fixture(scope="module")
def graph() -> FusionGraph:
    return load(TINY, "v100")


@pytest.mark.filterwarnings("ignore:.*For Box action spaces.*")
@pytest.mark.parametrize("device", DEVICES)
def test_gymnasium_accepts_the_environment(device: str) -> None:
    check_env(gymnasium.make("environment:rlflow/Fusion-v0", graph=TINY, device=device).unwrapped)


def test_rewards_telescope_to_the_cost_of_a_plan_made_anew(graph: FusionGraph) -> None:
    env = FusionEnv(graph, max_steps=30, max_distance=2)
    env.reset(seed=1, options={"configuration": RANDOM})
    env.action_space.seed(1)
    total, truncated = 0.0, False
    while not truncated:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        total += float(reward)
        assert not terminated
    fresh = FusionPlan(graph.problem, env.configuration).cost_ms()
    assert info["cost_ms"] == fresh
    assert total == pytest.approx(100 * math.log(info["start_cost_ms"] / fresh))
    assert info["best_cost_ms"] <= min(info["start_cost_ms"], fresh)


def test_the_same_action_twice_changes_nothing(graph: FusionGraph) -> None:
    env = FusionEnv(graph)
    before, _ = env.reset(seed=0)
    env.step([3, 1])
    after, *_ = env.step([3, 1])
    assert np.array_equal(before["configuration"], after["configuration"])


def test_every_way_to_a_price_counts(graph: FusionGraph) -> None:
    start = graph.problem.queries
    env = FusionEnv(graph)
    env.reset(seed=0)
    _, _, _, _, info = env.step([0, 0])
    objective = Objective(graph)
    objective.advantages(graph.configurable[:5])
    FusionPlan(graph.problem, graph.start()).cost_ms()
    assert info["queries"] == 2
    assert objective.queries == 7
    assert graph.problem.queries == start + 1 + 2 + 7 - 1 + 1  # FusionEnv prices its first plan when it is made


def test_an_objective_remembers_its_best_and_takes_back(graph: FusionGraph) -> None:
    objective, rng = Objective(graph, graph.start(RANDOM, 3)), np.random.default_rng(0)
    seen = [objective.start_ms]
    for _ in range(40):
        before, bits = objective.cost_ms, objective.configuration
        seen.append(objective.flipped(rng.choice(graph.configurable, 3, replace=False)))
        if seen[-1] > before:
            objective.undo()
            assert objective.cost_ms == before and np.array_equal(objective.configuration, bits)
    assert objective.best_ms == min(seen) and objective.queries == len(seen)
    assert FusionPlan(graph.problem, objective.best_configuration).cost_ms() == objective.best_ms
    objective.moved_to(graph.start(DEFAULT))
    objective.undo()
    with pytest.raises(RuntimeError, match="no flip to take back"):
        objective.undo()


def test_columns_do_not_depend_on_the_order_of_questions_or_on_the_plan(graph: FusionGraph) -> None:
    again = load(TINY, "v100")
    FusionPlan(again.problem, again.start(RANDOM)).cost_ms()
    assert np.array_equal(again.nodes, graph.nodes) and graph.nodes.shape == (len(graph.problem), len(NODE_COLUMNS))
    assert np.isfinite(graph.nodes).all() and graph.links.min() >= 0 and (graph.links[:, 0] < graph.links[:, 1]).all()


def test_bad_input_is_refused(graph: FusionGraph) -> None:
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        FusionEnv(graph, max_steps=0)
    env = FusionEnv(graph)
    for action in ([-1, 0], [len(graph.configurable), 0], [0, 2]):
        with pytest.raises(ValueError, match=r"expected \[node, distance\]"):
            env.step(action)
    with pytest.raises(ValueError, match="a search starts from"):
        env.reset(options={"configuration": "best"})
    builder = GraphBuilder()
    builder.output(builder.node("", "Relu", {}, [builder.input("x", 1, [2])], [("y", 1, [2])])[0])
    with pytest.raises(ValueError, match="has nothing to decide"):
        FusionGraph.of(builder.build(), "v100")
