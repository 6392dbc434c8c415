"""Rules of the rule language as patterns of the e-graph: what a rule's source looks like, without its conditions.

A pattern names operators, operands and results. What attributes, types and contents it demands is not translated: the
engine is asked (`controller.saturation.oracle`), so that both accept the same matches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.saturation.vocabulary import Operator
from taso_ext.verify.rule_reader import RuleText, Statement, Term

MOST_ELEMENTS = 8
"""The longest list of operands or results of one operator that a rule on lists is translated for."""


class InexpressibleError(ValueError):
    """A rule has no pattern; the message says why."""


@dataclass(frozen=True)
class Found:
    """One operator of a pattern.

    Attributes:
      operator: the operator.
      operands: names of tensors.
      results: names of tensors.
      kept: whether the rewrite keeps it (`given`).
    """

    operator: Operator
    operands: tuple[str, ...]
    results: tuple[str, ...]
    kept: bool


@dataclass(frozen=True)
class Pattern:
    """The source of a rule, for one choice of its operators and of the lengths of its lists.

    Attributes:
      rule: index of the rule.
      operators: what has to be there, every operator once, producers first.
      leaves: names of the tensors that it reads and does not compute.
      weights: those of them that have to be computed from weights alone.
      roots: names of the results that the target computes in another way.
    """

    rule: int
    operators: tuple[Found, ...]
    leaves: tuple[str, ...]
    weights: frozenset[str]
    roots: tuple[str, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The names of all tensors that it computes."""
        return tuple(name for found in self.operators for name in found.results)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of all its tensors: what it reads, and then what it computes."""
        return (*self.leaves, *self.results)

    @property
    def is_multiple(self) -> bool:
        """Whether it has several roots: a multi-pattern."""
        return len(self.roots) > 1


@dataclass(frozen=True)
class Family:
    """The source of a rule on operators that nothing bounds in number, such as all products of one tensor.

    Attributes:
      rule: index of the rule.
      text: the rule.
      operators: by an operator variable, the operator that is chosen for it.
    """

    rule: int
    text: RuleText = field(compare=False)
    operators: tuple[tuple[str, str], ...]

    @property
    def least(self) -> int:
        """The fewest elements that the rule takes."""
        return self.text.least

    @cached_property
    def member(self) -> Pattern:
        """The pattern of one element."""
        return self.of_length(1)

    def of_length(self, length: int) -> Pattern:
        """Returns the pattern for so many elements."""
        return _pattern(self.rule, self.text, dict(self.operators), dict.fromkeys(self._listed.values(), length))

    def is_listed(self, name: str) -> bool:
        """Returns whether a tensor of `member` is of that element alone, and not shared by all."""
        return name in self._listed

    def in_element(self, name: str, element: int) -> str:
        """Returns the name that a tensor of `member` has in an element of a longer list."""
        return _element_name(self._listed[name], element) if name in self._listed else name

    @cached_property
    def _listed(self) -> dict[str, str]:
        """The names of the list, by those that they have in `member`."""
        return {_element_name(name, 0): name for name in _lists(self.text)[0]}


def families_of(number: int, rule: RuleText, present: Mapping[str, set[tuple[int, int]]]) -> Iterator[Family]:
    """Yields the families of a rule of which an e-graph could hold a member; for the arguments see `patterns_of`."""
    if not _is_family(rule):
        return
    for chosen in _choices(rule):
        family = Family(number, rule, tuple(chosen.items()))
        if all(_occurs(found.operator, present) for found in family.member.operators):
            yield family


def _is_family(rule: RuleText) -> bool:
    """Returns whether a rule is about two operators or more that nothing bounds in number, and about no other list."""
    lists = _lists(rule)
    return rule.least > 1 and len(lists) == 1 and not _holders(rule, lists[0])


def _choices(rule: RuleText) -> Iterator[dict[str, str]]:
    """Yields the choices of operators for the operator variables of a rule."""
    for chosen in itertools.product(*([(name, op) for op in ops] for name, ops in rule.operators.items())):
        yield dict(chosen)


def patterns_of(number: int, rule: RuleText, present: Mapping[str, set[tuple[int, int]]]) -> Iterator[Pattern]:
    """Yields the patterns of a rule that operators of an e-graph could match; none if the rule makes families.

    Lists of operands or of results have all lengths that occur, up to `MOST_ELEMENTS`. Of a list of operators that
    nothing bounds, one is rewritten after the other if the rule takes one alone.

    Args:
      number: index of the rule.
      rule: the rule.
      present: by an operator's dotted name, the numbers of operands and results with which it occurs.
    Raises:
      InexpressibleError: the rule cannot be translated.
    """
    if _is_family(rule):
        return
    lists = _lists(rule)
    for operators in _choices(rule):
        for lengths in _lengths(rule, lists):
            pattern = _pattern(number, rule, operators, lengths)
            if all(_occurs(found.operator, present) for found in pattern.operators):
                yield pattern


def _occurs(operator: Operator, present: Mapping[str, set[tuple[int, int]]]) -> bool:
    return (operator.num_inputs, operator.num_outputs) in present.get(operator.dotted, ())


def _lists(rule: RuleText) -> list[frozenset[str]]:
    """Returns the starred names of a rule's source, those together that have one length."""
    groups: list[set[str]] = []
    for statement in rule.source:
        starred = set().union(*_starred(statement))
        # Operands and results of one operator have lengths of their own; those of a list of operators have one.
        parts = [starred] if statement.mapped else [{name} for name in starred]
        for part in (part for part in parts if part):
            merged = part.union(*(group for group in groups if group & part))
            groups = [group for group in groups if not group & part] + [merged]
    return [frozenset(group) for group in groups]


def _lengths(rule: RuleText, lists: list[frozenset[str]]) -> Iterator[dict[str, int]]:
    """Yields the lengths of all lists by their names; of two lists that share the operands of an operator, one may be
    empty."""
    choices: list[Sequence[int]] = []
    for members in lists:
        holders = _holders(rule, members)
        least = 0 if any(len(names) > 1 for names in holders) else rule.least
        choices.append(range(least, MOST_ELEMENTS + 1) if holders else [rule.least])
    for chosen in itertools.product(*choices):
        yield {name: length for members, length in zip(lists, chosen, strict=True) for name in members}


def _holders(rule: RuleText, members: frozenset[str]) -> list[set[str]]:
    """Returns the lists of operands or results of single operators that some starred names are in."""
    statements = (statement for statement in rule.source if not statement.mapped)
    return [names for statement in statements for names in _starred(statement) if names & members]


def _starred(statement: Statement) -> tuple[set[str], set[str]]:
    """Returns the starred names among the operands of a statement, and among its results."""
    operands, results = ({term.name for term in of if term.starred} for of in (statement.arguments, statement.results))
    return operands, results


def _pattern(number: int, rule: RuleText, operators: Mapping[str, str], lengths: Mapping[str, int]) -> Pattern:
    found: list[Found] = []
    for statement in rule.source:
        for element in _elements(statement, lengths):
            operands = _names(statement.arguments, lengths, element)
            results = _names(statement.results, lengths, element)
            domain, _, op_type = operators.get(statement.op, statement.op).rpartition(".")
            found.append(
                Found(Operator(domain, op_type, len(operands), len(results)), operands, results, statement.kept)
            )
    made = {name for each in found for name in each.results}
    leaves = dict.fromkeys(name for each in found for name in each.operands if name not in made)
    roots = tuple(name for term in rule.outputs for name in _names((term,), lengths, None))
    variables = {name: {*_names((each.term,), lengths, None)} for name, each in rule.variables.items()}
    unread = [name for name, tensors in variables.items() if not leaves.keys() >= tensors]
    if unread:
        raise InexpressibleError(f"no operator of its source reads {', '.join(unread)}")
    weights = {tensor for name, each in rule.variables.items() if each.origin == "weight" for tensor in variables[name]}
    return Pattern(number, tuple(_producers_first(found)), tuple(leaves), frozenset(weights), roots)


def _producers_first(found: list[Found]) -> Iterator[Found]:
    """Yields the operators of a pattern, each behind those whose results it reads."""
    pending = list(found)
    while pending:
        awaited = {name for each in pending for name in each.results}
        ready = [each for each in pending if not awaited.intersection(each.operands)]
        yield from ready
        pending = [each for each in pending if each not in ready]


def _elements(statement: Statement, lengths: Mapping[str, int]) -> Sequence[int | None]:
    """Returns the elements for each of which a statement stands for one operator; None stands for no list."""
    if not statement.mapped:
        return [None]
    return range(next(lengths[term.name] for term in statement.results if term.starred))


def _names(terms: tuple[Term, ...], lengths: Mapping[str, int], element: int | None) -> tuple[str, ...]:
    """Returns the tensors that terms stand for; of starred ones the one at `element`, or all if that is None."""
    names: list[str] = []
    for term in terms:
        if not term.starred:
            names.append(term.name)
        elif element is not None:
            names.append(_element_name(term.name, element))
        else:
            names += [_element_name(term.name, at) for at in range(lengths[term.name])]
    return tuple(names)


def _element_name(name: str, element: int) -> str:
    """Returns the name of a tensor of a list."""
    return f"{name}_{element}"
