"""The cost of fusion plans, which can only be queried."""

from __future__ import annotations

import numpy as np

from environment.counting import count
from environment.fusion.graphs import FusionGraph
from taso_ext import FusionPlan


class Objective:
    """A plan that moves from configuration to configuration, and pays for every price that it asks for.

        objective = Objective(graph)
        before = objective.cost_ms                 # known since the start, one query
        after = objective.flipped([17, 18])        # one query
        objective.undo()                           # goes back; free

    The engine counts queries at the problem, for all plans of it together, and nothing resets that count. `queries` is
    how many were asked since this objective began.
    """

    def __init__(self, graph: FusionGraph, configuration: np.ndarray | None = None) -> None:
        self.graph = graph
        self._before = graph.problem.queries
        self._plan = FusionPlan(graph.problem, graph.start() if configuration is None else configuration)
        self._last: tuple[np.ndarray, float] | None = None
        self.start_ms = self.cost_ms = self._ask()
        self._best = (self.cost_ms, self._plan.configuration())

    def _ask(self) -> float:
        count(cost_evaluations=1)
        return self._plan.cost_ms()

    @property
    def queries(self) -> int:
        """Queries since the start, the one of the start included."""
        return self.graph.problem.queries - self._before

    @property
    def configuration(self) -> np.ndarray:
        """The present configuration, uint8 [N]; a copy."""
        return self._plan.configuration()

    @property
    def best_ms(self) -> float:
        """The lowest cost that was seen."""
        return self._best[0]

    @property
    def best_configuration(self) -> np.ndarray:
        """The configuration of the lowest cost; a copy."""
        return self._best[1].copy()

    @property
    def improvement(self) -> float:
        """By how many percent of the start's cost the best plan is cheaper."""
        return 100 * (1 - self.best_ms / self.start_ms)

    def flipped(self, tensors: np.ndarray | list[int]) -> float:
        """Flips decisions and returns the new cost in ms; one query.

        Raises:
          ValueError: a tensor is not configurable.
        """
        flips = np.asarray(tensors, np.int32)
        self._plan.flip(flips)
        self._last = (flips, self.cost_ms)
        self.cost_ms = self._ask()
        if self.cost_ms < self.best_ms:
            self._best = (self.cost_ms, self._plan.configuration())
        return self.cost_ms

    def undo(self) -> None:
        """Takes the last `flipped` back.

        Raises:
          RuntimeError: there is none, or it is taken back already.
        """
        if self._last is None:
            raise RuntimeError("there is no flip to take back: undo() follows one flipped(), once")
        flips, self.cost_ms = self._last
        self._plan.flip(flips[::-1])
        self._last = None

    def advantages(self, tensors: np.ndarray) -> np.ndarray:
        """Returns the exact cost with each decision flipped minus the cost without, in ms [len(tensors)].

        One query each.
        """
        count(cost_evaluations=len(tensors))
        return self._plan.deltas_ms(tensors)

    def moved_to(self, configuration: np.ndarray) -> float:
        """Moves to any configuration and returns its cost in ms; one query."""
        return self.flipped(np.flatnonzero(self._plan.configuration() != configuration))
