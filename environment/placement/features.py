"""What an agent sees of the groups of a placement problem."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from environment.placement.problem import PlacementProblem

GROUP_FEATURES = ("log_ms", "log_result_bytes", "log_parameter_bytes", "log_read_bytes", "depth", "operators")
"""Columns of `group_features`, beside one for the log time on each device."""


def group_edges(problem: PlacementProblem) -> dict[tuple[int, int], float]:
    """Returns the bytes that each group hands to each other one, by (producer, reader)."""
    edges: dict[tuple[int, int], float] = {}
    for producer, reader, nbytes in problem.graph.edges():
        ends = (int(problem.groups[producer]), int(problem.groups[reader]))
        if ends[0] != ends[1]:
            edges[ends] = edges.get(ends, 0.0) + nbytes
    return edges


def group_adjacency(problem: PlacementProblem) -> npt.NDArray[np.int8]:
    """Returns [G, G]: 1 where the group of the row hands a tensor to that of the column."""
    adjacency = np.zeros((problem.num_groups, problem.num_groups), np.int8)
    for producer, reader in group_edges(problem):
        adjacency[producer, reader] = 1
    return adjacency


def group_ms(problem: PlacementProblem) -> npt.NDArray[np.float64]:
    """Returns [G, D], the time of each group on each device; operators without a kernel there count as on the host."""
    times = np.where(np.isinf(problem.operator_ms), problem.operator_ms[:, :1], problem.operator_ms)
    found = np.zeros((problem.num_groups, problem.machine.num_devices))
    np.add.at(found, problem.groups, times)
    return found


def group_features(problem: PlacementProblem) -> npt.NDArray[np.float32]:
    """Returns [G, F + D], with the F columns of `GROUP_FEATURES`; times in µs and sizes in bytes, each ln(1 + x)."""
    ms, edges = group_ms(problem), group_edges(problem)
    columns = np.zeros((problem.num_groups, len(GROUP_FEATURES)))
    columns[:, 0] = np.log1p(1e3 * ms.mean(axis=1))
    made, parameters, read = (np.zeros(problem.num_groups) for _ in range(3))
    for tensor in problem.graph.tensors:
        if tensor.kind == "computed":
            made[problem.groups[tensor.producer]] += tensor.nbytes
        elif tensor.kind == "parameter":
            for group in {int(problem.groups[reader]) for reader in tensor.readers}:
                parameters[group] += tensor.nbytes
    for (_, reader), nbytes in edges.items():
        read[reader] += nbytes
    columns[:, 1:4] = np.log1p(np.column_stack([made, parameters, read]))
    order = np.bincount(problem.groups, np.arange(len(problem.groups)), problem.num_groups)
    sizes = np.bincount(problem.groups, minlength=problem.num_groups)
    columns[:, 4] = order / np.maximum(sizes, 1) / max(len(problem.groups), 1)
    columns[:, 5] = np.log1p(sizes)
    return np.column_stack([columns, np.log1p(1e3 * ms)]).astype(np.float32)
