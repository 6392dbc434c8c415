"""`passes`: each rule as a compiler's pass, applied wherever it applies; hill climbing over whole passes.

Where a rewrite pays only together with its like, as putting a whole chain of operators into another form does, no
search that goes one rewrite at a time finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from controller.interface import ProgressCallback
from controller.records import is_improvement
from controller.search.replayed import DEFAULT_LIMITS, Actions, Found, Search, SearchLimits
from taso_ext import State, UnpricedError

MOST_STEPS = 400
"""Of one rule applied until it applies no longer; most end soon, some never do."""


def exhaust(
    state: State, rule: int, most_steps: int = MOST_STEPS, *, stop: Callable[[], bool] = lambda: False
) -> Actions:
    """Applies a rule wherever it applies, until it does not, or `stop` says so; returns the actions taken.

    Raises:
      UnpricedError: on the way, a graph that has no price.
    """
    actions: Actions = []
    while len(actions) < most_steps and len(places := np.flatnonzero(state.location_mask()[rule])) and not stop():
        actions.append((rule, int(places[0])))
        state.step(*actions[-1])
    return actions


class PassesController(Search):
    """Tries every legal rule as a pass, takes those that still help after better ones, and begins anew until none does.

    A graph of its budget is one pass tried; its time may end within a pass, whose beginning counts if that helps. The
    threads of its limits are not used, nor is its memory: it keeps two graphs.
    """

    name: ClassVar[str] = "passes"

    def __init__(self, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`; nothing is drawn."""
        climb = _Climb(state, self._limits, on_progress)
        stop_reason = climb.run()
        if climb.unpriced:
            stop_reason += f"; {climb.unpriced:,} passes were left alone for want of a price"
        return Found(climb.actions, climb.best.cost.ms, stop_reason)


class _Pass(NamedTuple):
    state: State
    actions: Actions
    cost_ms: float


class _Climb:
    """
    Attributes:
      best: the cheapest graph so far.
      actions: that lead to it.
      unpriced: passes that came to a graph that has no price.
    """

    def __init__(self, start: State, limits: SearchLimits, on_progress: ProgressCallback | None) -> None:
        self.best, self.actions = start, Actions()
        self._limits, self._on_progress = limits, on_progress
        self._deadline = time.monotonic() + limits.seconds if limits.seconds else float("inf")
        self._tried = self.unpriced = 0

    def run(self) -> str:
        """Climbs, and says why it stopped."""
        while True:
            helpful = sorted(self._helpful(), key=lambda each: each[1])
            if not helpful:
                return self._stop_reason() or "local optimum"
            for rule, _ in helpful:
                if found := self._tried_pass(rule):
                    self.best = found.state
                    self.actions += found.actions

    def _helpful(self) -> Iterator[tuple[int, float]]:
        """Rules that help as a pass, with what the graph then costs."""
        for rule in np.unique(self.best.legal_actions()[:, 0]).tolist():
            if found := self._tried_pass(rule):
                yield rule, found.cost_ms

    def _tried_pass(self, rule: int) -> _Pass | None:
        """What a pass of a rule makes of the best graph, if that is better."""
        if self._stop_reason():
            return None
        found = self._pass(rule)
        self._tried += 1
        if self._on_progress:
            self._on_progress(self._tried, self._limits.budget, {"best_cost_ms": self.best.cost.ms})
        return found if found and is_improvement(found.cost_ms, self.best.cost.ms) else None

    def _pass(self, rule: int) -> _Pass | None:
        """What a pass of a rule makes of the best graph; None if some graph on the way has no price."""
        state = self.best.copy()
        try:
            return _Pass(state, exhaust(state, rule, stop=self._is_late), state.cost.ms)
        except UnpricedError:
            self.unpriced += 1
            return None

    def _stop_reason(self) -> str:
        if self._tried >= self._limits.budget:
            return "budget"
        return "time" if self._is_late() else ""

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline
