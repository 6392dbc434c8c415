"""The interface of everything that places the groups of a problem on devices, learned or not.

    placed = place("heft", problem, budget=1000, seed=0)
    print(placed.outcome.ms, placed.evaluations)

A placer is a function with the arguments of `Placer`. What it returns is judged by one simulation, whatever it has
looked at itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, Protocol

import numpy as np

from environment.placement.env import failing_ms
from environment.placement.errors import PlacementError
from environment.placement.problem import Assignment, Outcome, PlacementProblem
from taso_ext.errors import did_you_mean

Report = Callable[[int, float], object]
"""Called with (evaluations done, shortest time in ms) while a placer searches."""


class Placer(Protocol):
    """A function that places the groups of a problem."""

    def __call__(self, problem: PlacementProblem, *, budget: int, seed: int, report: Report) -> Assignment:
        """Returns the device of each group, [G].

        Args:
          budget: the most simulations; placers that need few use fewer.
          seed: the only source of chance.
          report: see `Report`.
        Raises:
          PlacementError: the placer cannot be used here; the message says why and what to do.
        """


@dataclass(frozen=True)
class Placed:
    """A placement and what it costs.

    Attributes:
      name: the placer.
      assignment: [G].
      outcome: its simulation.
    """

    name: str
    assignment: Assignment
    outcome: Outcome


class Objective:
    """The time that counts for an assignment: that of its step, or the failing one; it remembers the best.

    Attributes:
      best: the best assignment so far.
      best_ms: its time.
      outcome: the last simulation; there is none at first.
      evaluations: number of simulations so far.
    """

    outcome: Outcome

    def __init__(self, problem: PlacementProblem, report: Report) -> None:
        self._problem, self._report = problem, report
        self._failing_ms = failing_ms(problem)
        self.best = problem.single(0)
        self.best_ms = np.inf
        self.evaluations = 0

    def __call__(self, assignment: Assignment) -> float:
        """Returns the counted time in ms.

        Placements that do not fit get a longer one the more memory is missing, so that a search finds a way out.
        """
        self.outcome = outcome = self._problem.evaluate(assignment)
        ms = outcome.ms if outcome.fits else self._failing_ms * (1 + outcome.missing_bytes.sum() / 1e12)
        self.evaluations += 1
        if ms < self.best_ms:
            self.best, self.best_ms = assignment.copy(), ms
        self._report(self.evaluations, self.best_ms)
        return float(ms)


class Entry(NamedTuple):
    """The function of a placer as `module:function` in this package, and a line about it."""

    function: str
    about: str


PLACERS: Mapping[str, Entry] = {
    "single-cpu": Entry("simple:single_cpu", "everything on the host"),
    "single-gpu": Entry("simple:single_gpu", "everything on the first device that is not a host"),
    "expert": Entry("simple:expert", "layers or stages in order, the same work for each GPU"),
    "metis": Entry("partition:metis", "METIS, parts as large as devices are fast, the CPUs among them"),
    "metis-gpus": Entry("partition:metis_gpus", "METIS, on the GPUs alone"),
    "scotch": Entry("partition:scotch", "Scotch, parts as large as devices are fast, where `gmap` is installed"),
    "mincut": Entry("partition:mincut", "Scotch on the GPUs alone, where `gmap` is installed"),
    "heft": Entry("lists:heft", "heterogeneous earliest finish time (Topcuoglu et al. 2002)"),
    "m-etf": Entry("lists:memory_etf", "earliest task first within the memory (Jeon et al. 2020, Baechi)"),
    "annealing": Entry("annealing:annealing", "simulated annealing on the simulator"),
    "reinforce": Entry("sequence:reinforce", "the published agent: a sequence-to-sequence LSTM, REINFORCE"),
    "reinforce-async": Entry("asynchronous:reinforce_async", "the published agent, 4 controllers that share weights"),
    "reinforce-ray": Entry("asynchronous:reinforce_ray", "the same through Ray (extra `ray`)"),
    "ppo": Entry("graph_ppo:graph_ppo", "PPO with a graph encoder, trained on this problem"),
}
"""The placers by name."""
LEARNED = ("reinforce", "reinforce-async", "reinforce-ray", "ppo")
"""Those that train a network, which takes longer."""
BASELINES = tuple(name for name in PLACERS if name not in ("annealing", *LEARNED))
"""Those that search nothing."""


def find_placer(name: str) -> Placer:
    """Returns a placer.

    Raises:
      PlacementError: the name is unknown.
    """
    if name not in PLACERS:
        hint = did_you_mean(name, list(PLACERS))
        raise PlacementError(f"no placer is called '{name}'{hint}; choose one of {', '.join(PLACERS)}.")
    module, _, function = PLACERS[name].function.partition(":")
    placer: Placer = getattr(import_module(f"controller.placement.{module}"), function)
    return placer


def place(
    name: str,
    problem: PlacementProblem,
    *,
    budget: int = 1000,
    seed: int = 0,
    report: Report = lambda evaluations, best_ms: None,
) -> Placed:
    """Places a problem by a named placer and simulates what it returns.

    Raises:
      PlacementError: the name is unknown, or the placer cannot be used here.
    """
    assignment = find_placer(name)(problem, budget=budget, seed=seed, report=report)
    return Placed(name, assignment, problem.evaluate(assignment))


def accelerators(problem: PlacementProblem) -> list[int]:
    """Returns the devices that are no CPUs; all of them if there are only CPUs."""
    devices = problem.machine.devices
    found = [number for number, device in enumerate(devices) if not device.name.startswith("cpu")]
    return found or list(range(len(devices)))


def require_fit(problem: PlacementProblem, placed: Placed) -> None:
    """Checks that a placement has enough memory.

    Raises:
      PlacementError: it has not; the message says how much is missing, and where.
    """
    if not placed.outcome.fits:
        raise PlacementError(
            f"the placement by {placed.name} does not fit on machine '{problem.machine.name}': "
            f"{problem.failure(placed.outcome)}. Use smaller batches, more devices or devices with more memory."
        )
