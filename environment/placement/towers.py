"""Data-parallel towers: each device computes the gradients of a batch of its own, and the host updates the weights.

    ms = batch_ms(graph, labels, find_machine("k80x4"), synchronous=False)

Synchronous towers wait for one another: the host adds up their gradients and makes one update. Asynchronous ones do
not: the host makes an update for each tower, and a tower begins its next batch with the weights after its own last
update. Variables lie on the host, as in the published comparison.

Source: Mirhoseini et al. 2017, section 4.5: towers of Inception-V3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from environment.placement.errors import PlacementError
from environment.placement.grouping import Labels
from environment.placement.machine import Machine
from environment.placement.operators import Operator, OperatorGraph, Tensor
from environment.placement.problem import HOST, Assignment, PlacementProblem, operator_times
from environment.placement.training import TrainingParts, is_training

_ROUNDS = 3
"""Batches of each asynchronous tower that are simulated; the first one is not counted."""


def batch_ms(graph: OperatorGraph, labels: Labels, machine: Machine, *, synchronous: bool) -> float:
    """Returns the time in ms for each batch of the model, on all accelerators of a machine together.

    Args:
      labels: [N], the groups of operators that a device runs in one go.
    Raises:
      PlacementError: the graph is no training graph, or the towers do not fit into memory.
    """
    if synchronous:
        return _step_ms(graph, labels, machine, 1, synchronous=True) / _towers_of(machine)
    more = _step_ms(graph, labels, machine, _ROUNDS, synchronous=False) - _step_ms(
        graph, labels, machine, 1, synchronous=False
    )
    return more / (_ROUNDS - 1) / _towers_of(machine)


def _step_ms(graph: OperatorGraph, labels: Labels, machine: Machine, rounds: int, *, synchronous: bool) -> float:
    problem, assignment = towers(graph, labels, machine, rounds=rounds, synchronous=synchronous)
    outcome = problem.evaluate(assignment)
    if not outcome.fits:
        raise PlacementError(f"the towers do not fit on machine '{machine.name}': {problem.failure(outcome)}.")
    return outcome.ms


def _towers_of(machine: Machine) -> int:
    return max(machine.num_devices - 1, 1)


def towers(
    graph: OperatorGraph, labels: Labels, machine: Machine, *, rounds: int = 1, synchronous: bool = True
) -> tuple[PlacementProblem, Assignment]:
    """Returns the problem of all towers, one for each device but the host, and where they run.

    Args:
      graph: a training graph with a step of an optimiser, of the batch of one tower.
      labels: see `batch_ms`.
      rounds: batches of each tower, for asynchronous ones.
    Raises:
      PlacementError: the graph is no training graph; or synchronous towers are to have several rounds.
    """
    if not is_training(graph):
        raise PlacementError(
            "towers need a training graph with a step of an optimiser, such as resnet18:training=adam."
        )
    if synchronous and rounds != 1:
        raise PlacementError(f"synchronous towers are simulated for one step, got rounds={rounds}.")
    builder = _Builder(graph, labels, operator_times(graph, machine))
    gradients = []
    for tower in range(_towers_of(machine)):
        builder.begin_tower()
        for _ in range(rounds):
            computed = builder.tower(HOST + 1 + tower)
            if not synchronous:
                builder.update([computed])
        gradients.append(computed)
    if synchronous:
        builder.begin_tower()
        builder.update(gradients)
    return builder.problem(machine)


@dataclass
class _Made:
    """A tensor of the towers while its readers are still found."""

    tensor: Tensor
    readers: dict[int, None] = field(default_factory=dict)


class _Builder:
    """Copies of the operators of a training graph, with their times, groups and devices.

    Tensors of the original graph have numbers; `_values` says what stands for each input of the next tower.
    """

    def __init__(self, graph: OperatorGraph, labels: Labels, times: npt.NDArray[np.float64]) -> None:
        self._graph, self._labels, self._times = graph, labels, times
        self._weights = TrainingParts.of(graph).weights
        self._reads: list[list[int]] = [[] for _ in range(len(graph))]
        self._makes: list[list[int]] = [[] for _ in range(len(graph))]
        for number, tensor in enumerate(graph.tensors):
            for reader in tensor.readers:
                self._reads[reader].append(number)
            if tensor.producer >= 0:
                self._makes[tensor.producer].append(number)
        self._numbers = {tensor.name: number for number, tensor in enumerate(graph.tensors)}
        self._operators: list[Operator] = []
        self._rows: list[npt.NDArray[np.float64]] = []
        self._groups: list[int] = []
        self._group_devices: list[int] = []
        self._made: list[_Made] = []
        variables = {tensor.updates for tensor in graph.tensors}
        self._given = {
            # A variable lies on the host, as what is fed does.
            number: self._new(replace(tensor, kind="fed") if tensor.name in variables else tensor)
            for number, tensor in enumerate(graph.tensors)
            if tensor.producer < 0
        }
        self._values = dict(self._given)

    def begin_tower(self) -> None:
        """Lets the next batch begin with the first weights."""
        self._values = dict(self._given)

    def tower(self, device: int) -> dict[int, int]:
        """Writes the forward and backward pass of one batch; returns its copies of the original's tensors."""
        local, groups = dict(self._values), dict[Hashable, int]()
        for operator in range(len(self._graph)):
            if operator not in self._weights:
                self._copy(operator, local, self._group(groups, int(self._labels[operator]), device))
        return local

    def update(self, towers: Sequence[dict[int, int]]) -> None:
        """Writes the updates on the host by the sum of the gradients of towers; the next batch begins with them."""
        local, groups = dict(self._values), dict[Hashable, int]()
        for operator, weight in sorted(self._weights.items()):
            group = self._group(groups, weight, HOST)
            for read in self._reads[operator]:
                if read not in local:
                    local[read] = self._total([tower[read] for tower in towers], operator, group)
            self._copy(operator, local, group)
        for number, tensor in enumerate(self._graph.tensors):
            if tensor.updates and number in local:
                self._values[self._numbers[tensor.updates]] = local[number]

    def _total(self, values: Sequence[int], operator: int, group: int) -> int:
        """Returns the sum of gradients; an addition takes as long as `operator`, one of the update's own."""
        total = values[0]
        for value in values[1:]:
            tensor = self._made[value].tensor
            at = self._add(Operator(f"{tensor.name}/total", "/towers/Add", "", "Add"), self._times[operator], group)
            for read in (total, value):
                self._made[read].readers[at] = None
            total = self._new(replace(tensor, producer=at))
        return total

    def _group(self, groups: dict[Hashable, int], key: Hashable, device: int) -> int:
        """Returns the group that stands for a key among some groups; a new one goes on a device."""
        if key not in groups:
            groups[key] = len(self._group_devices)
            self._group_devices.append(device)
        return groups[key]

    def _new(self, tensor: Tensor) -> int:
        self._made.append(_Made(replace(tensor, name=f"{tensor.name}/{len(self._made)}", is_output=False, updates="")))
        return len(self._made) - 1

    def _add(self, operator: Operator, times: npt.NDArray[np.float64], group: int) -> int:
        self._operators.append(operator)
        self._rows.append(times)
        self._groups.append(group)
        return len(self._operators) - 1

    def _copy(self, operator: int, local: dict[int, int], group: int) -> None:
        at = self._add(self._graph.operators[operator], self._times[operator], group)
        for read in self._reads[operator]:
            self._made[local[read]].readers[at] = None
        for number in self._makes[operator]:
            local[number] = self._new(replace(self._graph.tensors[number], producer=at))

    def problem(self, machine: Machine) -> tuple[PlacementProblem, Assignment]:
        """Returns the problem and the device of each group."""
        tensors = tuple(replace(each.tensor, readers=tuple(each.readers)) for each in self._made)
        graph = OperatorGraph(tuple(self._operators), tensors, self._graph.graph)
        problem = PlacementProblem(graph, machine, np.array(self._groups, np.int64), np.array(self._rows))
        return problem, np.array(self._group_devices, np.int32)
