"""Agents that learn to place: their distributions are exact, they learn what can be enumerated, and they transfer."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from controller.placement.graph_ppo import GraphPpo, GraphPpoConfig, PlacementView, graph_ppo
from controller.placement.interface import Objective, find_placer, place
from controller.placement.sequence import (
    GroupEmbeddings,
    ReinforceLearner,
    SequenceConfig,
    SequencePolicy,
    reinforce,
)
from controller.stored import StoredControllerError
from environment.placement import PlacementProblem, at_most
from environment.placement.env import failing_ms
from tests.controller.placement.test_placers import optimum_ms, towers
from tests.environment.placement.samples import random_graph, two_gpus

pytestmark = pytest.mark.usefixtures("untraced")

SMALL = SequenceConfig(hidden=16, type_size=4, samples=16, learning_rate=2e-2)
SMALL_PPO = GraphPpoConfig(hidden=16, rounds=2, choices=2, learning_rate=1e-2)


def sample(groups: int = 4, memory_bytes: float = 1e9, seed: int = 0) -> PlacementProblem:
    graph = random_graph(seed, 20)
    return PlacementProblem.of(graph, two_gpus(memory_bytes), at_most(graph, groups))


def all_placements(problem: PlacementProblem) -> np.ndarray:
    devices = range(problem.machine.num_devices)
    return np.array(list(itertools.product(devices, repeat=problem.num_groups)), np.int32)


def test_probabilities_of_all_placements_sum_to_one_and_samples_follow_them() -> None:
    """4000 samples of 27 placements: each share is within 5 standard errors (false alarms: below 1 in 50,000)."""
    problem = sample(groups=3)
    policy = SequencePolicy(GroupEmbeddings.of(problem), 3, SMALL)
    placements = all_placements(problem)
    log_probs, entropy = policy.log_probs(tf.constant(placements))
    probabilities = np.exp(log_probs.numpy())
    assert probabilities.sum() == pytest.approx(1.0, rel=1e-4)
    assert (entropy.numpy() <= math.log(3) + 1e-5).all()
    drawn = policy.sample(4000, tf.constant([0, 1])).numpy()
    counts = np.array([(drawn == each).all(axis=1).sum() for each in placements])
    errors = np.sqrt(4000 * probabilities * (1 - probabilities))
    assert (np.abs(counts - 4000 * probabilities) <= 5 * errors + 1).all()


def test_the_chosen_device_is_fed_back() -> None:
    """The distribution of a later group depends on the devices of earlier ones."""
    problem = sample(groups=3)
    policy = SequencePolicy(GroupEmbeddings.of(problem), 3, SMALL)
    conditional = {}
    for first in range(3):
        rows = np.array([[first, second, 0] for second in range(3)], np.int32)
        log_probs = policy.log_probs(tf.constant(rows))[0].numpy()
        conditional[first] = np.exp(log_probs - np.logaddexp.reduce(log_probs))
    assert not np.allclose(conditional[0], conditional[1], atol=1e-4)


def test_embeddings_have_types_padded_shapes_and_both_directions_of_edges() -> None:
    problem = sample(groups=6)
    found = GroupEmbeddings.of(problem)
    assert found.types.shape == (6, 2)
    assert found.types.sum(axis=1) == pytest.approx(np.ones(6))
    assert found.shapes.shape == (6, 16)
    assert set(np.unique(found.shapes).tolist()) <= {0.0, float(np.float32(np.log1p(8)))}
    assert (found.adjacency[:, :6] == found.adjacency[:, 6:].T).all()


def test_a_step_makes_good_placements_likelier_and_moves_the_baseline() -> None:
    problem = sample()
    learner = ReinforceLearner(problem, SMALL, seed=0)
    assert learner.baseline == -math.sqrt(failing_ms(problem) / 1000)
    placements = learner.sample(0)
    rewards = np.where(placements[:, 0] == 1, 0.0, 2 * learner.baseline)
    before = learner.policy.log_probs(tf.constant(placements))[0].numpy()
    start = learner.baseline
    learner.learn(placements, rewards, np.ones(16, bool))
    after = learner.policy.log_probs(tf.constant(placements))[0].numpy()
    good = placements[:, 0] == 1
    assert good.any() and not good.all()
    assert (after - before)[good].mean() > (after - before)[~good].mean()
    assert learner.baseline == pytest.approx(0.9 * start + 0.1 * rewards.mean())


def test_what_does_not_count_is_not_learned_from() -> None:
    problem = sample()
    learner = ReinforceLearner(problem, SMALL, seed=0)
    placements = learner.sample(0)
    before = learner.policy.log_probs(tf.constant(placements))[0].numpy()
    assert math.isnan(learner.learn(placements, np.zeros(16), np.zeros(16, bool)))
    assert learner.policy.log_probs(tf.constant(placements))[0].numpy() == pytest.approx(before)


@pytest.mark.full
@pytest.mark.parametrize("placer", ["reinforce", "ppo"])
def test_agents_learn_towers_whose_optimum_can_be_enumerated(placer: str) -> None:
    problem = towers(2, size=1024)
    settings = {"reinforce": (reinforce, SMALL), "ppo": (graph_ppo, SMALL_PPO)}[placer]
    found = settings[0](  # type: ignore[operator]
        problem, budget=600, seed=0, report=lambda count, ms: None, config=settings[1]
    )
    assert problem.evaluate(found).ms == pytest.approx(optimum_ms(problem), rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize("placer", ["reinforce", "ppo"])
def test_agents_keep_to_the_budget_and_to_the_seed(placer: str) -> None:
    counts: list[int] = []
    problem = sample()
    one = place(placer, problem, budget=40, seed=3, report=lambda count, ms: counts.append(count))
    other = place(placer, problem, budget=40, seed=3)
    assert max(counts) <= 40
    assert one.assignment.tolist() == other.assignment.tolist()
    assert find_placer(placer)


def test_one_policy_places_problems_of_other_sizes_and_machines() -> None:
    agent = GraphPpo(SMALL_PPO, seed=0)
    agent.train([sample(), sample(6, seed=1)], updates=2)
    for gpus, groups in ((1, 3), (4, 9)):
        graph = random_graph(7, 40)
        problem = PlacementProblem.of(graph, two_gpus(gpus=gpus), at_most(graph, groups))
        found = agent.place(problem)
        assert found.shape == (groups,)
        assert found.max() <= gpus


@pytest.mark.parametrize("groups", [1, 3])
def test_pairs_of_groups_and_devices_are_scored_as_rows(groups: int) -> None:
    """TensorFlow 2.21 damages the heap when it multiplies [n, 1, r, k] by [k, m] on a CPU; a graph may be one group."""
    agent, view = GraphPpo(SMALL_PPO, seed=0), PlacementView(sample(groups))
    state = agent.policy.encode(view)
    scores = tf.function(lambda before: agent.policy.logits(view, state, before))
    program = scores.get_concrete_function(tf.TensorSpec([8, *view.work.shape])).graph
    products = [each for each in program.get_operations() if "MatMul" in each.type]
    assert products and all(each.inputs[0].shape.rank == each.inputs[1].shape.rank for each in products)


@pytest.mark.full
def test_a_policy_for_towers_of_two_places_towers_of_three_without_training() -> None:
    """Zero-shot: at least one of three seeds places unseen towers about as well as one GPU does, or better."""
    unseen = towers(3, size=1024)
    gains = []
    for seed in range(3):
        agent = GraphPpo(SMALL_PPO, seed=seed)
        agent.train([towers(2, size=1024)], updates=60)
        gains.append(unseen.evaluate(agent.place(unseen)).ms / unseen.evaluate(unseen.single(1)).ms)
    assert min(gains) < 1.05


def test_first_ratios_are_one_and_probabilities_are_those_of_the_sample() -> None:
    problem = sample()
    agent, view = GraphPpo(SMALL_PPO, seed=0), PlacementView(problem)
    chosen, log_probs = agent.sample(view, 8)
    state, before = agent.policy.encode(view), tf.zeros([8, *view.work.shape])
    for each in range(SMALL_PPO.choices):
        logits = tf.nn.log_softmax(agent.policy.logits(view, state, before))
        again = tf.gather(logits, chosen[each], batch_dims=2)
        assert np.exp(again - log_probs[each]) == pytest.approx(np.ones(again.shape), rel=1e-5)
        before = tf.one_hot(chosen[each], 3)


def test_renumbering_groups_only_renumbers_what_the_graph_policy_says() -> None:
    problem = sample(6)
    order = np.random.default_rng(0).permutation(6)
    renumbered = PlacementProblem(problem.graph, problem.machine, order[problem.groups], problem.operator_ms)
    agent = GraphPpo(SMALL_PPO, seed=0)
    views = PlacementView(problem), PlacementView(renumbered)
    logits = [agent.policy.logits(view, agent.policy.encode(view), tf.zeros([1, 6, 3]))[0].numpy() for view in views]
    assert logits[1][order] == pytest.approx(logits[0], abs=1e-5)


def test_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    problem = sample()
    one, other = GraphPpo(SMALL_PPO, seed=0), GraphPpo(SMALL_PPO, seed=1)
    for agent in (one, other):
        agent.place(problem)  # makes the weights
    one.save(tmp_path / "weights.npz")
    other.load(tmp_path / "weights.npz")
    views = PlacementView(problem)
    logits = [agent.policy.logits(views, agent.policy.encode(views), tf.zeros([1, 4, 3])) for agent in (one, other)]
    assert logits[0].numpy() == pytest.approx(logits[1].numpy())
    larger = GraphPpo(GraphPpoConfig(hidden=8, rounds=2), seed=0)
    larger.place(problem)
    with pytest.raises(StoredControllerError):
        larger.load(tmp_path / "weights.npz")


@pytest.mark.full
def test_memory_that_is_missing_is_seen_by_the_objective_of_both() -> None:
    problem = sample(memory_bytes=500.0)
    objective = Objective(problem, lambda count, ms: None)
    agent = GraphPpo(SMALL_PPO, seed=0)
    agent.train([problem], updates=30, objectives=[objective])
    assert problem.evaluate(objective.best).fits
