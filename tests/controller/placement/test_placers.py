"""Placers: what all of them keep to, and what some find on problems whose optimum is known."""

from __future__ import annotations

import itertools
import shutil
import sys

import numpy as np
import pytest

from controller.placement.annealing import repeats, starts
from controller.placement.interface import LEARNED, PLACERS, Objective, Placed, find_placer, place, require_fit
from controller.placement.lists import upward_ranks
from controller.placement.partition import mapped, source_graph
from environment import zoo
from environment.gradients import training_model
from environment.placement import OperatorGraph, PlacementError, PlacementProblem, at_most, find_machine
from environment.placement.features import group_ms
from environment.placement.training import grouped
from taso_ext import GraphBuilder, OnnxModel
from tests.environment.placement.samples import FLOAT, random_graph, two_gpus

HERE = [name for name in PLACERS if name not in LEARNED and (name not in ("scotch", "mincut") or shutil.which("gmap"))]
"""Without those that learn, which test_learned.py is about."""


def sample(seed: int = 0, groups: int = 8, gpus: int = 2, memory_bytes: float = 1e9) -> PlacementProblem:
    graph = random_graph(seed, 40)
    return PlacementProblem.of(graph, two_gpus(memory_bytes, gpus=gpus), at_most(graph, groups))


def towers(branches: int, size: int) -> PlacementProblem:
    """Returns equal chains of large products that only meet in a small sum, each chain a group."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [size, size])
    ends = []
    for branch in range(branches):
        value = x
        for step in range(4):
            (value,) = builder.node("", "MatMul", {}, [value, value], [(f"m{branch}{step}", FLOAT, [size, size])])
        attributes = {"keepdims": 1}
        ends += builder.node("", "ReduceMean", attributes, [value], [(f"r{branch}", FLOAT, [1, 1])])
    (total,) = builder.node("", "Sum", {}, ends, [("total", FLOAT, [1, 1])])
    builder.output(total)
    graph = OperatorGraph.of_graph(builder.build())
    labels = np.array([int(each.output[1]) if each.output != "total" else branches for each in graph.operators])
    return PlacementProblem.of(graph, two_gpus(gpus=branches), labels)


def optimum_ms(problem: PlacementProblem) -> float:
    devices = range(problem.machine.num_devices)
    return min(problem.evaluate(np.array(each)).ms for each in itertools.product(devices, repeat=problem.num_groups))


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("seed", range(3))
def test_every_placer_gives_each_group_a_device_and_says_what_that_costs(name: str, seed: int) -> None:
    problem = sample(seed)
    placed = place(name, problem, budget=60, seed=seed)
    assert placed.assignment.shape == (problem.num_groups,)
    assert set(placed.assignment.tolist()) <= {0, 1, 2}
    assert placed.outcome.ms == problem.evaluate(placed.assignment).ms
    assert place(name, problem, budget=60, seed=seed).assignment.tolist() == placed.assignment.tolist()


@pytest.mark.parametrize("name", HERE)
def test_every_placer_works_on_one_device_and_on_one_group(name: str) -> None:
    graph = random_graph(0)
    alone = PlacementProblem.of(graph, two_gpus(gpus=0), at_most(graph, 5))
    assert place(name, alone, budget=10).assignment.tolist() == [0] * 5
    assert place(name, sample(groups=1), budget=10).assignment.shape == (1,)


@pytest.mark.parametrize("name", ["metis", "metis-gpus"])
def test_few_groups_get_a_device_each_the_one_with_the_most_work_the_fastest(name: str) -> None:
    """METIS cannot part so few groups, and says so on the terminal."""
    problem = sample(groups=2, gpus=3)
    ms, placed = group_ms(problem), place(name, problem).assignment
    speeds = 1 / ms.sum(axis=0)
    first, second = placed[ms[:, 0].argmax()], placed[ms[:, 0].argmin()]
    assert first != second and speeds[first] >= speeds[second]
    assert (placed > 0).all() == (name == "metis-gpus")  # the host is fast enough for operators as small as these


@pytest.mark.parametrize("name", ["heft", "m-etf", "metis-gpus", "expert", "annealing"])
@pytest.mark.parametrize("branches", [2, 3])
def test_independent_towers_go_to_devices_of_their_own(name: str, branches: int) -> None:
    problem = towers(branches, size=1024)
    placed = place(name, problem, budget=400)
    assert len(set(placed.assignment[:branches].tolist())) == branches
    assert placed.outcome.ms == pytest.approx(optimum_ms(problem), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_annealing_finds_the_optimum_of_problems_that_can_be_enumerated(seed: int) -> None:
    problem = sample(seed, groups=6)
    assert place("annealing", problem, budget=2000, seed=seed).outcome.ms == pytest.approx(optimum_ms(problem))


@pytest.mark.parametrize("seed", range(3))
def test_annealing_is_never_worse_than_its_starts(seed: int) -> None:
    problem = sample(seed, groups=12)
    found = place("annealing", problem, budget=30, seed=seed).outcome.ms
    assert found <= min(place(name, problem).outcome.ms for name in ("single-cpu", "single-gpu", "heft"))


def test_annealing_keeps_to_its_budget_and_reports_falling_times() -> None:
    reports: list[tuple[int, float]] = []
    place("annealing", sample(), budget=50, report=lambda count, ms: reports.append((count, ms)))
    assert [count for count, _ in reports] == list(range(1, 51))
    assert all(later <= earlier for (_, earlier), (_, later) in itertools.pairwise(reports))


def test_lists_and_annealing_find_placements_that_fit_where_one_gpu_does_not() -> None:
    problem = sample(1, groups=10)
    whole = problem.evaluate(problem.single(1)).peak_bytes[1]
    small = sample(1, groups=10, memory_bytes=0.8 * whole)
    assert not place("single-gpu", small).outcome.fits
    assert place("annealing", small, budget=300).outcome.fits


def test_m_etf_says_that_a_group_has_room_nowhere() -> None:
    graph = random_graph(0)
    machine = two_gpus(10.0)
    machine = type(machine)(
        machine.name, (type(machine.devices[0])("cpu:0", "roofline:xeon", 10.0), *machine.devices[1:]), machine.links
    )
    with pytest.raises(PlacementError, match="no device for group"):
        place("m-etf", PlacementProblem.of(graph, machine, at_most(graph, 4)))


def test_upward_ranks_fall_along_every_edge() -> None:
    problem = sample(2, groups=20)
    ranks = upward_ranks(problem)
    for transfer in problem.transfers:
        if transfer.producer >= 0:
            assert all(ranks[transfer.producer] > ranks[reader] for reader in transfer.readers)
    assert sorted(problem.order) == list(range(problem.num_tasks))


def test_the_objective_remembers_the_best_and_prefers_less_missing_memory() -> None:
    problem = sample(memory_bytes=500.0)
    objective = Objective(problem, lambda count, ms: None)
    both = np.arange(problem.num_groups, dtype=np.int32) % 2 + 1
    times = {
        "one": (objective(problem.single(1)), problem.evaluate(problem.single(1)).missing_bytes.sum()),
        "both": (objective(both), problem.evaluate(both).missing_bytes.sum()),
    }
    assert (times["one"][0] > times["both"][0]) == (times["one"][1] > times["both"][1])
    assert objective(problem.single(0)) == objective.best_ms
    assert objective.best.tolist() == [0] * problem.num_groups


def test_a_placement_without_room_is_refused_with_where_and_how_much() -> None:
    problem = sample(memory_bytes=500.0)
    with pytest.raises(PlacementError, match=r"cuda:0 needs .* GB are missing"):
        require_fit(problem, place("single-gpu", problem))
    require_fit(problem, place("single-cpu", problem))


def test_the_expert_keeps_numbered_layers_whole_and_in_order() -> None:
    problem = sample(4, groups=40)
    device_of = {}
    for operator, group in zip(problem.graph.operators, problem.groups, strict=True):
        device_of.setdefault(operator.name.split("/")[1], set()).add(int(place("expert", problem).assignment[group]))
    assert all(len(devices) == 1 for devices in device_of.values())
    order = [min(device_of[f"layer.{number}"]) for number in range(len(device_of))]
    assert order == sorted(order)
    assert set(order) == {1, 2}


def test_unknown_and_missing_placers_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlacementError, match="did you mean 'metis'"):
        find_placer("mets")
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(PlacementError, match="pip install"):
        place("metis", sample())
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(PlacementError, match="apt install scotch"):
        place("scotch", sample())


def test_scotch_files_are_in_its_format() -> None:
    text = source_graph([{1: 5}, {0: 5, 2: 1}, {1: 1}], [10, 20, 30])
    assert text == "0\n3 4\n0 011\n10 1 5 1\n20 2 5 0 1 2\n30 1 1 1\n"
    assert mapped("3\n0\t1\n2\t0\n1\t1\n", 3, [0, 4]).tolist() == [4, 4, 0]
    with pytest.raises(PlacementError, match="2 of 3"):
        mapped("2\n0\t1\n2\t0\n", 3, [0, 4])


@pytest.mark.full
@pytest.mark.parametrize("machine", ["k80x4", "two-hosts", "v100x8"])
def test_full_networks_are_placed_by_all(machine: str) -> None:
    from environment import zoo
    from taso_ext import OnnxModel

    graph = OperatorGraph.of(OnnxModel.load(zoo.build("inception-v3:batch=32")))
    problem = PlacementProblem.of(graph, find_machine(machine), at_most(graph, 83))
    found = {name: place(name, problem, budget=2000).outcome.ms for name in HERE}
    assert found["annealing"] <= min(found["single-gpu"], found["heft"])
    assert found["single-cpu"] == max(found.values())


def test_placed_is_a_value() -> None:
    problem = sample()
    assert isinstance(place("single-cpu", problem), Placed)


def test_repeats_are_groups_whose_names_differ_in_the_last_number() -> None:
    model = training_model(zoo.outline("rnnlm-tiny:outputs=3,batch=2"), optimiser="sgd", accumulate=True)
    graph = OperatorGraph.of(OnnxModel.load(model, clean="none"))
    labels = grouped(graph, 50, scopes=[r"/(lstm/layers\.\d+/step\.\d+)/", r"/(?:classifier/step|loss/output)\.(\d+)/"])
    found = PlacementProblem.of(graph, two_gpus(), labels)
    families = {tuple(each) for each in repeats(found)}
    assert sorted(group for family in families for group in family) == list(range(found.num_groups))
    names = [each.name for each in graph.operators]
    for layer in range(2):
        cells = [int(labels[names.index(f"/lstm/layers.{layer}/step.{step}/MatMul")]) for step in range(3)]
        # The first step's group begins with an operator that no other has: the state before.
        assert any(set(cells[1:]) <= set(family) for family in families)


@pytest.mark.parametrize("seed", range(3))
def test_annealing_is_as_good_as_every_baseline(seed: int) -> None:
    problem = PlacementProblem.of(random_graph(seed, 40), two_gpus(), at_most(random_graph(seed, 40), 10))
    best = min(problem.evaluate(each).ms for each in starts(problem, seed))
    assert place("annealing", problem, budget=60, seed=seed).outcome.ms <= best


def test_annealing_leaves_placements_that_do_not_fit() -> None:
    """Everything fits the host alone, and no single GPU; the search finds a split that fits and is faster."""
    graph = random_graph(1, 40)
    labels = at_most(graph, 10)
    whole = PlacementProblem.of(graph, two_gpus(), labels)
    memory = 0.7 * float(whole.evaluate(whole.single(1)).peak_bytes[1])
    problem = PlacementProblem.of(graph, two_gpus(memory), labels)
    assert not problem.evaluate(problem.single(1)).fits
    assert place("annealing", problem, budget=400, seed=0).outcome.fits
