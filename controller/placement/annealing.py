"""Simulated annealing of placements on the simulator."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from controller.placement.interface import BASELINES, Objective, Report, find_placer
from environment.placement.errors import PlacementError
from environment.placement.features import group_edges
from environment.placement.problem import Assignment, PlacementProblem

START_TEMPERATURE, END_TEMPERATURE = 0.05, 0.0005
"""Temperatures of the first and the last move, as differences of the logarithm of the time: 5 % and 0.05 %."""
_LARGEST_REGION = 16
"""The most groups that one move takes along."""


def annealing(problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
    """Returns the best assignment of simulated annealing; see `Placer`.

    It begins with the best placement of the baselines, which search nothing and take one simulation each. A move puts
    a connected region of 1 to 16 groups on a random device, since a single group seldom pays for its copies. The energy
    is the logarithm of the counted time, and the temperature falls geometrically.

    Source: Kirkpatrick, Gelatt and Vecchi 1983, "Optimization by simulated annealing".
    """
    rng = np.random.default_rng(seed)
    objective = Objective(problem, report)
    for start in starts(problem, seed)[: max(budget, 1)]:
        objective(start)
    neighbours: list[set[int]] = [set() for _ in range(problem.num_groups)]
    for producer, reader in group_edges(problem):
        neighbours[producer].add(reader)
        neighbours[reader].add(producer)
    current, current_ms = objective.best.copy(), objective.best_ms
    first = objective.evaluations
    if problem.machine.num_devices == 1:
        return objective.best
    while objective.evaluations < budget:
        done = (objective.evaluations - first) / max(budget - first, 1)
        temperature = START_TEMPERATURE * (END_TEMPERATURE / START_TEMPERATURE) ** done
        proposal = _moved(current, neighbours, problem.machine.num_devices, rng)
        ms = objective(proposal)
        if math.log(ms / current_ms) <= -temperature * math.log(1.0 - rng.random()):
            current, current_ms = proposal, ms
    return objective.best


def starts(problem: PlacementProblem, seed: int) -> list[Assignment]:
    """Returns the placements of all baselines that can be used here and search nothing, the host alone first."""
    found = []
    for name in BASELINES:
        with contextlib.suppress(PlacementError):  # it is not installed, or finds no room
            found.append(find_placer(name)(problem, budget=0, seed=seed, report=lambda done, ms: None))
    return found


def _moved(assignment: Assignment, neighbours: list[set[int]], devices: int, rng: np.random.Generator) -> Assignment:
    """Returns the assignment with a connected region of groups of one device on another one."""
    seed_group = int(rng.integers(len(assignment)))
    source = assignment[seed_group]
    target = (source + rng.integers(1, devices)) % devices
    size = int(2 ** rng.uniform(0.0, math.log2(_LARGEST_REGION)))
    region, frontier = {seed_group}, sorted(neighbours[seed_group])
    while len(region) < size and frontier:
        group = frontier.pop(int(rng.integers(len(frontier))))
        if group not in region and assignment[group] == source:
            region.add(group)
            frontier += sorted(neighbours[group] - region)
    moved = assignment.copy()
    moved[list(region)] = target
    return moved
