"""Controllers that share weights: the same mathematics whoever carries out their rounds."""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from controller.placement.asynchronous import (
    AsynchronousConfig,
    Controller,
    Round,
    SharedWeights,
    TurnPool,
    Weights,
    counted_ms,
    interleaved,
    reinforce_async,
    reinforce_ray,
    train,
)
from controller.placement.interface import find_placer
from controller.placement.sequence import ReinforceLearner, SequenceConfig, reinforce
from environment.placement import PlacementError, PlacementProblem, at_most
from environment.placement.problem import Assignment
from tests.environment.placement.samples import random_graph, two_gpus
from tests.tracing import untraced

SMALL = SequenceConfig(hidden=8, type_size=4, samples=4)


def problem(seed: int = 0, groups: int = 6) -> PlacementProblem:
    graph = random_graph(seed, 30)
    return PlacementProblem.of(graph, two_gpus(), at_most(graph, groups))


def rounds_of(placer: Callable[..., Assignment], updates: int, **settings: object) -> tuple[list[int], list[float]]:
    best: list[float] = []
    placer = placer(
        problem(), budget=updates * SMALL.samples, seed=3, report=lambda done, ms: best.append(ms), **settings
    )
    return placer.tolist(), best


def test_a_gradient_does_not_depend_on_whether_functions_are_compiled() -> None:
    """Functions run eagerly in a small run; the gradient of gathered rows is sparse then."""
    placements = np.array([[0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 0, 0]], np.int32)
    rewards, counted = np.array([-1.0, -0.5]), np.array([True, True])
    learner = ReinforceLearner(problem(), SMALL, seed=0)
    baseline, found = learner.baseline, []
    for run in (contextlib.nullcontext, untraced):
        learner.baseline = baseline
        with run():
            found.append(learner.gradient(placements, rewards, counted))
    assert found[0] is not None and found[1] is not None
    for compiled, eager in zip(*found, strict=True):
        np.testing.assert_allclose(eager, compiled, rtol=1e-2, atol=1e-4, err_msg="but for the rounding of sums")


def test_one_controller_computes_what_the_agent_alone_computes() -> None:
    alone, by_placement = rounds_of(reinforce, 5, config=SMALL)
    shared, by_round = rounds_of(reinforce_async, 5, config=AsynchronousConfig(1, 1, SMALL))
    assert shared == alone
    assert by_round == by_placement[SMALL.samples - 1 :: SMALL.samples]


class Recorder:
    """A pool that notes of which weights each round is, and returns gradients of ones."""

    def __init__(self, order: Callable[[list[int]], int]) -> None:
        self.order, self.running, self.seen = order, dict[int, float](), list[tuple[int, float]]()
        self.fitting: list[bool] = []

    def weights(self) -> Weights:
        return [np.zeros(1, np.float32)]

    def begin(self, controller: int, weights: Weights, update: int, fitting_only: bool) -> None:
        assert controller not in self.running
        self.running[controller] = float(weights[0][0])
        self.fitting.append(fitting_only)

    def ended(self) -> tuple[int, Round]:
        controller = self.order(list(self.running))
        self.seen.append((controller, self.running.pop(controller)))
        return controller, Round([np.ones(1, np.float32)], np.zeros((1, 1), np.int32), np.ones(1))


@pytest.mark.parametrize("controllers", [1, 3])
def test_in_turns_a_gradient_is_of_weights_that_others_have_changed_since(controllers: int) -> None:
    """Adam's first steps along a constant gradient are one learning rate each, so weights count updates."""
    pool = Recorder(lambda running: running[0])
    train(pool, AsynchronousConfig(controllers, 1, SMALL), 9, lambda placements, ms: None)
    behind = [at - round(-weight / SMALL.learning_rate) for at, (_, weight) in enumerate(pool.seen)]
    assert behind == [min(at, controllers - 1) for at in range(9)]
    assert pool.fitting == [at >= 5 for at in range(9)]


def test_a_slow_controller_holds_up_no_other() -> None:
    pool = Recorder(lambda running: max(running))
    train(pool, AsynchronousConfig(3, 1, SMALL), 9, lambda placements, ms: None)
    assert Counter(controller for controller, _ in pool.seen) == {2: 7, 1: 1, 0: 1}


def test_a_controller_leaves_the_update_to_others() -> None:
    controller = Controller(problem(), SMALL, 0)
    before = controller.weights()
    placements = controller.sample(before, 0)
    found = controller.differentiate(placements, counted_ms(controller.problem, placements), False)
    assert found.gradient is not None
    assert all(np.array_equal(one, other) for one, other in zip(before, controller.weights(), strict=True))
    shared = SharedWeights(before, 0.1)
    shared.apply(found.gradient)
    moved = [np.abs(new - old).max() for new, old in zip(shared.values(), before, strict=True)]
    assert max(moved) == pytest.approx(0.1, rel=1e-2)  # the size of Adam's first step
    nothing = controller.differentiate(placements, np.full(SMALL.samples, np.inf), True)
    assert nothing.gradient is None


def test_a_pool_begins_with_the_weights_of_its_first_controller_and_each_draws_its_own_placements() -> None:
    config = AsynchronousConfig(2, 1, SMALL)
    pool = TurnPool(problem(), config, 0)
    first = pool.weights()
    for controller in range(2):
        pool.begin(controller, first, 0, False)
    (_, one), (_, other) = pool.ended(), pool.ended()
    assert not np.array_equal(one.placements, other.placements)


def test_times_of_workers_come_back_in_order() -> None:
    times = np.arange(7.0)
    assert interleaved(times[0::3], times[1::3], times[2::3]).tolist() == times.tolist()


def test_a_problem_that_is_sent_elsewhere_simulates_the_same() -> None:
    here = problem()
    assignment = np.arange(here.num_groups, dtype=np.int32) % 3
    expected = here.evaluate(assignment)
    there = pickle.loads(pickle.dumps(here)).evaluate(assignment)
    assert (there.ms, there.copied_bytes) == (expected.ms, expected.copied_bytes)
    assert (there.peak_bytes == expected.peak_bytes).all()


def test_without_ray_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(PlacementError, match="not installed: pip install"):
        find_placer("reinforce-ray")(problem(), budget=8, seed=0, report=lambda done, ms: None)


@pytest.mark.ray
def test_through_ray_one_controller_computes_the_same_whatever_its_workers() -> None:
    ray = pytest.importorskip("ray")
    expected = rounds_of(reinforce_async, 4, config=AsynchronousConfig(1, 1, SMALL))
    try:
        for workers in (1, 3):
            assert rounds_of(reinforce_ray, 4, config=AsynchronousConfig(1, workers, SMALL)) == expected
        best, by_round = rounds_of(reinforce_ray, 6, config=AsynchronousConfig(3, 2, SMALL))
        assert len(by_round) == 6
        assert problem().evaluate(np.array(best)).ms == by_round[-1] == min(by_round)
    finally:
        ray.shutdown()
