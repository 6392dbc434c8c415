"""Extraction: the cheapest graph of an e-graph, or a cheap one.

A problem that is small enough is solved as a whole by integer programming (`controller.saturation.program`), which also
says what no graph costs less than. If it is too large, parts of it are: a selection is improved where a region of
classes, one after another, may change while everything else stays.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import defaultdict, deque
from collections.abc import Callable

from controller.saturation.choices import Choices, restricted
from controller.saturation.program import RELATIVE_GAP, solve
from controller.saturation.selection import Selection, cost_of

WHOLE = 3_000
"""The most terms of a problem that is given to the solver as a whole first."""
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
    start = time.monotonic()
    best, bound = min(((cost_of(choices, first), first) for first in firsts), key=lambda pair: pair[0]), 0.0

    def offer(selection: Selection) -> None:
        nonlocal best
        cost = cost_of(choices, selection)
        if cost < best[0] * (1 - RELATIVE_GAP):
            best = cost, selection
            if on_cost is not None:
                on_cost(cost)

    if seconds and len(choices.terms) <= WHOLE:
        solved = solve(choices, seconds / 2)
        bound = solved.bound_ms
        if solved.selection is not None:
            offer(solved.selection)
        if solved.is_finished:
            return Extracted(best[1], best[0], best[0])
    _improve(choices, lambda: best[1], offer, lambda: seconds - (time.monotonic() - start))
    return Extracted(best[1], best[0], min(bound, best[0]))


def _improve(
    choices: Choices, present: Callable[[], Selection], offer: Callable[[Selection], None], left: Callable[[], float]
) -> None:
    """Lets regions of a selection change, one after another, until the time is up or none of them can be improved."""
    neighbours = _neighbours(choices)
    size, idle = REGION, 0
    for turn in itertools.count():
        selection = present()
        places = list(selection)
        if left() <= 0 or idle > len(places):
            return
        seed = places[turn * STRIDE % len(places)]
        region = _region(choices, neighbours, seed, size)
        part, kept = restricted(choices, region.union(selection.values()))
        began = left()
        solved = solve(part, min(REGION_SECONDS, began))
        taken = began - left()
        if solved.selection is not None:
            offer({number: kept[term] for number, term in solved.selection.items()})
        idle = 0 if present() is not selection else idle + 1
        if not solved.is_finished:
            size = max(size // 2, 50)
        elif taken < REGION_SECONDS / 5 and len(region) >= size:
            size += size // 4


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
