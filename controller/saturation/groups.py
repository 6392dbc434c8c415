"""Rules on operators that nothing bounds in number, such as all products of one tensor, on whole groups of them.

A pattern of fixed length would match every order of every part of a group: 336 triples of eight products. So what one
member of a group looks like is looked for in the e-graph, and the groups are put together here.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller.saturation.commands import actions_of, facts_of, kinds_of, variable
from controller.saturation.egraph import Classes, Program, Term, first_terms
from controller.saturation.oracle import Oracle
from controller.saturation.patterns import Family, Pattern
from controller.saturation.vocabulary import ABSENT
from taso_ext import Graph

MOST_MEMBERS = 31
"""The most members of a group: the proofs of shipped rules on lists hold for so many elements."""
_LOOK = "look-for-members"
_Operands = tuple[int, ...]
"""Classes of tensors."""


class _Match(NamedTuple):
    """A pattern in the e-graph: the class of each of its tensors, by name, and the settings of its operators."""

    pattern: Pattern
    classes: Mapping[str, int]
    settings: Sequence[int]


class Groups:
    """The groups of an e-graph, and the rules that are carried out on them."""

    def __init__(self, program: Program, oracle: Oracle) -> None:
        self._program, self._oracle = program, oracle
        self._members: dict[Family, str] = {}  # by family, the relation of its members
        self._rounds = itertools.count()
        program.run(f"(ruleset {_LOOK})")

    def add(self, family: Family) -> None:
        """Adds the rule that notes the members of groups, if the family is new."""
        if family in self._members:
            return
        name = self._members[family] = f"members{len(self._members)}"
        pattern = family.member
        settings = [f"s{number}" for number in range(len(pattern.operators))]
        sorts = ["Tensor"] * len(pattern.tensors) + ["i64"] * len(settings)
        body, note = [*facts_of(pattern), *kinds_of(pattern)], [name, *map(variable, pattern.tensors), *settings]
        self._program.run(
            f"(relation {name} ({' '.join(sorts)}))",
            f'(rule ({" ".join(body)}) (({" ".join(note)})) :ruleset {_LOOK} :name "{name}")',
        )

    def carry_out(self, deadline: float) -> None:
        """Carries out each rule on all groups that there are, until a time of the monotonic clock."""
        program = self._program
        program.run(f"(run {_LOOK} 1)")
        classes = program.classes({name: len(family.member.tensors) for family, name in self._members.items()})
        origins = _Origins(program.graph, classes)
        rules = f"groups{next(self._rounds)}"
        commands = [f"(ruleset {rules})"]
        for match in self._matches(classes, origins):
            if time.monotonic() > deadline:
                break
            if actions := self._actions(match, classes):
                lets = origins.lets({variable(tensor): number for tensor, number in match.classes.items()})
                label = f"{rules}-{len(commands)}"
                commands.append(f'(rule () ({" ".join([*lets, *actions])}) :ruleset {rules} :name "{label}")')
        program.run(*commands, f"(run {rules} 1)")

    def _matches(self, classes: Classes, origins: _Origins) -> Iterator[_Match]:
        """Yields the groups: members with the same settings and shared operands. Of members that read the same, one."""
        for family, name in self._members.items():
            pattern = family.member
            groups: dict[_Operands, dict[_Operands, _Match]] = defaultdict(dict)
            for row in classes.rows[name]:
                member = _Match(pattern, dict(zip(pattern.tensors, row, strict=False)), row[len(pattern.tensors) :])
                group = groups[(*_operands(family, member, listed=False), *member.settings)]
                group.setdefault(_operands(family, member, listed=True), member)
            for group in groups.values():
                for part in _parts(family, list(group.values()), origins):
                    yield _joined(family, part)

    def _actions(self, match: _Match, classes: Classes) -> list[str]:
        """Returns the actions of the rewrite of a whole group; none if the engine refuses it."""
        kinds = [classes.kinds[match.classes[name]] for name in match.pattern.tensors]
        answer = self._oracle.answer(match.pattern, match.settings, kinds)
        if answer is None:
            return []
        self._program.run(*self._program.declare([made.operator for made in answer.template.operators]))
        return list(actions_of(match.pattern, answer.template, answer.settings, answer.kinds))


def _operands(family: Family, match: _Match, *, listed: bool) -> _Operands:
    """Returns the classes of what a member reads for itself, or else of what all members read."""
    return tuple(match.classes[name] for name in match.pattern.leaves if family.is_listed(name) == listed)


def _parts(family: Family, group: Sequence[_Match], origins: _Origins) -> Iterator[Sequence[_Match]]:
    """Yields parts of a group that can be joined: no member needs another's result, as in a recurrent network.

    Groups whose members read the same operands have them in the same order, so that these are joined once.
    """
    parts: list[list[_Match]] = []

    def reads(reader: _Match, other: _Match) -> bool:
        read = _operands(family, reader, listed=True)
        return any(origins.needs(operand, other.classes[root]) for operand in read for root in other.pattern.roots)

    def order(member: _Match) -> list[tuple[int, int]]:
        return [origins.order(number) for number in _operands(family, member, listed=True)]

    for member in sorted(group, key=order):
        shared = _operands(family, member, listed=False)
        if any(origins.needs(operand, member.classes[root]) for operand in shared for root in member.pattern.roots):
            continue
        for part in parts:
            if not any(reads(member, other) or reads(other, member) for other in part):
                part.append(member)
                break
        else:
            parts.append([member])
    for part in parts:
        for begin in range(0, len(part), MOST_MEMBERS):
            if len(chosen := part[begin : begin + MOST_MEMBERS]) >= family.least:
                yield chosen


def _joined(family: Family, members: Sequence[_Match]) -> _Match:
    """Returns members as one match of the pattern of their number."""
    pattern = family.of_length(len(members))
    classes: dict[str, int] = {}
    settings: dict[tuple[str, ...], int] = {}
    for element, member in enumerate(members):
        classes |= {family.in_element(name, element): number for name, number in member.classes.items()}
        for found, setting in zip(member.pattern.operators, member.settings, strict=True):
            settings[tuple(family.in_element(name, element) for name in found.results)] = setting
    return _Match(
        pattern,
        {name: classes[name] for name in pattern.tensors},
        [settings[each.results] for each in pattern.operators],
    )


class _Origins:
    """For each class the simplest of what computes it: a value of the start graph, or the first term to be reached."""

    def __init__(self, graph: Graph, classes: Classes) -> None:
        self._values: dict[int, int] = {}
        for value in sorted(classes.values, reverse=True):
            self._values[classes.values[value]] = value
        self._before: dict[int, int] = {}  # by class, the bits of all classes that it needs, and its own
        made = {result for node in graph.nodes() for result in node.outputs}
        for value, number in classes.values.items():
            if value not in made:
                self._add((), (number,))
        for node in graph.nodes():
            operands = [classes.values[operand] for operand in node.inputs if operand != ABSENT]
            self._add(operands, [classes.values[result] for result in node.outputs])
        self._terms = first_terms(classes.terms, self._before)
        for number, term in self._terms.items():
            self._add([operand for operand in term.operands if operand != ABSENT], [number])

    def _add(self, operands: Iterable[int], results: Iterable[int]) -> None:
        needed = 0
        for operand in operands:
            needed |= self._before[operand]
        for result in results:
            self._before.setdefault(result, needed | 1 << result)

    def order(self, number: int) -> tuple[int, int]:
        """Returns what sorts classes: those of the start graph first, in its order."""
        return (0, self._values[number]) if number in self._values else (1, number)

    def needs(self, number: int, other: int) -> bool:
        """Returns whether a class is computed from another one, or is that class."""
        return bool(self._before[number] >> other & 1)

    def lets(self, variables: Mapping[str, int]) -> list[str]:
        """Returns actions that give variables the classes that are named by numbers."""
        lines: dict[int, str] = {}
        pending = list(reversed(list(variables.values())))
        while pending:
            number = pending[-1]
            term = self._terms.get(number)
            missing = [each for each in term.operands if each != ABSENT and each not in lines] if term else []
            if missing:
                pending += missing
                continue
            lines.setdefault(number, f"(let c{number} {self._expression(number, term)})")
            pending.pop()
        return [*lines.values(), *(f"(let {name} c{number})" for name, number in variables.items())]

    def _expression(self, number: int, term: Term | None) -> str:
        if term is None:
            return f"(Value {self._values[number]})"
        operands = ("(Value -1)" if operand == ABSENT else f"c{operand}" for operand in term.operands)
        whole = f"({term.operator.constructor} {term.settings} {' '.join(operands)})"
        return whole if term.operator.num_outputs == 1 else f"(Result {term.results.index(number)} {whole})"
