"""Extraction: the cheapest graph of an e-graph, or a cheap one.

Integer programming (`controller.saturation.program`) finds the cheapest selection of a problem that is small enough. Of
a larger one the linear program says what no selection costs less than, and which terms look worth having. These make a
core that an integer program chooses from. Then regions of the best selection are improved, one after another, while
everything else stays.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np

from controller.saturation.choices import Choices, restricted
from controller.saturation.program import RELATIVE_GAP, Solved, relax, solve
from controller.saturation.selection import Selection, cost_of

WHOLE = 3_000
"""The most terms of a problem that is given to the integer program as a whole."""
REGION = 800
"""Terms of a region at first."""
STRIDE = 7919
"""Classes between the middles of regions, one after the other: a prime, so that every class is one some time."""
REGION_SECONDS = 5.0
"""Time of the solver for a region; regions grow while they take much less, and shrink if they take longer."""


@dataclasses.dataclass(frozen=True)
class Extracted:
    """A selection of terms.

    Attributes:
      selection: the terms.
      cost_ms: what they cost.
      bound_ms: no graph of the e-graph costs less; 0 if nothing is known.
    """

    selection: Selection
    cost_ms: float
    bound_ms: float

    @property
    def is_optimal(self) -> bool:
        """Whether no graph of the e-graph costs less by more than rounding."""
        return self.bound_ms >= self.cost_ms * (1 - 10 * RELATIVE_GAP)


def extract(
    choices: Choices, firsts: list[Selection], seconds: float, on_cost: Callable[[float], None] | None = None
) -> Extracted:
    """Returns the cheapest selection, or the best that is found in `seconds`.

    Args:
      choices: the problem.
      firsts: selections to begin with; at least one.
      seconds: time of all programs together; with 0, the cheapest of `firsts` is returned.
      on_cost: called with the cost of every selection that is the cheapest so far [ms].
    """
    extraction = _Extraction(choices, firsts, seconds, on_cost)
    if seconds:
        extraction.solve()
        if not extraction.result.is_optimal:
            extraction.improve()
    return extraction.result


class _Extraction:
    """The cheapest selection of a problem so far, and what is known of others.

    Attributes:
      result: both.
    """

    def __init__(
        self, choices: Choices, firsts: list[Selection], seconds: float, on_cost: Callable[[float], None] | None
    ) -> None:
        self._choices, self._firsts, self._on_cost = choices, firsts, on_cost
        self._deadline = time.monotonic() + seconds
        cost_ms, first = min(((cost_of(choices, first), first) for first in firsts), key=lambda pair: pair[0])
        self.result = Extracted(first, cost_ms, 0.0)

    def solve(self) -> None:
        """Solves the problem as a whole, as far as it is not too large."""
        if len(self._choices.terms) <= WHOLE:
            self._learn(self._solve(set(range(len(self._choices.terms)))))
            return
        relaxed = relax(self._choices, self._left() / 2)
        if relaxed is None:
            return
        self._bound(relaxed.bound_ms)
        core = relaxed.support.union(*(first.values() for first in self._firsts))
        if len(core) > WHOLE:
            return  # the linear program says little about what is worth having
        self._solve(core)
        if not self.result.is_optimal:
            self._learn(self._solve(set(np.flatnonzero(relaxed.with_term_ms <= self.result.cost_ms).tolist())))

    def improve(self) -> None:
        """Lets regions of the selection change, one after another, until the time is up or none can be improved."""
        neighbours = _neighbours(self._choices)
        size, idle = REGION, 0
        for turn in itertools.count():
            selection = self.result.selection
            places = list(selection)
            if (began := self._left()) <= 0 or idle > len(places):
                return
            seed = places[turn * STRIDE % len(places)]
            region = _region(self._choices, neighbours, seed, size)
            solved = self._solve(region.union(selection.values()), REGION_SECONDS)
            taken = began - self._left()
            idle = 0 if self.result.selection is not selection else idle + 1
            if not solved.is_finished:
                size = max(size // 2, 50)
            elif taken < REGION_SECONDS / 5 and len(region) >= size:
                size += size // 4

    def _solve(self, terms: set[int], seconds: float = math.inf) -> Solved:
        """Looks for a cheaper selection of some terms, in half of the time that is left at most."""
        part, kept = restricted(self._choices, terms)
        solved = solve(part, min(seconds, self._left() / 2))
        if solved.selection is not None:
            self._offer({number: kept[term] for number, term in solved.selection.items()})
        return solved

    def _offer(self, selection: Selection) -> None:
        cost_ms = cost_of(self._choices, selection)
        if cost_ms < self.result.cost_ms * (1 - RELATIVE_GAP):
            self.result = Extracted(selection, cost_ms, min(self.result.bound_ms, cost_ms))
            if self._on_cost is not None:
                self._on_cost(cost_ms)

    def _learn(self, solved: Solved) -> None:
        """Learns from the solution of a program that holds all selections which are cheaper than the present one."""
        self._bound(self.result.cost_ms if solved.is_finished else solved.bound_ms)

    def _bound(self, bound_ms: float) -> None:
        cost_ms = self.result.cost_ms
        self.result = dataclasses.replace(self.result, bound_ms=min(max(bound_ms, self.result.bound_ms), cost_ms))

    def _left(self) -> float:
        return self._deadline - time.monotonic()


def _neighbours(choices: Choices) -> dict[int, set[int]]:
    """Returns the classes that terms of a class read, or that are read with it, by class."""
    found: dict[int, set[int]] = defaultdict(set)
    for number, members in choices.members.items():
        for term in members:
            for needed in choices.needs[term]:
                found[number].add(needed)
                found[needed].add(number)
            found[number].update(choices.terms[term].results)
    return found


def _region(choices: Choices, neighbours: dict[int, set[int]], seed: int, size: int) -> set[int]:
    """Returns some terms of the classes around a class, the nearest first."""
    found: set[int] = set()
    seen, pending = {seed}, deque([seed])
    while pending and len(found) < size:
        number = pending.popleft()
        found.update(choices.members.get(number, ()))
        new = neighbours[number] - seen
        seen |= new
        pending += sorted(new)
    return found
