"""The integer program of extraction.

It has a variable x for each term, 1 if it is chosen, a variable y for each class, 1 if it is needed, and a variable z
for each class and each of its terms, 1 if the class is taken from this term; z is x where a term computes one class
only. It minimises the prices of the chosen terms, less what fusions save, so that

- the classes of the outputs are needed, and a class that is needed is taken from one term, which is chosen;
- if a class is taken from a term that reads another class, that one is needed. Of the terms of one class, those that
  read another class together at most need it once: their z sum to at most its y;
- a fusion happens only if its term and one of its producers are chosen, and no other term that reads the operand.

A class needs at least what it needs whatever is chosen (`controller.saturation.dominators`), which the linear program
does not see by itself. Classes that are taken from each other in a circle are cut off: at least one of the circle is
taken from outside, if one of it is needed. Circles of two classes are cut off beforehand, longer ones when a solution
has them. The second constraint and the cuts, which hold for all terms of a class together, make the difference to the
published program, as does the absence of variables for an order.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from controller.saturation.choices import Choices, Fusion
from controller.saturation.dominators import Dominators
from controller.saturation.selection import Selection, needed_of
from environment.foreign_output import discarded

RELATIVE_GAP = 1e-7
"""How far from the cheapest a selection may be that counts as it."""
SMALLEST = 1e-6
"""What a variable of a linear program is at least that is not zero."""


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


@dataclasses.dataclass(frozen=True)
class Relaxed:
    """What the linear program of a problem says.

    Attributes:
      bound_ms: no selection costs less.
      support: the terms that it chooses at least in part.
      with_term_ms: by term, no selection that holds it costs less.
    """

    bound_ms: float
    support: set[int]
    with_term_ms: np.ndarray


def solve(choices: Choices, seconds: float) -> Solved:
    """Returns the cheapest selection, or the best that HiGHS finds in `seconds`."""
    start, program, bound = time.monotonic(), _Program(choices), 0.0
    while (left := seconds - (time.monotonic() - start)) > 0:
        found = program.solution(left)
        if found.mip_dual_bound is not None and np.isfinite(found.mip_dual_bound):
            bound = max(bound, float(found.mip_dual_bound))
        if found.x is None:
            break
        chosen = program.selection(found.x)
        cycles = list(_cycles(choices, chosen))
        if not cycles:
            return Solved(needed_of(choices, chosen), bound, found.status == 0)
        for cycle in cycles:
            program.cut(cycle)
    return Solved(None, bound, False)


def relax(choices: Choices, seconds: float) -> Relaxed | None:
    """Returns what the linear program says; None if it is not solved in `seconds`."""
    start, program = time.monotonic(), _Program(choices)
    left = seconds - (time.monotonic() - start)
    found = program.relaxation(left) if left > 0 else None
    if found is None or found.status != 0:
        return None
    terms = slice(len(choices.terms))
    support = set(np.flatnonzero(found.x[terms] > SMALLEST).tolist())
    return Relaxed(float(found.fun), support, found.fun + found.lower.marginals[terms])


class _Program:
    """The integer program: columns are terms, then what classes are taken from, then classes, then fusions."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        columns = itertools.count(len(choices.terms))
        self._taken = {
            (number, term): term if len(choices.terms[term].results) == 1 else next(columns)
            for number, members in choices.members.items()
            for term in members
        }
        self._needed = {number: next(columns) for number in choices.members}
        self._fused = [next(columns) for _ in choices.fusions]
        self._size = next(columns)
        self._costs = np.zeros(self._size)
        self._costs[: len(choices.terms)] = choices.prices_ms
        self._costs[self._fused] = [-fusion.saving_ms for fusion in choices.fusions]
        self._integrality = np.ones(self._size)
        self._integrality[[*self._needed.values(), *self._fused]] = 0
        self._least, self._most = np.zeros(self._size), np.ones(self._size)
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._bounds: list[float] = []
        self._reading: dict[tuple[int, int], list[int]] = defaultdict(list)
        """By a class and another one, the columns of taking the first from terms that read the second."""
        self._need()
        self._fuse()
        for one, other in list(self._reading):
            if one < other and (other, one) in self._reading:
                self.cut([one, other])
                self.cut([other, one])

    def solution(self, seconds: float) -> Any:
        """Returns HiGHS's answer."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        with discarded(1):  # HiGHS prints notes of its own there when its time is up
            return milp(
                self._costs,
                integrality=self._integrality,
                bounds=Bounds(self._least, self._most),
                constraints=LinearConstraint(self._matrix(), -np.inf, np.array(self._bounds)),
                options={"time_limit": seconds, "mip_rel_gap": RELATIVE_GAP},
            )

    def relaxation(self, seconds: float) -> Any:
        """Returns HiGHS's answer if every variable may be anything from 0 to 1."""
        from scipy.optimize import linprog

        return linprog(
            self._costs,
            A_ub=self._matrix(),
            b_ub=np.array(self._bounds),
            bounds=np.stack([self._least, self._most], axis=1),
            method="highs-ds",
            options={"time_limit": seconds},
        )

    def selection(self, values: np.ndarray) -> Selection:
        """Returns the terms that classes are taken from in a solution."""
        return {number: term for (number, term), column in self._taken.items() if values[column] > 0.5}

    def cut(self, circle: Sequence[int]) -> None:
        """Cuts off that each class of a circle is taken from a term that reads the next one.

        If the first class is needed, one class of those that are needed is taken from another term.
        """
        factors: dict[int, float] = defaultdict(float)
        for number, following in zip(circle, (*circle[1:], circle[0]), strict=True):
            for column in self._reading[number, following]:
                factors[column] += 1
        for number in circle[1:]:
            factors[self._needed[number]] -= 1
        self._at_most(0, factors)

    def _at_most(self, bound: float, factors: Mapping[int, float]) -> None:
        """Adds the constraint that the sum of factors times variables is at most a bound."""
        self._rows += [len(self._bounds)] * len(factors)
        self._columns += factors
        self._values += factors.values()
        self._bounds.append(bound)

    def _matrix(self) -> Any:
        from scipy.sparse import csr_array

        return csr_array((self._values, (self._rows, self._columns)), shape=(len(self._bounds), self._size))

    def _need(self) -> None:
        """Adds what classes are taken from, and what that needs."""
        choices = self._choices
        for term, needed in enumerate(choices.needs):
            if any(number not in self._needed for number in needed):
                self._most[term] = 0  # nothing computes what it needs
        dominators = Dominators(choices)
        for root in choices.roots:
            for number in dominators.of(root):
                self._least[self._needed[number]] = 1
        for number, always in dominators.pairs():
            if not self._least[self._needed[always]]:
                self._at_most(0, {self._needed[number]: 1.0, self._needed[always]: -1.0})
        for number, members in choices.members.items():
            taken = [self._taken[number, term] for term in members]
            self._at_most(0, {self._needed[number]: 1.0, **dict.fromkeys(taken, -1.0)})
            self._at_most(0, {self._needed[number]: -1.0, **dict.fromkeys(taken, 1.0)})
            for term, column in zip(members, taken, strict=True):
                if column != term:
                    self._at_most(0, {column: 1.0, term: -1.0})
                for operand in choices.needs[term]:
                    if operand in self._needed:
                        self._reading[number, operand].append(column)
        for (_, operand), columns in self._reading.items():
            self._at_most(0, {self._needed[operand]: -1.0, **dict.fromkeys(columns, 1.0)})

    def _fuse(self) -> None:
        """Adds when a fusion happens."""
        choices = self._choices
        readers: dict[int, set[int]] = defaultdict(set)
        for term, needed in enumerate(choices.needs):
            for number in needed:
                readers[number].add(term)
        of_operand: dict[int, list[tuple[int, Fusion]]] = defaultdict(list)
        of_term: dict[int, list[int]] = defaultdict(list)
        for column, fusion in zip(self._fused, choices.fusions, strict=True):
            of_operand[fusion.operand].append((column, fusion))
            of_term[fusion.term].append(column)
        for number, fusions in of_operand.items():
            producers = {term for _, fusion in fusions for term in fusion.producers}
            self._produced(number, [column for column, _ in fusions], producers)
            for column, fusion in fusions:
                if len(fusion.producers) < len(producers):
                    self._produced(number, [column], fusion.producers)
            for together in _of_one_class(choices, readers[number]):
                others = [column for column, fusion in fusions if fusion.term not in together]
                self._at_most(0, {self._needed[number]: -1.0, **dict.fromkeys([*others, *together], 1.0)})
        for term, columns in of_term.items():
            self._at_most(0, {term: -1.0, **dict.fromkeys(columns, 1.0)})

    def _produced(self, number: int, fusions: Sequence[int], producers: Iterable[int]) -> None:
        """Adds that a class is taken from one of its producers if one of some fusions happens."""
        taken = [self._taken[number, term] for term in producers]
        self._at_most(0, {**dict.fromkeys(fusions, 1.0), **dict.fromkeys(taken, -1.0)})


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
    """Yields circles of classes that are taken from terms that read the next one, no two of which share a class."""
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
                yield on_way[on_way.index(needed) :]
