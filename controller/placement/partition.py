"""Placements by graph partitioners, which balance work and cut as few bytes as possible, and know nothing of time.

METIS comes by the package `pymetis` (the extra `placement`); Scotch is a program, `gmap`, of the Debian package
`scotch`. The work of a group is its time on the host, and parts are as large as devices are fast.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from controller.placement.interface import Report, accelerators
from environment.placement.errors import PlacementError
from environment.placement.features import group_edges, group_ms
from environment.placement.problem import HOST, Assignment, PlacementProblem
from taso_ext.errors import one_paragraph

_LARGEST_WEIGHT = 10_000
"""The largest weight of a group or an edge: partitioners take whole numbers."""
_SECONDS = 600.0


def metis(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns METIS's partition over all devices; see `Placer`.

    Source: Karypis and Kumar 1998, "A fast and high quality multilevel scheme for partitioning irregular graphs".
    """
    return _metis(problem, list(range(problem.machine.num_devices)), seed)


def metis_gpus(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns METIS's partition over the accelerators; see `Placer`."""
    return _metis(problem, accelerators(problem), seed)


def scotch(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns Scotch's mapping to all devices; see `Placer`.

    Source: Pellegrini 2009, "Distillating knowledge about Scotch".
    """
    return _scotch(problem, list(range(problem.machine.num_devices)), seed)


def mincut(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns Scotch's mapping to the accelerators, which the paper calls MinCut; see `Placer`."""
    return _scotch(problem, accelerators(problem), seed)


def _shares(problem: PlacementProblem, devices: list[int]) -> list[float]:
    """Returns the part of the work that each device should get: in proportion to its speed on the whole model."""
    speeds = 1.0 / np.maximum(group_ms(problem).sum(axis=0)[devices], 1e-12)
    return [float(share) for share in speeds / speeds.sum()]


def _whole(weights: npt.NDArray[np.float64]) -> list[int]:
    """Returns weights as whole numbers from 1 to `_LARGEST_WEIGHT`."""
    largest = max(float(weights.max(initial=0.0)), 1e-12)
    return [max(1, round(_LARGEST_WEIGHT * float(weight) / largest)) for weight in weights]


def _neighbours(problem: PlacementProblem) -> list[dict[int, int]]:
    """Returns, for each group, the groups that it exchanges tensors with, and the weights of these edges."""
    edges: dict[tuple[int, int], float] = {}
    for (producer, reader), nbytes in group_edges(problem).items():
        ends = (min(producer, reader), max(producer, reader))
        edges[ends] = edges.get(ends, 0.0) + nbytes
    weights = _whole(np.array(list(edges.values())))
    neighbours: list[dict[int, int]] = [{} for _ in range(problem.num_groups)]
    for (one, other), weight in zip(edges, weights, strict=True):
        neighbours[one][other] = neighbours[other][one] = weight
    return neighbours


def _of_few_groups(problem: PlacementProblem, devices: list[int]) -> Assignment | None:
    """Returns the placement where there is nothing to partition: no more groups than devices, or a single device.

    Each group gets a device of its own, the one with the most work the fastest.
    """
    if len(devices) == 1:
        return problem.single(devices[0])
    if problem.num_groups > len(devices):
        return None
    placed = np.zeros(problem.num_groups, np.int32)
    fastest = np.argsort(-np.array(_shares(problem, devices)), kind="stable")
    most_work = np.argsort(-group_ms(problem)[:, HOST], kind="stable")
    placed[most_work] = np.array(devices, np.int32)[fastest[: len(placed)]]
    return placed


def _metis(problem: PlacementProblem, devices: list[int], seed: int) -> Assignment:
    try:
        import pymetis
    except ImportError as error:
        raise PlacementError(
            "METIS is not installed: pip install 'rlflow[placement]', or choose another placer."
        ) from error
    if (few := _of_few_groups(problem, devices)) is not None:
        return few
    neighbours = _neighbours(problem)
    begins = np.cumsum([0, *map(len, neighbours)]).tolist()
    _, parts = pymetis.part_graph(
        len(devices),
        adjacency=pymetis.CSRAdjacency(begins, [other for each in neighbours for other in each]),
        vweights=_whole(group_ms(problem)[:, HOST]),
        eweights=[weight for each in neighbours for weight in each.values()],
        tpwgts=_shares(problem, devices),
        options=pymetis.Options(seed=seed),
    )
    return np.array(devices, np.int32)[np.array(parts, np.int64)]


def _scotch(problem: PlacementProblem, devices: list[int], seed: int) -> Assignment:
    program = shutil.which("gmap") or shutil.which("scotch_gmap")
    if program is None:
        raise PlacementError("Scotch is not installed: apt install scotch, or choose another placer, such as metis.")
    if (few := _of_few_groups(problem, devices)) is not None:
        return few
    with tempfile.TemporaryDirectory() as folder:
        source, target, mapping = (Path(folder, name) for name in ("graph.grf", "devices.tgt", "groups.map"))
        source.write_text(source_graph(_neighbours(problem), _whole(group_ms(problem)[:, HOST])), encoding="ascii")
        shares = _whole(np.array(_shares(problem, devices)))
        target.write_text(f"cmpltw {len(devices)} {' '.join(map(str, shares))}\n", encoding="ascii")
        command = [program, str(source), str(target), str(mapping)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.SubprocessError as error:
            said = getattr(error, "stderr", "") or str(error)
            raise PlacementError(f"Scotch cannot place the groups: {one_paragraph(said)}.") from error
        return mapped(mapping.read_text(encoding="ascii"), problem.num_groups, devices)


def source_graph(neighbours: list[dict[int, int]], weights: list[int]) -> str:
    """Returns a graph in Scotch's format, with weights of vertices and edges.

    Source: user's guide 6.0, section 5.1. It was tried with Scotch 7.0.3.
    """
    lines = ["0", f"{len(neighbours)} {sum(map(len, neighbours))}", "0 011"]
    for weight, others in zip(weights, neighbours, strict=True):
        edges = " ".join(f"{load} {other}" for other, load in others.items())
        lines.append(f"{weight} {len(others)} {edges}".rstrip())
    return "\n".join(lines) + "\n"


def mapped(text: str, groups: int, devices: list[int]) -> Assignment:
    """Returns the assignment in a mapping file: a first line with their number, then a group and a part in each line.

    Raises:
      PlacementError: a group is missing.
    """
    pairs = [line.split() for line in text.splitlines()[1:] if line.strip()]
    parts = {int(group): int(part) for group, part in pairs}
    if len(parts) != groups:
        raise PlacementError(f"Scotch has placed {len(parts)} of {groups} groups; its version is not supported.")
    return np.array([devices[parts[group]] for group in range(groups)], np.int32)
