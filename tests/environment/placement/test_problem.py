"""Placement problems: tasks, memory, kernels, and the Gymnasium environment over them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from environment import zoo
from environment.placement import OperatorGraph, PlacementEnv, PlacementError, PlacementProblem, at_most, find_machine
from environment.placement.env import failing_ms
from environment.placement.features import group_adjacency, group_edges, group_features
from taso_ext import CostModel, OnnxModel
from tests.environment.placement.samples import is_acyclic, random_graph, two_gpus


def sample(seed: int = 0, groups: int = 8, **settings: object) -> PlacementProblem:
    graph = random_graph(seed, 40)
    return PlacementProblem.of(graph, two_gpus(**settings), at_most(graph, groups))  # type: ignore[arg-type]


def tiny(name: str, machine: str = "k80x2", groups: int = 10) -> PlacementProblem:
    graph = OperatorGraph.of(OnnxModel.load(zoo.build(name)))
    return PlacementProblem.of(graph, find_machine(machine), at_most(graph, groups))


@pytest.mark.parametrize("name", ["inception-v3-tiny", "bert-base-tiny", "nasrnn-tiny"])
def test_on_the_host_alone_a_step_takes_what_its_cost_model_says(name: str) -> None:
    problem = tiny(name)
    expected = problem.graph.graph.cost(CostModel.roofline("haswell18")).ms
    assert problem.evaluate(problem.single(0)).ms == pytest.approx(expected)
    assert problem.evaluate(problem.single(0)).copies == 0


def test_on_one_gpu_only_inputs_are_copied() -> None:
    problem = tiny("inception-v3-tiny")
    outcome = problem.evaluate(problem.single(1))
    fed = sum(each.nbytes for each in problem.graph.tensors if each.kind == "fed")
    assert (outcome.copies, outcome.copied_bytes) == (1, fed)
    assert outcome.ms == pytest.approx(
        problem.graph.graph.cost(CostModel.roofline("k80")).ms + 0.01 + fed / 12e6, rel=1e-6
    )


def test_memory_of_one_device_is_parameters_and_the_most_that_lives_at_a_time() -> None:
    """By hand, from the tensors: the largest sum over all moments of a run in the order of the tasks."""
    problem = sample(5, groups=40)  # so that each operator is a task
    assert problem.num_tasks == len(problem.graph)
    timeline = problem.timeline(problem.single(0))
    order = np.argsort(timeline.begin_ms, kind="stable")
    position = {int(operator): at for at, operator in enumerate(order)}
    held = np.zeros(len(order))
    for tensor in problem.graph.tensors:
        first = position[tensor.producer] if tensor.producer >= 0 else 0
        last = len(order) - 1 if tensor.is_output else max(position[reader] for reader in tensor.readers)
        held[first : last + 1] += tensor.nbytes
    assert problem.evaluate(problem.single(0)).peak_bytes[0] == held.max()


def test_running_out_of_memory_says_where_and_how_much() -> None:
    problem = sample(memory_bytes=1000.0)
    outcome = problem.evaluate(problem.single(1))
    missing = outcome.peak_bytes[1] - 1000
    assert not outcome.fits
    assert outcome.missing_bytes.tolist() == [0, missing, 0]
    assert "cuda:0 needs" in problem.failure(outcome)
    assert f"{missing / 1e9:.3g} GB are missing" in problem.failure(outcome)
    assert problem.failure(problem.evaluate(problem.single(0))) == ""


def test_what_has_no_kernel_stays_on_the_host() -> None:
    problem = sample(lacks=frozenset({"Relu"}))
    placement = problem.placement(problem.single(2))
    relus = {task for task, each in zip(problem.tasks, problem.graph.operators, strict=True) if each.op_type == "Relu"}
    assert relus
    assert {task for task in range(problem.num_tasks) if placement[task] == 0} == relus
    assert math.isfinite(problem.evaluate(problem.single(2)).ms)


def test_a_host_without_a_kernel_is_refused() -> None:
    graph = random_graph(0)
    times = np.ones((len(graph), 3))
    times[4, 0] = np.inf
    with pytest.raises(PlacementError, match="lacks a kernel"):
        PlacementProblem(graph, two_gpus(), at_most(graph, 3), times)


@pytest.mark.parametrize("seed", range(5))
def test_any_grouping_becomes_tasks_without_cycles(seed: int) -> None:
    graph = random_graph(seed, 40)
    labels = np.random.default_rng(seed).integers(0, 5, len(graph))
    problem = PlacementProblem.of(graph, two_gpus(), labels)
    assert is_acyclic(graph, problem.tasks)
    assert (problem.group_of_task[problem.tasks] == labels).all()
    assert problem.task_ms.sum() == pytest.approx(problem.operator_ms.sum())


def test_copied_parameters_of_training_are_held_once_with_their_state() -> None:
    graph = OperatorGraph.of(OnnxModel.load(zoo.build("bert-base-tiny")))
    labels = at_most(graph, 6)
    bytes_of = sum(each.nbytes for each in graph.tensors if each.kind == "parameter")
    plain = PlacementProblem.of(graph, two_gpus(), labels)
    adam = PlacementProblem.of(graph, two_gpus(), labels, parameters="copied", optimiser_slots=2)
    difference = adam.evaluate(adam.single(1)).peak_bytes[1] - plain.evaluate(plain.single(1)).peak_bytes[1]
    assert difference == 2 * bytes_of


def test_measured_times_keep_the_ratio_of_devices() -> None:
    graph = random_graph(0)
    problem = PlacementProblem.of(graph, two_gpus(), at_most(graph, 5), operator_ms=np.arange(len(graph), dtype=float))
    assert problem.operator_ms[:, 0].tolist() == list(range(len(graph)))
    plain = PlacementProblem.of(graph, two_gpus(), at_most(graph, 5)).operator_ms
    runs = (plain[:, 0] > 0) & (np.arange(len(graph)) > 0)
    ratios = problem.operator_ms[runs, 1] / problem.operator_ms[runs, 0]
    assert ratios == pytest.approx(plain[runs, 1] / plain[runs, 0])


@pytest.mark.parametrize("mode", ["whole", "stepwise"])
def test_the_environment_passes_gymnasiums_checker(mode: str) -> None:
    check_env(PlacementEnv(sample(), mode=mode), skip_render_check=True)  # type: ignore[arg-type]


def test_both_modes_reward_the_same_assignment_alike() -> None:
    problem = sample()
    whole, stepwise = PlacementEnv(problem), PlacementEnv(problem, mode="stepwise")
    whole.reset(seed=0)
    stepwise.reset(seed=0)
    assignment = np.random.default_rng(0).integers(0, 3, problem.num_groups)
    _, reward, terminated, _, info = whole.step(assignment)
    rewards = []
    for at, device in enumerate(assignment):
        observation, each, ended, _, last = stepwise.step(device)
        rewards.append(each)
        assert ended == (at == problem.num_groups - 1)
    assert rewards[:-1] == [0.0] * (problem.num_groups - 1)
    assert rewards[-1] == reward == -math.sqrt(info["step_ms"] / 1000)
    assert last["step_ms"] == info["step_ms"] == problem.evaluate(assignment).ms
    assert terminated
    assert observation["placement"].tolist() == assignment.tolist()


def test_a_placement_that_does_not_fit_earns_the_failing_signal() -> None:
    problem = sample(memory_bytes=1000.0)
    env = PlacementEnv(problem)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(problem.single(1))
    assert not info["fits"]
    assert reward == -math.sqrt(failing_ms(problem) / 1000)
    env.reset(seed=0)
    assert float(env.step(problem.single(0))[1]) > float(reward)


def test_the_environment_refuses_devices_and_steps_that_do_not_exist() -> None:
    env = PlacementEnv(sample())
    env.reset(seed=0)
    with pytest.raises(PlacementError, match="device from 0 to 2"):
        env.step(np.full(env.problem.num_groups, 3))
    env.reset(seed=0)
    env.step(env.problem.single(0))
    with pytest.raises(ValueError, match="reset"):
        env.step(env.problem.single(0))
    with pytest.raises(ValueError, match="mode"):
        PlacementEnv(sample(), mode="other")  # type: ignore[arg-type]


def test_features_and_edges_are_those_of_the_groups() -> None:
    problem = sample()
    assert group_features(problem).shape == (problem.num_groups, 6 + 3)
    assert np.isfinite(group_features(problem)).all()
    assert group_adjacency(problem).sum() == len(group_edges(problem))
    assert all(one != other for one, other in group_edges(problem))
