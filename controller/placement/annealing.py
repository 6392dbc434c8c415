"""Simulated annealing of placements on the simulator."""

from __future__ import annotations

import contextlib
import math
import re

import numpy as np

from controller.placement.interface import BASELINES, Objective, Report, find_placer
from environment.placement.errors import PlacementError
from environment.placement.features import group_edges
from environment.placement.problem import Assignment, PlacementProblem
from environment.placement.training import TrainingParts, is_training

START_TEMPERATURE, END_TEMPERATURE = 0.01, 0.0005
"""Temperatures of the first and the last move, as differences of the logarithm of the time: 1 % and 0.05 %."""
MEMORY_WEIGHT = 2.0
"""What memory that is missing adds to the logarithm of the time, for each full memory of a device. A search then passes
through placements that lack a little, and cannot stay there: a tenth of a memory costs as much as 22 % of the time."""
_LARGEST_REGION = 16
"""The most groups of a connected region that one move takes along."""
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


def annealing(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the best assignment of simulated annealing; see `Placer`.

    It begins with the best placement of the baselines, which search nothing and take one simulation each. A move puts
    several groups on a random device, since a single group seldom pays for its copies. In one half of the moves these
    are a connected region of 1 to 16 groups of one device. In the other half they are consecutive repeats of one part,
    such as some steps of an LSTM layer (see `repeats`). The temperature falls geometrically.

    Source: Kirkpatrick, Gelatt and Vecchi 1983, "Optimization by simulated annealing".
    """
    rng = np.random.default_rng(seed)
    objective = Objective(problem, report)
    proposals = starts(problem, seed)[: max(budget, 1)]
    energies = [_energy(problem, objective, each) for each in proposals]
    current, energy = proposals[int(np.argmin(energies))], min(energies)
    if problem.machine.num_devices == 1:
        return objective.best
    neighbours: list[set[int]] = [set() for _ in range(problem.num_groups)]
    for producer, reader in group_edges(problem):
        neighbours[producer].add(reader)
        neighbours[reader].add(producer)
    parts, first = repeats(problem), objective.evaluations
    while objective.evaluations < budget:
        done = (objective.evaluations - first) / max(budget - first, 1)
        temperature = START_TEMPERATURE * (END_TEMPERATURE / START_TEMPERATURE) ** done
        group, turn = int(rng.integers(problem.num_groups)), int(rng.integers(1, problem.machine.num_devices))
        alike = rng.random() < 0.5
        moved = _interval(group, parts[group], rng) if alike else _region(group, current, neighbours, rng)
        proposal = current.copy()
        proposal[moved] = (current[group] + turn) % problem.machine.num_devices
        found = _energy(problem, objective, proposal)
        if found - energy <= -temperature * math.log(1.0 - rng.random()):
            current, energy = proposal, found
    return objective.best


def starts(problem: PlacementProblem, seed: int) -> list[Assignment]:
    """Returns the placements of all baselines that can be used here, the host alone first."""
    found = []
    for name in BASELINES:
        with contextlib.suppress(PlacementError):  # it is not installed, or finds no room
            found.append(find_placer(name)(problem, budget=0, seed=seed, report=lambda done, ms: None))
    return found


def repeats(problem: PlacementProblem) -> list[list[int]]:
    """Returns, for each group, the groups that repeat the same part of a model, in their order, the group among them.

    Two groups do if the names of their first operators differ in the last number alone, as those of unrolled steps and
    of repeated layers: `/lstm/layers.1/step.3/Concat` and `/lstm/layers.1/step.4/Concat`.
    """
    counted = TrainingParts.of(problem.graph).forward if is_training(problem.graph) else np.ones(len(problem.graph))
    names: dict[int, str] = {}
    for group, operator, counts in zip(problem.groups, problem.graph.operators, counted, strict=True):
        if counts:
            names.setdefault(int(group), operator.name)
    families: dict[str, list[int]] = {}
    found = []
    for group in range(problem.num_groups):
        pattern = _LAST_NUMBER.sub("#", names.get(group, "")) or f"the group {group} alone"
        families.setdefault(pattern, []).append(group)
        found.append(families[pattern])
    return found


def _energy(problem: PlacementProblem, objective: Objective, assignment: Assignment) -> float:
    """Returns the logarithm of the simulated time, and more if memory is missing."""
    objective(assignment)
    outcome = objective.outcome
    memory = np.array([max(device.memory_bytes, 1.0) for device in problem.machine.devices])
    return math.log(max(outcome.ms, 1e-9)) + MEMORY_WEIGHT * float((outcome.missing_bytes / memory).sum())


def _interval(group: int, alike: list[int], rng: np.random.Generator) -> list[int]:
    """Returns consecutive ones of groups that repeat a part, a given one among them."""
    size = round(2 ** rng.uniform(0.0, math.log2(len(alike))))
    at = alike.index(group)
    begin = int(rng.integers(max(0, at - size + 1), min(at, len(alike) - size) + 1))
    return alike[begin : begin + size]


def _region(group: int, assignment: Assignment, neighbours: list[set[int]], rng: np.random.Generator) -> list[int]:
    """Returns a connected region of groups of one device, a given one among them."""
    size = int(2 ** rng.uniform(0.0, math.log2(_LARGEST_REGION)))
    region, frontier = {group}, sorted(neighbours[group])
    while len(region) < size and frontier:
        other = frontier.pop(int(rng.integers(len(frontier))))
        if other not in region and assignment[other] == assignment[group]:
            region.add(other)
            frontier += sorted(neighbours[other] - region)
    return sorted(region)
