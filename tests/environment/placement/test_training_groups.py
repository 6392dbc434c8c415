"""Training graphs as placement sees them: parameters that are inputs, groups of gradients, and towers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from environment import zoo
from environment.gradients import training_model
from environment.placement import Device, Machine, OperatorGraph, PlacementError, PlacementProblem
from environment.placement.grouping import origin
from environment.placement.towers import batch_ms, towers
from environment.placement.training import TrainingParts, colocated, grouped, is_training
from taso_ext import OnnxModel
from tests.environment.placement.samples import is_acyclic, random_graph, two_gpus

NAMES = ["inception-v3-tiny", "rnnlm-tiny:outputs=3,batch=2", "bert-base-tiny"]


@cache
def training(name: str, optimiser: str = "adam") -> OperatorGraph:
    model = training_model(zoo.outline(name), optimiser=optimiser, accumulate=True)
    return OperatorGraph.of(OnnxModel.load(model, clean="none"))


def problem(name: str, groups: int = 6, machine: Machine | None = None, optimiser: str = "adam") -> PlacementProblem:
    graph = training(name, optimiser)
    return PlacementProblem.of(graph, machine or two_gpus(), grouped(graph, groups))


def parameters(graph: OperatorGraph) -> int:
    """The size of the weights that are trained."""
    updated = {each.updates for each in graph.tensors}
    state = ("_moment", ".mean_square", ".momentum", "step", ".running_mean", ".running_var")
    return sum(each.nbytes for each in graph.tensors if each.name in updated and not each.name.endswith(state))


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_inputs_count_as_parameters(name: str) -> None:
    graph, plain = training(name), zoo.build(name)
    weights = {each.name for each in plain.graph.initializer}
    kinds = {each.name: each.kind for each in graph.tensors}
    assert {kinds[each] for each in weights & kinds.keys()} == {"parameter"}
    assert {each.name for each in graph.tensors if each.kind == "fed"} >= {each.name for each in plain.graph.input}
    assert is_training(graph)
    assert not is_training(random_graph(0))


@pytest.mark.parametrize(("optimiser", "slots"), [("sgd", 0), ("rmsprop", 2), ("adam", 2)])
def test_an_optimiser_takes_the_memory_of_its_slots(optimiser: str, slots: int) -> None:
    """What lies on a device all the time is weights and slots: new values take their place."""
    name = "rnnlm-tiny:outputs=3,batch=2"
    peaks = {each: problem(name, optimiser=each) for each in ("sgd", optimiser)}
    held = [sum(each.nbytes for each in one.graph.tensors if each.kind == "parameter") for one in peaks.values()]
    assert held[-1] - held[0] == pytest.approx(slots * parameters(training(name, "sgd")), abs=64)  # scalars
    outcome = peaks[optimiser].evaluate(peaks[optimiser].single(1))
    assert outcome.peak_bytes[1] >= held[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_shares_the_group_of_its_operation(name: str) -> None:
    graph = training(name)
    parts = TrainingParts.of(graph)
    for labels in (colocated(graph), grouped(graph, 6)):
        first: dict[str, int] = {}
        for number in np.flatnonzero(parts.forward):
            first.setdefault(origin(graph.operators[number].name), int(labels[number]))
        backward = [
            (origin(each.name), int(labels[number]))
            for number, each in enumerate(graph.operators)
            if each.name.startswith("/training/") and not each.name.startswith("/training/gradients/")
        ]
        assert len(backward) > len(graph) // 5
        assert all(first[at] == label for at, label in backward if at in first)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [1, 3, 10])
def test_there_are_at_most_so_many_groups_and_tasks_have_no_cycle(name: str, most: int) -> None:
    found = problem(name, most)
    assert 1 <= found.num_groups <= most
    assert is_acyclic(found.graph, found.tasks)


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_is_held_where_it_is_updated(name: str) -> None:
    found = problem(name, 10)
    for transfer in found.transfers:
        updates = [each for each in found.graph.tensors if each.updates == transfer.tensor.name]
        if transfer.tensor.kind == "parameter":
            assert found.home(transfer) == (int(found.tasks[updates[0].producer]) if updates else None)


def test_a_parameter_that_others_read_is_copied_once_to_each_device() -> None:
    found = problem("rnnlm-tiny:outputs=3,batch=2", 10)
    assignment = np.arange(found.num_groups, dtype=np.int32) % 3
    copies = [(each.tensor, each.destination) for each in found.timeline(assignment).copies]
    assert len(copies) == len(set(copies))
    placement = found.placement(assignment)
    for transfer in found.transfers:
        home = found.home(transfer) if transfer.tensor.kind == "parameter" else None
        if home is not None:
            away = {int(placement[task]) for task in transfer.readers} - {int(placement[home])}
            assert {device for tensor, device in copies if tensor == transfer.tensor.name} == away


def test_names_of_origins() -> None:
    assert origin("/training/conv/Conv/Mul_0") == "/conv/Conv"
    assert origin("/loss/output.3/Sub_0") == "/loss/output.3"
    assert origin("/conv/Conv") == "/conv/Conv"


def free_machine(gpus: int) -> Machine:
    """Links that take no time, and a host that is as fast as a GPU."""
    plain = two_gpus(1e12, gpus=gpus)
    devices = tuple(Device(each.name, "roofline:k80", 1e12) for each in plain.devices)
    links = tuple(type(link)(link.ends, 1e30, 0.0) for link in plain.links)
    return Machine("free", devices, links)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_towers_that_share_nothing_share_the_work(gpus: int) -> None:
    """With free copies, the time of a batch lies between the passes over all towers, and that with all updates."""
    graph = training("inception-v3-tiny")
    labels, machine = grouped(graph, 8), free_machine(gpus)
    alone = PlacementProblem.of(graph, machine, labels)
    updating = np.zeros(len(graph), bool)
    updating[list(TrainingParts.of(graph).weights)] = True
    passes, updates = (float(alone.operator_ms[each, 1].sum()) for each in (~updating, updating))
    synchronous = batch_ms(graph, labels, machine, synchronous=True)
    assert passes / gpus <= synchronous * (1 + 1e-9)
    assert synchronous <= (passes + 2 * gpus * updates) / gpus
    asynchronous = batch_ms(graph, labels, machine, synchronous=False)
    assert max(passes / gpus, updates) <= asynchronous * (1 + 1e-9)
    assert asynchronous <= passes / gpus + updates


def test_towers_copy_weights_to_each_device_and_gradients_back() -> None:
    graph = training("inception-v3-tiny", "sgd")
    found, assignment = towers(graph, grouped(graph, 8), two_gpus(1e12))
    outcome = found.evaluate(assignment)
    fed = sum(each.nbytes for each in graph.tensors if each.kind == "fed" and each.readers)
    assert outcome.copied_bytes == pytest.approx(2 * (2 * parameters(graph) + fed), rel=0.02)
    assert outcome.fits


def test_towers_need_a_training_graph_and_room() -> None:
    with pytest.raises(PlacementError, match="step of an optimiser"):
        batch_ms(random_graph(0), np.zeros(30, np.int64), two_gpus(), synchronous=True)
    graph = training("inception-v3-tiny")
    with pytest.raises(PlacementError, match="do not fit"):
        batch_ms(graph, grouped(graph, 8), two_gpus(1e3), synchronous=True)
    with pytest.raises(PlacementError, match="one step"):
        towers(graph, grouped(graph, 8), two_gpus(), rounds=2)
