"""List scheduling: HEFT, and earliest task first within the memory of each device.

Both schedule tasks, and the first task of a group that is scheduled decides for the whole group. A copy is estimated by
the latency and the narrowest link of its route, as if it were alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from controller.placement.interface import Report, accelerators
from environment.placement.errors import PlacementError
from environment.placement.problem import HOST, Assignment, PlacementProblem, Transfer


@dataclass
class _Schedule:
    """Tasks with the devices and times that they have so far.

    Attributes:
      device: the device of each group; -1 if it has none.
      ends_ms: [T], the end of each task; infinite if it is not scheduled.
      spans: by device, the (begin, end) of its tasks in the order of time.
    """

    problem: PlacementProblem
    device: Assignment = field(init=False)
    ends_ms: npt.NDArray[np.float64] = field(init=False)
    spans: list[list[tuple[float, float]]] = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        self.device = np.full(problem.num_groups, -1, np.int32)
        self.ends_ms = np.full(problem.num_tasks, np.inf)
        self.placed = np.full(problem.num_tasks, HOST, np.int32)
        self.spans = [[] for _ in problem.machine.devices]
        self.reads: list[list[Transfer]] = [[] for _ in range(problem.num_tasks)]
        for transfer in problem.transfers:
            for reader in transfer.readers:
                self.reads[reader].append(transfer)

    def copy_ms(self, nbytes: float, start: int, end: int) -> float:
        """Returns the time of a copy that is alone on its way."""
        route = self.problem.machine.route(start, end)
        rates = [self.problem.machine.links[channel // 2].bytes_per_ms for channel in route.channels]
        return route.latency_ms + nbytes / min(rates) if rates else 0.0

    def allowed(self, task: int) -> list[int]:
        """Returns the devices on which a task can be: that of its group, or all if the group has none yet."""
        runs = np.isfinite(self.problem.task_ms[task])
        decided = int(self.device[self.problem.group_of_task[task]])
        if not runs.all():  # it follows its group only to devices that have its kernels
            return [decided] if decided >= 0 and runs[decided] else [HOST]
        return [decided] if decided >= 0 else list(range(self.problem.machine.num_devices))

    def ready_ms(self, task: int, device: int) -> float:
        """Returns when everything that a task reads is on a device."""
        ready = 0.0
        for each in self.reads[task]:
            if each.producer >= 0:
                copied = self.copy_ms(each.tensor.nbytes, int(self.placed[each.producer]), device)
                ready = max(ready, float(self.ends_ms[each.producer]) + copied)
            elif each.tensor.kind == "fed":
                ready = max(ready, self.copy_ms(each.tensor.nbytes, HOST, device))
        return ready

    def begin_ms(self, task: int, device: int, *, inserts: bool) -> float:
        """Returns when a task can begin on a device, in a gap between others if it may be inserted."""
        ready, ms = self.ready_ms(task, device), float(self.problem.task_ms[task, device])
        if not inserts:
            return max(ready, self.spans[device][-1][1] if self.spans[device] else 0.0)
        free = 0.0
        for begin, end in self.spans[device]:
            if max(ready, free) + ms <= begin:
                break
            free = max(free, end)
        return max(ready, free)

    def put(self, task: int, device: int, begin: float) -> None:
        """Schedules a task."""
        end = begin + float(self.problem.task_ms[task, device])
        self.placed[task], self.ends_ms[task] = device, end
        self.spans[device].append((begin, end))
        self.spans[device].sort()
        group = self.problem.group_of_task[task]
        if self.device[group] < 0 and np.isfinite(self.problem.task_ms[task]).all():
            self.device[group] = device

    def assignment(self) -> Assignment:
        """Returns the device of each group; the host for those of which every task has to be there."""
        return np.where(self.device < 0, HOST, self.device).astype(np.int32)


def upward_ranks(problem: PlacementProblem) -> npt.NDArray[np.float64]:
    """Returns [T]: the longest way from the begin of each task to the end of the step, with mean times and copies."""
    schedule = _Schedule(problem)
    devices = range(problem.machine.num_devices)
    ms = np.where(np.isinf(problem.task_ms), np.nan, problem.task_ms)
    mean_ms = np.nanmean(ms, axis=1)
    pairs = [(start, end) for start in devices for end in devices if start != end]
    ranks = mean_ms.copy()
    by_producer: dict[int, list[Transfer]] = {}
    for transfer in problem.transfers:
        by_producer.setdefault(transfer.producer, []).append(transfer)
    for task in reversed(problem.order):
        for each in by_producer.get(task, ()):
            copies = [schedule.copy_ms(each.tensor.nbytes, start, end) for start, end in pairs]
            copied = float(np.sum(copies)) / max(len(pairs) + problem.machine.num_devices, 1)
            for reader in each.readers:
                ranks[task] = max(ranks[task], mean_ms[task] + copied + ranks[reader])
    return ranks


def heft(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the assignment of HEFT; see `Placer`.

    Tasks come by falling upward rank, and each goes where it ends first, into gaps too.

    Source: Topcuoglu, Hariri and Wu 2002, "Performance-effective and low-complexity task scheduling for heterogeneous
    computing", section 4.
    """
    schedule, ranks = _Schedule(problem), upward_ranks(problem)
    position = {task: at for at, task in enumerate(problem.order)}
    for task in sorted(position, key=lambda each: (-ranks[each], position[each])):
        begins = {device: schedule.begin_ms(task, device, inserts=True) for device in schedule.allowed(task)}
        device = min(begins, key=lambda each: (begins[each] + problem.task_ms[task, each], each))
        schedule.put(task, device, begins[device])
    return schedule.assignment()


def memory_etf(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the assignment of memory-constrained earliest task first; see `Placer`.

    Of all ready tasks and accelerators that have room for the group of the task, the pair that begins first is taken;
    of equal ones the pair that ends first. As published it knows no slow devices: the host only gets what has no kernel
    elsewhere.

    Raises:
      PlacementError: a group has room nowhere.
    Source: Jeon et al. 2020, "Baechi: Fast Device Placement of Machine Learning Graphs", section 3.2.
    """
    schedule, usual = _Schedule(problem), accelerators(problem)
    needed = _held_bytes(problem)
    left = np.array([device.memory_bytes for device in problem.machine.devices])
    missing = {task: sum(each.producer >= 0 for each in schedule.reads[task]) for task in range(problem.num_tasks)}
    readers: dict[int, list[int]] = {}
    for transfer in problem.transfers:
        readers.setdefault(transfer.producer, []).extend(transfer.readers)
    ready = [task for task, count in missing.items() if count == 0]
    while ready:
        options = []
        for task in ready:
            group = problem.group_of_task[task]
            for device in _usual_first(schedule.allowed(task), usual):
                if schedule.device[group] == device or needed[group] <= left[device]:
                    begin = schedule.begin_ms(task, device, inserts=False)
                    options.append((begin, begin + problem.task_ms[task, device], task, device))
        if not options:
            group = problem.group_of_task[ready[0]]
            raise PlacementError(
                f"m-etf finds no device for group {group}, which holds {needed[group] / 1e9:.3g} GB: the devices of "
                f"'{problem.machine.name}' have {', '.join(f'{each / 1e9:.3g}' for each in left)} GB left. Use smaller "
                f"batches or devices with more memory."
            )
        begin, _, task, device = min(options)
        was_open = schedule.device[problem.group_of_task[task]] < 0
        schedule.put(task, device, begin)
        if was_open:
            left[device] -= needed[problem.group_of_task[task]]
        ready.remove(task)
        for reader in readers.get(task, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return schedule.assignment()


def _usual_first(allowed: list[int], usual: list[int]) -> list[int]:
    """Returns the allowed devices that are among the usual ones; all allowed ones if none is."""
    return [device for device in allowed if device in usual] or allowed


def _held_bytes(problem: PlacementProblem) -> npt.NDArray[np.float64]:
    """Returns [G]: parameters with optimiser state, and the results that a group hands over."""
    held = np.zeros(problem.num_groups)
    for transfer in problem.transfers:
        if transfer.producer >= 0:
            held[problem.group_of_task[transfer.producer]] += transfer.tensor.nbytes
        elif transfer.tensor.kind == "parameter":
            home = problem.home(transfer)
            tasks = transfer.readers if home is None else (home,)
            for group in {int(problem.group_of_task[task]) for task in tasks}:
                held[group] += transfer.tensor.nbytes * (1 + problem.optimiser_slots * (home is not None))
    return held
