"""`passes`: hill climbing over compiler passes, where a pass applies one rule wherever it applies.

Some rewrites pay only together, such as those that put a whole chain of operators into another form. No search that
takes one rewrite at a time finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from controller.interface import ProgressCallback
from controller.records import is_improvement
from controller.search.replayed import DEFAULT_LIMITS, Actions, Found, Search, SearchLimits, StopCause, StopReason
from environment.counting import count
from taso_ext import State, UnpricedError

MOST_STEPS = 400
"""Largest number of steps of one pass: most rules soon apply nowhere, but some always apply again."""


def exhaust(
    state: State, rule: int, most_steps: int = MOST_STEPS, *, stop: Callable[[], bool] = lambda: False
) -> Actions:
    """Applies a rule until it applies nowhere, or `stop` returns true; returns the actions taken.

    Raises:
      UnpricedError: a graph on the way has no price.
    """
    actions: Actions = []
    while len(actions) < most_steps and len(places := np.flatnonzero(state.location_mask()[rule])) and not stop():
        actions.append((rule, int(places[0])))
        state.step(*actions[-1])
    return actions


class PassesController(Search):
    """A hill climb that tries every legal rule as a pass and takes the passes that help, until none helps.

    Passes that help are taken in the order of their gains, each only if it still helps after the better ones. Each
    tried pass counts as one graph of the budget. The time may end within a pass; the part that was applied counts if it
    helps. The limits of threads and memory do not apply, because this search keeps only two graphs.
    """

    name: ClassVar[str] = "passes"

    def __init__(self, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Climbs without random draws; see `Search.find`."""
        climb = _Climb(state, self._limits, on_progress)
        cause = climb.run()
        return Found(climb.actions, climb.best.cost.ms, StopReason(cause, unpriced_passes=climb.unpriced))


class _Pass(NamedTuple):
    state: State
    actions: Actions
    cost_ms: float


class _Climb:
    """A climb in progress.

    Attributes:
      best: the cheapest graph so far.
      actions: the actions that lead to it.
      unpriced: number of passes that came to a graph without a price.
    """

    def __init__(self, start: State, limits: SearchLimits, on_progress: ProgressCallback | None) -> None:
        self.best, self.actions = start, Actions()
        self._limits, self._on_progress = limits, on_progress
        self._deadline = time.monotonic() + limits.seconds if limits.seconds else float("inf")
        self._tried = self.unpriced = 0

    def run(self) -> StopCause:
        """Climbs until no pass helps or a limit is reached, and returns the cause."""
        while True:
            helpful = sorted(self._helpful(), key=lambda each: each[1])
            if not helpful:
                return self._limit_reached() or StopCause.LOCAL_OPTIMUM
            for rule, _ in helpful:
                if found := self._tried_pass(rule):
                    self.best = found.state
                    self.actions += found.actions

    def _helpful(self) -> Iterator[tuple[int, float]]:
        """Yields each rule that helps as a pass, with the cost of the resulting graph."""
        for rule in np.unique(self.best.legal_actions()[:, 0]).tolist():
            if found := self._tried_pass(rule):
                yield rule, found.cost_ms

    def _tried_pass(self, rule: int) -> _Pass | None:
        """Returns the result of a pass over the best graph if it is better, else None."""
        if self._limit_reached():
            return None
        found = self._pass(rule)
        self._tried += 1
        if self._on_progress:
            self._on_progress(self._tried, self._limits.budget, {"best_cost_ms": self.best.cost.ms})
        return found if found and is_improvement(found.cost_ms, self.best.cost.ms) else None

    def _pass(self, rule: int) -> _Pass | None:
        """Returns the result of a pass over the best graph; None if a graph on the way has no price."""
        state = self.best.copy()
        try:
            found = _Pass(state, exhaust(state, rule, stop=self._is_late), state.cost.ms)
            count(cost_evaluations=1)
            return found
        except UnpricedError:
            self.unpriced += 1
            return None

    def _limit_reached(self) -> StopCause | None:
        if self._tried >= self._limits.budget:
            return StopCause.BUDGET
        return StopCause.TIME if self._is_late() else None

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline
