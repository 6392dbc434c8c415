from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller.mcts.config import MctsConfig
from controller.mcts.search import Decision, Evaluator, TreeSearch
from controller.mcts.simulators import DreamSimulator, EngineSimulator, Position
from controller.worlds.graph_view import GraphView
from environment import GraphSubstitutionEnv
from environment.costs import registry as cost_models
from tests.controller.mcts.tiny_dreams import TinyDream
from tests.controller.tiny_worlds import TinyWorld, detour, independent_sites

MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
CONFIG = MctsConfig(simulations=16, considered=4)


def searching(world: TinyWorld, config: MctsConfig = CONFIG, unit: float = 1.0) -> tuple[DreamSimulator, TreeSearch]:
    simulator = DreamSimulator(TinyDream(world), telescoping=True)  # type: ignore[arg-type]
    evaluate = Evaluator(world.policy(seed=3), simulator.batch, cached=1000)
    return simulator, TreeSearch(simulator, evaluate, config, unit=unit)


def decide(world: TinyWorld, noise: np.ndarray | None, config: MctsConfig = CONFIG) -> Decision:
    simulator, search = searching(world, config)
    return search(simulator.starts(1, 0), [noise])[0]


@pytest.mark.usefixtures("untraced")
def test_the_root_is_visited_as_sequential_halving_says() -> None:
    noise = np.random.default_rng(0).gumbel(size=7)
    decision = decide(MIXED, noise)
    assert sorted(decision.visits.tolist(), reverse=True) == [6, 6, 2, 2, 0, 0, 0]
    assert decision.visits[decision.action] == 6
    assert decision.improved.sum() == pytest.approx(1.0)


@pytest.mark.usefixtures("untraced")
def test_roots_side_by_side_are_searched_as_if_alone() -> None:
    """The tolerance is float32 rounding of differently batched products."""
    noises = [np.random.default_rng(number).gumbel(size=7) for number in range(3)]
    simulator, search = searching(MIXED)
    together = search(simulator.starts(3, 0), noises)
    for noise, found in zip(noises, together, strict=True):
        alone = decide(MIXED, noise)
        assert found.action == alone.action
        np.testing.assert_array_equal(found.visits, alone.visits)
        np.testing.assert_allclose(found.improved, alone.improved, atol=1e-4)


@pytest.mark.usefixtures("untraced")
def test_a_search_looks_beyond_a_loss() -> None:
    """The untrained networks know nothing, and the first step of the better plan loses 1."""
    legal = np.array([[True, True, False], [False, False, True], [False, False, False]])
    following, rewards = np.array([[2, 1, 0], [0, 0, 2], [0, 0, 0]]), np.array([[1.0, -1.0, 0], [0, 0, 5.0], [0, 0, 0]])
    world = TinyWorld(np.array([0, 1, 2]), np.array([0, 0, 0]), legal, following, rewards)
    decision = decide(world, None, MctsConfig(simulations=24, considered=3, step_cost=0.0))
    assert decision.action == 1
    assert decision.q[0] == pytest.approx(1.0)
    assert 1.0 < decision.q[1] < 4.0


@pytest.mark.usefixtures("untraced")
def test_a_step_back_pays_back_what_was_earned() -> None:
    simulator, _ = searching(detour())
    (start,) = simulator.starts(1, 0)
    path = [start]
    for column in (1, 2):  # -2, and the rewrite that undoes it
        action = path[-1].columns.tolist().index(column)
        simulator.expand([(path[-1], action)])
        path.append(path[-1].children[action])
    assert [position.reward for position in path[1:]] == [-2.0, 2.0]
    assert path[-1].key == start.key
    assert [position.returned for position in path] == [False, False, True]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("revisit", [False, True])
def test_a_search_takes_no_step_back_unless_it_may(revisit: bool) -> None:
    simulator, search = searching(detour(), MctsConfig(simulations=8, considered=3, revisit=revisit))
    (start,) = simulator.starts(1, 0)
    simulator.expand([(start, 1)])
    lossy = start.children[1]
    undo = lossy.columns.tolist().index(2)
    decision = search([lossy], [None])[0]
    assert (decision.visits[undo] > 0) == (decision.improved[undo] > 0) == revisit


@pytest.mark.usefixtures("untraced")
def test_games_end_at_the_depth_that_the_world_model_knows() -> None:
    simulator = DreamSimulator(TinyDream(MIXED, longest=2), telescoping=True)  # type: ignore[arg-type]
    (position,) = simulator.starts(1, 0)
    simulator.expand([(position, 0)])
    position = position.children[0]
    assert not position.over
    simulator.expand([(position, 0)])
    assert position.children[0].over


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=6, strict=True)


def test_the_engine_simulates_exactly_what_the_environment_does(env: GraphSubstitutionEnv) -> None:
    assert_exact(EngineSimulator(env), env)


def test_the_engine_follows_prices_that_have_changed() -> None:
    own = GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=6, strict=True)
    simulator = EngineSimulator(own)
    assert_exact(simulator, own)
    own.costs = cost_models.find("roofline:xeon")
    own.reset(options={"graph": own.model})
    assert_exact(simulator, own)


def assert_exact(simulator: EngineSimulator, env: GraphSubstitutionEnv) -> None:
    """Branches are visited out of order, and every position still continues from where it was."""
    generator = np.random.default_rng(0)
    (start,) = simulator.starts(1, 0)
    for _ in range(10):
        view, position = GraphView(env), start
        observation, _ = view.reset()
        while not position.over:
            assert_same(simulator, position, observation)
            for action in generator.permutation(len(position.columns))[:3]:
                simulator.expand([(position, int(action))])
                last = int(action)
            observation, reward, terminated, truncated, _ = view.step(last)
            position = position.children[last]
            assert position.reward == reward
            assert position.over == (terminated or truncated)


def assert_same(simulator: EngineSimulator, position: Position, observation: Any) -> None:
    found = simulator.batch([position.observation])
    for name in ("nodes", "edges", "links", "candidates"):
        np.testing.assert_array_equal(
            getattr(found, name).flat_values, getattr(observation, name).flat_values, err_msg=name
        )
    np.testing.assert_array_equal(found.summary, observation.summary)
