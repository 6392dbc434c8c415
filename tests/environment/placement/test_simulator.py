"""The discrete-event simulator against closed forms, an independent slow simulator, and what must always hold."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from taso_ext._core import PlacementSimulator
from tests.environment.placement.slow_simulator import SlowStep, SlowTensor

COMPUTED, FED, PARAMETER, REPLICATED = range(4)


@dataclass
class Case:
    """A workload on a machine, as both simulators take it."""

    task_ms: list[list[int]]
    tensors: list[SlowTensor]
    bandwidth: list[int]
    routes: list[list[list[int]]]
    latency: list[list[int]]
    workspace: list[int]

    def fast(self, **changes: Any) -> PlacementSimulator:
        devices = len(self.routes)
        settings: dict[str, Any] = {
            "memory_bytes": [1e9] * devices,
            "channel_bytes_per_ms": self.bandwidth,
            "latency_ms": self.latency,
            "routes": [route for row in self.routes for route in row],
            "task_ms": np.array(self.task_ms, float).reshape(-1, devices),
            "workspace_bytes": self.workspace,
            "storage": [each.storage for each in self.tensors],
            "owner": [each.owner for each in self.tensors],
            "bytes": [each.size for each in self.tensors],
            "state_bytes": [each.state for each in self.tensors],
            "kept": np.array([each.kept for each in self.tensors], bool),
            "reader_begin": np.cumsum([0, *(len(each.readers) for each in self.tensors)]),
            "readers": [reader for each in self.tensors for reader in each.readers],
        }
        return PlacementSimulator(**{**settings, **changes})

    def slow(self, placement: list[int]) -> SlowStep:
        return SlowStep(
            self.task_ms, self.workspace, self.tensors, self.bandwidth, self.routes, self.latency, placement
        )


def own_links(devices: int, bandwidth: int = 10, latency: int = 0) -> dict[str, Any]:
    """Returns a machine in which each pair of devices has a link of its own."""
    routes: list[list[list[int]]] = [[[] for _ in range(devices)] for _ in range(devices)]
    widths = []
    for start in range(devices):
        for end in range(devices):
            if start != end:
                routes[start][end] = [len(widths)]
                widths.append(bandwidth)
    latencies = [[0 if start == end else latency for end in range(devices)] for start in range(devices)]
    return {"bandwidth": widths, "routes": routes, "latency": latencies}


def shared_bus(devices: int, bandwidth: int = 10) -> dict[str, Any]:
    """Returns a machine in which all copies share one channel."""
    routes = [[[0] if start != end else [] for end in range(devices)] for start in range(devices)]
    return {"bandwidth": [bandwidth], "routes": routes, "latency": [[0] * devices for _ in range(devices)]}


def computed(owner: int, size: int, *readers: int, kept: bool = False) -> SlowTensor:
    return SlowTensor(COMPUTED, owner, size, 0, kept, list(readers))


def chain(length: int, ms: int, size: int, machine: dict[str, Any]) -> Case:
    devices = len(machine["routes"])
    tensors = [computed(task, size, task + 1) for task in range(length - 1)]
    return Case([[ms] * devices] * length, tensors, workspace=[0] * length, **machine)


def test_a_chain_takes_its_work_and_a_copy_wherever_the_device_changes() -> None:
    case = chain(6, ms=7, size=40, machine=own_links(2, bandwidth=10, latency=3))
    for placement in ([0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        changes = sum(one != other for one, other in pairwise(placement))
        ms, busy, _, copied, copies = case.fast().run(placement)
        assert ms == 6 * 7 + changes * (3 + 40 / 10)
        assert (copies, copied, busy.sum()) == (changes, 40 * changes, 42)


def fork_join(branches: int, ms: int, size: int, machine: dict[str, Any]) -> Case:
    devices = len(machine["routes"])
    tensors = [computed(0, size, *range(1, branches + 1))]
    tensors += [computed(branch, size, branches + 1) for branch in range(1, branches + 1)]
    times = [[1] * devices, *[[ms] * devices] * branches, [1] * devices]
    return Case(times, tensors, workspace=[0] * len(times), **machine)


@pytest.mark.parametrize("branches", [1, 2, 4, 6])
def test_a_fork_and_join_takes_one_branch_a_device_and_two_copies(branches: int) -> None:
    """With a device for each branch: fork, copy, branch, copy, join; on one device: all branches."""
    case = fork_join(branches, ms=50, size=20, machine=own_links(branches + 1, bandwidth=10))
    assert case.fast().run([0, *range(1, branches + 1), 0])[0] == 1 + 20 / 10 + 50 + 20 / 10 + 1
    assert case.fast().run([0] * (branches + 2))[0] == 1 + 50 * branches + 1


@pytest.mark.parametrize("readers", [2, 3, 5])
def test_copies_that_share_a_channel_take_the_sum_of_their_bytes(readers: int) -> None:
    """Bandwidth-bound: one tensor goes to several devices over one bus, and all copies end together."""
    tensors = [computed(0, 60, *range(1, readers + 1))]
    machine = shared_bus(readers + 1, bandwidth=10)
    case = Case([[2] * (readers + 1)] * (readers + 1), tensors, workspace=[0] * (readers + 1), **machine)
    assert case.fast().run(list(range(readers + 1)))[0] == 2 + readers * 60 / 10 + 2


def test_a_tensor_is_copied_once_to_a_device_with_several_readers() -> None:
    case = Case([[1, 1]] * 4, [computed(0, 50, 1, 2, 3)], workspace=[0] * 4, **own_links(2))
    ms, _, _, copied, copies = case.fast().run([0, 1, 1, 1])
    assert (ms, copied, copies) == (1 + 5 + 3, 50, 1)


def test_a_device_computes_while_a_copy_is_on_its_way() -> None:
    """The copy of the first result runs beside the second task of the same device."""
    case = Case([[1, 1], [5, 5], [1, 1]], [computed(0, 50, 2)], workspace=[0] * 3, **own_links(2))
    ms, busy, *_ = case.fast().run([0, 0, 1])
    assert ms == 1 + 5 + 1
    assert busy.tolist() == [6, 1]


def test_priorities_decide_which_waiting_task_runs_first() -> None:
    case = Case([[5, 5], [1, 1], [5, 5]], [computed(1, 10, 2)], workspace=[0] * 3, **own_links(2))
    assert case.fast().run([0, 0, 1])[0] == 5 + 1 + 1 + 5
    assert case.fast().run([0, 0, 1], [1.0, 0.0, 2.0])[0] == 1 + 1 + 5


def test_a_task_without_a_kernel_takes_for_ever() -> None:
    simulator = chain(2, 1, 1, own_links(2)).fast(task_ms=np.array([[1.0, np.inf], [1.0, 1.0]]))
    assert simulator.run([1, 0])[0] == np.inf
    assert simulator.run([0, 1])[0] < np.inf


def random_case(rng: np.random.Generator, tasks: int, devices: int) -> Case:
    """Returns random tasks, tensors of all kinds, and links that routes of one to three channels share."""
    widths = rng.integers(1, 12, 3 * devices).tolist()
    routes = [
        [
            [] if start == end else rng.choice(len(widths), rng.integers(1, 4), replace=False).tolist()
            for end in range(devices)
        ]
        for start in range(devices)
    ]
    latency = [[0 if start == end else int(rng.integers(0, 30)) for end in range(devices)] for start in range(devices)]
    tensors = []
    for _ in range(2 * tasks):
        first, *others = sorted(rng.choice(tasks, rng.integers(2, min(5, tasks)), replace=False).tolist())
        storage = int(rng.choice(4, p=[0.7, 0.1, 0.1, 0.1]))
        owner = first if storage == COMPUTED else int(rng.integers(devices)) if storage == FED else others[0]
        state = int(rng.integers(0, 100)) if storage == PARAMETER else 0
        kept = storage == COMPUTED and rng.random() < 0.2
        tensors.append(SlowTensor(storage, owner, int(rng.integers(1, 10_000)), state, bool(kept), others))
    times = rng.integers(1, 1000, (tasks, devices)).tolist()
    return Case(times, tensors, widths, routes, latency, rng.integers(0, 500, tasks).tolist())


@pytest.mark.parametrize("seed", range(30))
def test_it_agrees_with_a_slow_simulator_in_exact_fractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(3, 14)), int(rng.integers(1, 5)))
    devices = len(case.routes)
    for _ in range(3):
        placement = rng.integers(0, devices, len(case.task_ms)).tolist()
        slow = case.slow(placement)
        expected = slow.run()
        ms, busy, peaks, _, copies = case.fast().run(placement)
        begin, end, *_ = case.fast().trace(placement)
        assert ms == pytest.approx(float(expected), rel=1e-9)
        assert peaks == pytest.approx([float(peak) for peak in slow.peaks], rel=1e-12)
        assert copies == len(slow.copies)
        assert begin == pytest.approx([float(slow.began[task]) for task in range(len(begin))], rel=1e-9)
        assert end == pytest.approx([float(slow.ended[task]) for task in range(len(end))], rel=1e-9)
        assert busy.sum() == pytest.approx(sum(case.task_ms[task][device] for task, device in enumerate(placement)))


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_bounded_by_its_longest_path_and_by_all_work_in_a_row(seed: int) -> None:
    """Never below the longest path or the busiest device, and never above all work and copies one after another."""
    rng = np.random.default_rng(100 + seed)
    case = random_case(rng, 12, 3)
    placement = rng.integers(0, 3, 12)
    longest = np.zeros(12)
    for task in range(12):
        read = [each.owner for each in case.tensors if task in each.readers and each.storage == COMPUTED]
        longest[task] = max((longest[owner] for owner in read), default=0) + case.task_ms[task][placement[task]]
    ms, busy, *_ = case.fast().run(placement)
    _, _, ways, _ = case.fast().trace(placement)
    copies = sum(
        case.latency[start][end]
        + case.tensors[tensor].size / min(case.bandwidth[each] for each in case.routes[start][end])
        for tensor, start, end in ways
    )
    slowest = max(1, max(sum(channel in route for row in case.routes for route in row) for channel in range(9)))
    assert max(longest.max(), busy.max()) <= ms * (1 + 1e-9)
    assert ms <= (busy.sum() + slowest * copies) * (1 + 1e-9)


@pytest.mark.parametrize("factor", [2, 3, 10])
def test_faster_links_never_slow_a_chain_or_a_fork_down(factor: int) -> None:
    """Graphs with anomalies exist (Graham 1969), but not among these two kinds."""
    for make in (lambda machine: chain(8, 5, 70, machine), lambda machine: fork_join(3, 9, 70, machine)):
        slow, fast = make(own_links(4, bandwidth=7, latency=2)), make(own_links(4, bandwidth=7 * factor, latency=2))
        rng = np.random.default_rng(factor)
        for _ in range(20):
            placement = rng.integers(0, 4, len(slow.task_ms))
            assert fast.fast().run(placement)[0] <= slow.fast().run(placement)[0]


@pytest.mark.parametrize("seed", range(5))
def test_time_scales_with_all_times_and_sizes(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    case = random_case(rng, 10, 3)
    placement = rng.integers(0, 3, 10)
    scaled = case.fast(
        task_ms=4 * np.array(case.task_ms, float),
        latency_ms=4 * np.array(case.latency, float),
        bytes=[4 * each.size for each in case.tensors],
    )
    assert scaled.run(placement)[0] == pytest.approx(4 * case.fast().run(placement)[0], rel=1e-12)


def test_many_placements_at_once_are_those_one_by_one() -> None:
    rng = np.random.default_rng(3)
    case = random_case(rng, 12, 4)
    placements = rng.integers(0, 4, (25, 12))
    ms, peaks = case.fast().run_all(placements)
    singles = [case.fast().run(placement) for placement in placements]
    assert ms.tolist() == [each[0] for each in singles]
    assert peaks.tolist() == [each[2].tolist() for each in singles]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_bytes": [1.0]}, "routes"),
        ({"latency_ms": [[0, -1], [0, 0]]}, "latency"),
        ({"channel_bytes_per_ms": [0, 1]}, "bandwidth"),
        ({"routes": [[], [], [1], []]}, "no route from device 0 to device 1"),
        ({"routes": [[], [7], [1], []]}, "channel 7"),
        ({"task_ms": np.full((2, 2), -1.0)}, "time of a task"),
        ({"task_ms": np.ones((2, 3))}, "number of devices"),
        ({"readers": [5]}, "reader"),
        ({"readers": [0]}, "cycle"),
        ({"owner": [9]}, "owner 9"),
        ({"storage": [4]}, "storage"),
        ({"bytes": [float("nan")]}, "size"),
        ({"reader_begin": [0, 2]}, "readers"),
    ],
)
def test_malformed_input_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chain(2, 1, 1, own_links(2)).fast(**changes)


@pytest.mark.parametrize("placement", [[0], [0, 2], [-1, 0], [0, 0, 0]])
def test_placements_of_another_shape_or_device_are_refused(placement: list[int]) -> None:
    with pytest.raises(ValueError, match="task"):
        chain(2, 1, 1, own_links(2)).fast().run(placement)
