"""A placement problem: groups of operators, a machine, and the simulation of a step for each placement.

    problem = PlacementProblem.of(OperatorGraph.of(model), find_machine("k80x2"), groups)
    outcome = problem.evaluate(assignment)          # [G], the device of each group
    print(outcome.ms, outcome.fits, problem.failure(outcome))

A *group* is what a placement puts on one device. A *task* is what a device runs in one go: a group, or a part of a
group that lies on a cycle with others, or its operators that have no kernel on some device. These stay on the host
where the device of their group lacks a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from environment.placement.errors import PlacementError
from environment.placement.grouping import Labels, acyclic_parts, renumbered
from environment.placement.machine import Machine
from environment.placement.operators import OperatorGraph, Tensor
from taso_ext import CostModel
from taso_ext._core import PlacementSimulator

HOST = 0
"""The number of the device on which inputs lie, and operators that have no kernel elsewhere."""
Assignment = npt.NDArray[np.int32]
"""The device of each group, [G]."""
Parameters = Literal["replicated", "copied"]
"""Whether each device that reads a parameter holds one of its own, as in inference; or the device of its first reader
holds it with its optimiser state and sends copies in each step, as in training. A parameter of a training graph, which
the step updates, is held once in any case; its gradients and optimiser state are tensors of the graph."""
_COMPUTED, _FED, _COPIED, _REPLICATED = range(4)  # of the engine's simulator
_GB = 1e9


@dataclass(frozen=True)
class Outcome:
    """One simulated step.

    Attributes:
      ms: the time of the step.
      busy_ms: [D], the time in which each device computes.
      peak_bytes: [D], the most memory that each device needs.
      missing_bytes: [D], what of it the device does not have.
      copied_bytes, copies: what goes over links.
    """

    ms: float
    busy_ms: npt.NDArray[np.float64]
    peak_bytes: npt.NDArray[np.float64]
    missing_bytes: npt.NDArray[np.float64]
    copied_bytes: float
    copies: int

    @property
    def fits(self) -> bool:
        """Whether no device runs out of memory."""
        return not self.missing_bytes.any()


@dataclass(frozen=True)
class CopyEvent:
    """One copy of a step: the tensor, its way, and when it began and ended."""

    tensor: str
    source: int
    destination: int
    begin_ms: float
    end_ms: float


@dataclass(frozen=True)
class Timeline:
    """When each task and each copy of a step ran.

    Attributes:
      devices: [T], the device of each task.
      begin_ms, end_ms: [T].
      copies: in the order in which they ended.
    """

    devices: Assignment
    begin_ms: npt.NDArray[np.float64]
    end_ms: npt.NDArray[np.float64]
    copies: tuple[CopyEvent, ...]


@dataclass(frozen=True)
class Transfer:
    """A tensor that tasks hand to one another.

    Attributes:
      tensor: see `Tensor`.
      producer: the task that computes it; -1 if none does.
      readers: the tasks that read it, without the producer.
    """

    tensor: Tensor
    producer: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class PlacementProblem:
    """G groups of operators to be placed on the D devices of a machine.

    Attributes:
      graph, machine: see there.
      groups: [N], the group of each operator.
      operator_ms: [N, D], the time of each operator on each device.
      parameters: see `Parameters`.
      optimiser_slots: how many numbers the optimiser keeps for each parameter: 2 for Adam, 1 or 2 for RMSProp.
      tasks: [N], the task of each operator.
    Raises:
      PlacementError: the host lacks the kernel of an operator, or the groups are malformed.
    """

    graph: OperatorGraph
    machine: Machine
    groups: Labels
    operator_ms: npt.NDArray[np.float64]
    parameters: Parameters = "replicated"
    optimiser_slots: int = 0
    tasks: Labels = field(init=False)

    def __post_init__(self) -> None:
        if self.groups.shape != (len(self.graph),) or (len(self.graph) and self.groups.min() < 0):
            raise PlacementError(
                f"expected a group for each of {len(self.graph)} operators, numbered from 0, got an array of shape "
                f"{self.groups.shape}."
            )
        lost = [self.graph.operators[at].op_type for at in np.flatnonzero(np.isinf(self.operator_ms[:, HOST]))]
        if lost:
            raise PlacementError(
                f"{self.machine.devices[HOST].name} of machine '{self.machine.name}' lacks a kernel of {lost[0]}, "
                f"which the model needs and which can stay nowhere else. Remove it from `lacks`."
            )
        pinned = np.isinf(self.operator_ms).any(axis=1)
        labels = renumbered(2 * self.groups + pinned)
        object.__setattr__(self, "tasks", acyclic_parts(self.graph, labels))

    @classmethod
    def of(
        cls,
        graph: OperatorGraph,
        machine: Machine,
        groups: Labels,
        *,
        parameters: Parameters = "replicated",
        optimiser_slots: int = 0,
        operator_ms: npt.NDArray[np.float64] | None = None,
    ) -> PlacementProblem:
        """Returns a problem whose times come from the machine's cost models, if they are not given.

        Args:
          operator_ms: [N], the times on the host, for example measured ones; other devices keep their ratio to the
            host's cost model, and that of the whole model for operators that are free there.
        """
        priced = operator_times(graph, machine)
        if operator_ms is not None:
            ratios = _relative_to_host(priced)
            priced = np.where(np.isinf(ratios), np.inf, operator_ms[:, None] * np.where(np.isinf(ratios), 0.0, ratios))
        return cls(graph, machine, groups, priced, parameters, optimiser_slots)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the simulator, which is made anew where it is needed."""
        return {name: value for name, value in self.__dict__.items() if name != "simulator"}

    @property
    def num_groups(self) -> int:
        """G."""
        return int(self.groups.max(initial=-1)) + 1

    @property
    def num_tasks(self) -> int:
        """T."""
        return int(self.tasks.max(initial=-1)) + 1

    @cached_property
    def group_of_task(self) -> Labels:
        """[T], the group of each task."""
        found = np.zeros(self.num_tasks, np.int64)
        found[self.tasks] = self.groups
        return found

    @cached_property
    def task_ms(self) -> npt.NDArray[np.float64]:
        """[T, D], the time of each task on each device; infinite where an operator has no kernel."""
        found = np.zeros((self.num_tasks, self.machine.num_devices))
        np.add.at(found, self.tasks, self.operator_ms)
        return found

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The tensors that tasks read from others, or that are fed, parameters or outputs."""
        found = []
        for tensor in self.graph.tensors:
            producer = int(self.tasks[tensor.producer]) if tensor.producer >= 0 else -1
            readers = dict.fromkeys(int(self.tasks[reader]) for reader in tensor.readers)
            readers.pop(producer, None)
            if readers or (producer >= 0 and tensor.is_output and not tensor.updates):
                found.append(Transfer(tensor, producer, tuple(readers)))
        return tuple(found)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The tasks, producers first."""
        missing = np.zeros(self.num_tasks, np.int64)
        readers: dict[int, list[int]] = {}
        for transfer in self.transfers:
            if transfer.producer >= 0:
                readers.setdefault(transfer.producer, []).extend(transfer.readers)
                missing[list(transfer.readers)] += 1
        order = [task for task in range(self.num_tasks) if missing[task] == 0]
        for task in order:
            for reader in readers.get(task, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    order.append(reader)
        return tuple(order)

    @cached_property
    def workspace_bytes(self) -> npt.NDArray[np.float64]:
        """[T], the most that results which a task alone reads take at a time."""
        handed_over = {each.tensor.name for each in self.transfers}
        last_use: dict[int, list[int]] = {}
        begins = np.zeros(len(self.graph))
        for tensor in self.graph.tensors:
            if tensor.producer >= 0 and tensor.name not in handed_over:
                begins[tensor.producer] += tensor.nbytes
                last_use.setdefault(max(tensor.readers, default=tensor.producer), []).append(tensor.nbytes)
        live, peak = np.zeros(self.num_tasks), np.zeros(self.num_tasks)
        for number, task in enumerate(self.tasks):
            live[task] += begins[number]
            peak[task] = max(peak[task], live[task])
            live[task] -= sum(last_use.get(number, ()))
        return peak

    @cached_property
    def simulator(self) -> PlacementSimulator:
        """The engine's simulator of this problem."""
        machine, transfers = self.machine, self.transfers
        devices = range(machine.num_devices)
        routes = [machine.route(start, end) for start in devices for end in devices]
        storage, owner = zip(*(self._stored(each) for each in transfers), strict=True) if transfers else ((), ())
        slots = [self.optimiser_slots * (kind == _COPIED) for kind in storage]
        sizes = np.array([each.tensor.nbytes for each in transfers], np.float64)
        channels = [link.bytes_per_ms for link in machine.links for _ in range(2)]
        return PlacementSimulator(
            memory_bytes=[device.memory_bytes for device in machine.devices],
            channel_bytes_per_ms=np.array(channels, np.float64),
            latency_ms=[route.latency_ms for route in routes],
            routes=[list(route.channels) for route in routes],
            task_ms=self.task_ms,
            workspace_bytes=self.workspace_bytes,
            storage=np.array(storage, np.uint8),
            owner=np.array(owner, np.int32),
            bytes=sizes,
            state_bytes=sizes * slots,
            kept=np.array([each.tensor.is_output and not each.tensor.updates for each in transfers], bool),
            reader_begin=np.cumsum([0, *(len(each.readers) for each in transfers)]).astype(np.int32),
            readers=np.array([reader for each in transfers for reader in each.readers], np.int32),
        )

    def _stored(self, transfer: Transfer) -> tuple[int, int]:
        """Returns how the simulator holds a tensor, and its owner."""
        if transfer.producer >= 0:
            return _COMPUTED, transfer.producer
        if transfer.tensor.kind == "fed":
            return _FED, HOST
        home = self.home(transfer)
        return (_REPLICATED, 0) if home is None else (_COPIED, home)

    def home(self, transfer: Transfer) -> int | None:
        """Returns the task whose device holds a parameter; None if each device that reads it holds one of its own.

        A parameter that the step updates is held where it is updated.
        """
        name = transfer.tensor.name
        return self._updaters.get(name, None if self.parameters == "replicated" else transfer.readers[0])

    @cached_property
    def _updaters(self) -> dict[str, int]:
        """The task that updates each parameter that the step updates."""
        return {each.updates: int(self.tasks[each.producer]) for each in self.graph.tensors if each.updates}

    def placement(self, assignment: npt.ArrayLike) -> Assignment:
        """Returns the device of each task, [T].

        Args:
          assignment: [G], the device of each group.
        Raises:
          PlacementError: it has another length, or names a device that does not exist.
        """
        given = np.asarray(assignment, np.int32)
        if given.shape != (self.num_groups,) or (given.size and not 0 <= given.min() <= given.max() < self._devices):
            raise PlacementError(
                f"expected a device from 0 to {self._devices - 1} for each of {self.num_groups} groups, got an array "
                f"of shape {given.shape} with values {sorted(set(given.ravel().tolist()))[:10]}."
            )
        devices = given[self.group_of_task]
        lacking = np.isinf(self.task_ms[np.arange(self.num_tasks), devices])
        return np.where(lacking, HOST, devices).astype(np.int32)

    @property
    def _devices(self) -> int:
        return self.machine.num_devices

    def evaluate(self, assignment: npt.ArrayLike, priorities: npt.NDArray[np.float64] | None = None) -> Outcome:
        """Simulates a step.

        Args:
          assignment: [G], the device of each group.
          priorities: [T], of which the smallest waiting one runs first; None: first in, first out.
        Raises:
          PlacementError: see `placement`.
        """
        order = np.zeros(0) if priorities is None else priorities
        ms, busy, peak, copied, copies = self.simulator.run(self.placement(assignment), order)
        memory = np.array([device.memory_bytes for device in self.machine.devices])
        return Outcome(ms, busy, peak, np.maximum(peak - memory, 0.0), copied, copies)

    def timeline(self, assignment: npt.ArrayLike) -> Timeline:
        """Returns when each task and each copy of a step runs.

        Raises:
          PlacementError: see `placement`.
        """
        placement = self.placement(assignment)
        begin, end, ways, times = self.simulator.trace(placement)
        names = [each.tensor.name for each in self.transfers]
        copies = (
            CopyEvent(names[way[0]], *map(int, way[1:]), *map(float, at)) for way, at in zip(ways, times, strict=True)
        )
        return Timeline(placement, begin, end, tuple(copies))

    def failure(self, outcome: Outcome) -> str:
        """Returns where memory is missing and how much, in a sentence; empty if the placement fits."""
        lacking = [
            f"{device.name} needs {peak / _GB:.3g} GB and has {device.memory_bytes / _GB:.3g} GB: "
            f"{missing / _GB:.3g} GB are missing"
            for device, peak, missing in zip(
                self.machine.devices, outcome.peak_bytes, outcome.missing_bytes, strict=True
            )
            if missing > 0
        ]
        return "; ".join(lacking)

    def single(self, device: int) -> Assignment:
        """Returns the assignment of all groups to one device."""
        return np.full(self.num_groups, device, np.int32)


def _relative_to_host(operator_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns times on all devices over those on the host, [N, D]; those of the whole model where the host has none."""
    finite = np.where(np.isinf(operator_ms), 0.0, operator_ms)
    overall = np.where(np.isinf(operator_ms), np.inf, finite.sum(axis=0) / max(float(finite[:, HOST].sum()), 1e-12))
    overall[:, HOST] = 1.0
    host = operator_ms[:, [HOST]]
    return np.where(host > 0, operator_ms / np.where(host > 0, host, 1.0), overall)


def operator_times(graph: OperatorGraph, machine: Machine) -> npt.NDArray[np.float64]:
    """Returns the time of each operator on each device, [N, D] in ms; infinite where it has no kernel."""
    by_costs: Mapping[str, npt.NDArray[np.float64]] = {
        name: graph.operator_ms(CostModel.roofline(name.partition(":")[2]))
        for name in {device.costs for device in machine.devices}
    }
    columns = []
    for device in machine.devices:
        runs = [device.runs(each.domain, each.op_type) for each in graph.operators]
        columns.append(np.where(runs, device.slowdown * by_costs[device.costs], np.inf))
    return np.column_stack(columns)
