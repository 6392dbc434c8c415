"""The integer program of extraction.

It has a variable x for each term, 1 if it is chosen, and a variable y for each class, 1 if it is needed. It minimises
the prices of the chosen terms, less what fusions save, so that

- the classes of the outputs are needed, and a class that is needed has a chosen term;
- of the terms of one class, those that read another class together at most need it once: their x sum to at most its y;
- a fusion happens only if its term and one of its producers are chosen, and no other term that reads the operand.

A class needs at least what it needs whatever is chosen (`controller.saturation.dominators`), which the linear program
does not see by itself. Terms that need each other in a circle are cut off when a solution has them. The second
constraint, which is stronger than one for each term, makes the difference to the published program, as does the absence
of variables for an order.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from controller.saturation.choices import Choices, Fusion
from controller.saturation.dominators import Dominators
from controller.saturation.selection import Selection, needed_of

RELATIVE_GAP = 1e-7
"""How far from the cheapest a selection may be that counts as it."""


@dataclasses.dataclass(frozen=True)
class Solved:
    """What a solver found.

    Attributes:
      selection: the best selection; None if none was found.
      bound_ms: no selection costs less.
      is_finished: whether the selection is the cheapest.
    """

    selection: Selection | None
    bound_ms: float
    is_finished: bool


def solve(choices: Choices, seconds: float) -> Solved:
    """Returns the cheapest selection, or the best that HiGHS finds in `seconds`."""
    start, program, bound = time.monotonic(), _Program(choices), 0.0
    while (left := seconds - (time.monotonic() - start)) > 0:
        found = program.solution(left)
        if found.mip_dual_bound is not None and np.isfinite(found.mip_dual_bound):
            bound = max(bound, float(found.mip_dual_bound))
        if found.x is None:
            break
        chosen = {number: term for number, terms in choices.members.items() for term in terms if found.x[term] > 0.5}
        cycles = list(_cycles(choices, chosen))
        if not cycles:
            return Solved(needed_of(choices, chosen), bound, found.status == 0)
        for cycle in cycles:
            program.at_most(len(cycle) - 1, dict.fromkeys(cycle, 1.0))
    return Solved(None, bound, False)


class _Program:
    """The integer program: columns are terms, then classes, then fusions."""

    def __init__(self, choices: Choices) -> None:
        terms, classes = len(choices.terms), {number: at for at, number in enumerate(choices.members)}
        self._first_class, self._classes = terms, classes
        self.size = terms + len(classes) + len(choices.fusions)
        self.costs = np.zeros(self.size)
        self.costs[:terms] = choices.prices_ms
        self.integrality = np.zeros(self.size)
        self.integrality[:terms] = 1
        self.least = np.zeros(self.size)
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.most: list[float] = []
        readers: dict[int, set[int]] = defaultdict(set)
        for term, needed in enumerate(choices.needs):
            if any(number not in classes for number in needed):
                self.at_most(0, {term: 1.0})  # nothing computes what it needs
            for number in needed:
                readers[number].add(term)
        dominators = Dominators(choices)
        for root in choices.roots:
            for number in dominators.of(root):
                self.least[self._column(number)] = 1
        for number, always in dominators.pairs():
            if not self.least[self._column(always)]:
                self.at_most(0, {self._column(number): 1.0, self._column(always): -1.0})
        for number, members in choices.members.items():
            self.at_most(0, {self._column(number): 1.0, **dict.fromkeys(members, -1.0)})
            self._need(choices, number, members)
        fused: dict[int, list[tuple[int, Fusion]]] = defaultdict(list)
        for at, fusion in enumerate(choices.fusions, terms + len(classes)):
            self.costs[at] = -fusion.saving_ms
            fused[fusion.operand].append((at, fusion))
        for number, fusions in fused.items():
            producers = {term for _, fusion in fusions for term in fusion.producers}
            self.at_most(0, {**dict.fromkeys((at for at, _ in fusions), 1.0), **dict.fromkeys(producers, -1.0)})
            for together in _of_one_class(choices, readers[number]):
                others = [at for at, fusion in fusions if fusion.term not in together]
                self.at_most(0, {self._column(number): -1.0, **dict.fromkeys([*others, *together], 1.0)})
            for at, fusion in fusions:
                if len(fusion.producers) < len(producers):
                    self.at_most(0, {at: 1.0, **dict.fromkeys(fusion.producers, -1.0)})
        for term, fusions_of_term in _by_term(choices, terms + len(classes)).items():
            self.at_most(0, {term: -1.0, **dict.fromkeys(fusions_of_term, 1.0)})
        self._cut_pairs(choices)

    def solution(self, seconds: float) -> Any:
        """Returns HiGHS's answer."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        matrix = csr_array((self.values, (self.rows, self.columns)), shape=(len(self.most), self.size))
        return milp(
            self.costs,
            integrality=self.integrality,
            bounds=Bounds(self.least, np.ones(self.size)),
            constraints=LinearConstraint(matrix, -np.inf, np.array(self.most)),
            options={"time_limit": seconds, "mip_rel_gap": RELATIVE_GAP},
        )

    def at_most(self, bound: float, factors: dict[int, float]) -> None:
        """Adds the constraint that the sum of factors times variables is at most a bound."""
        self.rows += [len(self.most)] * len(factors)
        self.columns += factors
        self.values += factors.values()
        self.most.append(bound)

    def _column(self, number: int) -> int:
        return self._first_class + self._classes[number]

    def _need(self, choices: Choices, number: int, members: list[int]) -> None:
        """Adds that a class has one chosen term of those that compute nothing else, and what its terms need."""
        single = [term for term in members if len(choices.terms[term].results) == 1]
        self.at_most(0, {self._column(number): -1.0, **dict.fromkeys(single, 1.0)})
        reading: dict[int, list[int]] = defaultdict(list)
        for term in members:
            for needed in choices.needs[term]:
                if needed not in self._classes:
                    continue
                if term in single:
                    reading[needed].append(term)
                elif number == choices.terms[term].results[0]:
                    self.at_most(0, {term: 1.0, self._column(needed): -1.0})
        for needed, terms in reading.items():
            self.at_most(0, {self._column(needed): -1.0, **dict.fromkeys(terms, 1.0)})

    def _cut_pairs(self, choices: Choices) -> None:
        """Cuts off circles of two classes: of the terms that read each other's class, at most one is chosen."""
        reading: dict[tuple[int, int], list[int]] = defaultdict(list)
        for term, needed in enumerate(choices.needs):
            if len(choices.terms[term].results) == 1:
                for number in needed:
                    reading[choices.terms[term].results[0], number].append(term)
        for (one, other), terms in reading.items():
            if one < other and (back := reading.get((other, one))):
                self.at_most(1, dict.fromkeys([*terms, *back], 1.0))


def _by_term(choices: Choices, first: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for at, fusion in enumerate(choices.fusions, first):
        found[fusion.term].append(at)
    return found


def _of_one_class(choices: Choices, terms: Iterable[int]) -> Iterator[list[int]]:
    """Yields terms in groups of which at most one is chosen."""
    groups: dict[int, list[int]] = defaultdict(list)
    for term in terms:
        results = choices.terms[term].results
        if len(results) == 1:
            groups[results[0]].append(term)
        else:
            yield [term]
    yield from groups.values()


def _cycles(choices: Choices, chosen: Selection) -> Iterator[list[int]]:
    """Yields circles of chosen terms that need each other, no two of which share a term."""
    state: dict[int, int] = {}  # by class: 1 while it is on the way, 2 when it is done
    for root in choices.roots:
        way: list[tuple[int, Iterator[int]]] = []
        if root not in state:
            state[root] = 1
            way.append((root, iter(choices.needs[chosen[root]])))
        while way:
            number, following = way[-1]
            needed = next(following, None)
            if needed is None:
                state[number] = 2
                way.pop()
            elif needed not in state:
                state[needed] = 1
                way.append((needed, iter(choices.needs[chosen[needed]])))
            elif state[needed] == 1:
                on_way = [each for each, _ in way]
                yield list(dict.fromkeys(chosen[each] for each in on_way[on_way.index(needed) :]))
