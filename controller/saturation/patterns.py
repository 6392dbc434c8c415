"""Rules of the rule language as patterns of the e-graph: what a rule's source looks like, without its conditions.

A pattern names operators, operands and results. What attributes, types and contents it demands is not translated: the
engine is asked (`controller.saturation.oracle`), so that both accept the same matches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    def is_multiple(self) -> bool:
        """Whether it has several roots: a multi-pattern."""
        return len(self.roots) > 1


def patterns_of(number: int, rule: RuleText, present: Mapping[str, set[tuple[int, int]]]) -> Iterator[Pattern]:
    """Yields the patterns of a rule that operators of an e-graph could match.

    Lists of operands or of results have all lengths that occur, up to `MOST_ELEMENTS`. A list of operators that nothing
    bounds, such as all that read one tensor, has the fewest elements that the rule takes: longer ones follow by
    repetition.

    Args:
      number: index of the rule.
      rule: the rule.
      present: by an operator's dotted name, the numbers of operands and results with which it occurs.
    Raises:
      InexpressibleError: the rule cannot be translated.
    """
    lists = _lists(rule)
    for chosen in itertools.product(*([(name, op) for op in ops] for name, ops in rule.operators.items())):
        operators = dict(chosen)
        for lengths in _lengths(rule, lists, operators, present):
            pattern = _pattern(number, rule, operators, lengths)
            if all(_occurs(found.operator, present) for found in pattern.operators):
                yield pattern


def _occurs(operator: Operator, present: Mapping[str, set[tuple[int, int]]]) -> bool:
    return (operator.num_inputs, operator.num_outputs) in present.get(operator.dotted, ())


def _lists(rule: RuleText) -> list[frozenset[str]]:
    """Returns the starred names of a rule's source, those together that have one length."""
    groups: list[set[str]] = []
    for statement in rule.source:
        starred = {term.name for term in (*statement.results, *statement.arguments) if term.starred}
        # Operands and results of one operator have lengths of their own; those of a list of operators have one.
        parts = [starred] if statement.mapped else [{name} for name in starred]
        for part in (part for part in parts if part):
            merged = part.union(*(group for group in groups if group & part))
            groups = [group for group in groups if not group & part] + [merged]
    return [frozenset(group) for group in groups]


def _anchor(statement: Statement, members: frozenset[str]) -> str | None:
    """Returns which terms of a statement that stands for one operator hold a list: "operands", "results" or None."""
    if statement.mapped:
        return None
    for terms, which in ((statement.arguments, "operands"), (statement.results, "results")):
        if any(term.starred and term.name in members for term in terms):
            return which
    return None


def _lengths(
    rule: RuleText,
    lists: list[frozenset[str]],
    operators: Mapping[str, str],
    present: Mapping[str, set[tuple[int, int]]],
) -> Iterator[dict[str, int]]:
    """Yields the lengths of all lists by their names."""
    choices = []
    for members in lists:
        lengths = {rule.least}
        for statement in rule.source:
            which = _anchor(statement, members)
            if which is None:
                continue
            terms = statement.arguments if which == "operands" else statement.results
            occurring = present.get(operators.get(statement.op, statement.op), set())
            plain = sum(not term.starred for term in terms)
            lengths = {(given if which == "operands" else made) - plain for given, made in occurring}
            lengths = {length for length in lengths if rule.least <= length <= MOST_ELEMENTS}
            break
        choices.append(sorted(lengths))
    for chosen in itertools.product(*choices):
        yield {name: length for members, length in zip(lists, chosen, strict=True) for name in members}


def _pattern(number: int, rule: RuleText, operators: Mapping[str, str], lengths: Mapping[str, int]) -> Pattern:
    found: list[Found] = []
    for statement in rule.source:
        repeats = _repeats(statement, lengths)
        for element in range(repeats or 1):
            at = element if repeats else None
            operands = _names(statement.arguments, lengths, at)
            results = _names(statement.results, lengths, at)
            domain, _, op_type = operators.get(statement.op, statement.op).rpartition(".")
            found.append(
                Found(Operator(domain, op_type, len(operands), len(results)), operands, results, statement.kept)
            )
    made = {name for each in found for name in each.results}
    leaves = dict.fromkeys(name for each in found for name in each.operands if name not in made)
    roots = tuple(name for term in rule.outputs for name in _names((term,), lengths, None))
    if len(found) > 1 and len({*_connected(found)}) < len(found):
        raise InexpressibleError("its operators are not connected")
    weights = {
        name
        for variable in rule.variables.values()
        if variable.origin == "weight"
        for name in _names((variable.term,), lengths, None)
    }
    unread = [name for name in rule.variables if not {*_names((rule.variables[name].term,), lengths, None)} & {*leaves}]
    if unread:
        raise InexpressibleError(f"no operator of its source reads {', '.join(unread)}")
    return Pattern(number, tuple(_producers_first(found)), tuple(leaves), frozenset(weights), roots)


def _producers_first(found: list[Found]) -> Iterator[Found]:
    """Yields the operators of a pattern, each behind those whose results it reads."""
    pending = list(found)
    while pending:
        awaited = {name for each in pending for name in each.results}
        ready = [each for each in pending if not awaited.intersection(each.operands)]
        yield from ready
        pending = [each for each in pending if each not in ready]


def _connected(found: list[Found]) -> Iterator[int]:
    """Yields the positions of the operators that share tensors with the first one, directly or through others."""
    reached = {0}
    pending = [0]
    while pending:
        at = pending.pop()
        yield at
        tensors = {*found[at].operands, *found[at].results}
        for other, each in enumerate(found):
            if other not in reached and tensors & {*each.operands, *each.results}:
                reached.add(other)
                pending.append(other)


def _repeats(statement: Statement, lengths: Mapping[str, int]) -> int:
    """Returns for how many operators a statement stands; 0 for exactly one without elements."""
    if not statement.mapped:
        return 0
    return next(lengths[term.name] for term in statement.results if term.starred)


def _names(terms: tuple[Term, ...], lengths: Mapping[str, int], element: int | None) -> tuple[str, ...]:
    """Returns the tensors that terms stand for; of starred ones the one at `element`, or all if that is None."""
    names: list[str] = []
    for term in terms:
        if not term.starred:
            names.append(term.name)
        elif element is not None:
            names.append(f"{term.name}_{element}")
        else:
            names += [f"{term.name}_{at}" for at in range(lengths[term.name])]
    return tuple(names)
