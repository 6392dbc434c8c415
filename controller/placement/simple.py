"""Placements without a search: one device, and what an expert would do by hand."""

from __future__ import annotations

import re

import numpy as np

from controller.placement.interface import Report, accelerators
from environment.placement.features import group_ms
from environment.placement.problem import HOST, Assignment, PlacementProblem

_LAYER = re.compile(r"(?:^|[/._])(?:layers?|blocks?|stages?|rnn|lstm)[._/]?(\d+)(?=$|[/._])", re.IGNORECASE)
_FEWEST_LAYERS = 2


def single_cpu(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the assignment of everything to the host; see `Placer`."""
    return problem.single(HOST)


def single_gpu(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the assignment of everything to the first accelerator; see `Placer`."""
    return problem.single(accelerators(problem)[0])


def expert(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns what is usually done by hand: layers in order, one part of them on each accelerator; see `Placer`.

    If the names of operators number their layers, each layer stays whole, and layers are dealt out in contiguous runs
    of as even work as possible. Operators without a number go with the layer before them. Otherwise the groups
    themselves are dealt out so, in topological order. Mirhoseini et al. 2017, section 4.2, place the layers of RNNs and
    the stages of Inception-V3 like this.
    """
    layers = _layers(problem)
    work = np.bincount(layers, group_ms(problem)[:, accelerators(problem)].mean(axis=1))
    devices = accelerators(problem)
    part = _even_runs(work, len(devices))
    return np.array([devices[part[layer]] for layer in layers], np.int32)


def _layers(problem: PlacementProblem) -> np.ndarray:
    """Returns the layer of each group [G], in the order of the graph."""
    numbers: list[int | None] = [None] * problem.num_groups
    for operator, group in zip(problem.graph.operators, problem.groups, strict=True):
        found = _LAYER.search(operator.name or operator.output)
        if found and numbers[group] is None:
            numbers[group] = int(found[1])
    if len({number for number in numbers if number is not None}) < _FEWEST_LAYERS:
        return np.arange(problem.num_groups)
    layers, current = [], 0
    for number in numbers:
        current = current if number is None else number
        layers.append(current)
    return np.array(layers)


def _even_runs(work: np.ndarray, parts: int) -> list[int]:
    """Returns the part of each item, so that parts are contiguous runs and no item's middle lies beyond its part."""
    middles = (np.cumsum(work) - work / 2) / max(float(work.sum()), 1e-12)
    return [min(int(parts * middle), parts - 1) for middle in middles]
