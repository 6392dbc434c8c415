"""The axioms of axioms.rules, in the forms that the prover looks for.

Both directions of an axiom are forms. An axiom about lists also has forms for lists of two and of three elements.

An axiom `source = target` is an equation between tensors. If `follows` is set, the target is well-typed and has the
source's type wherever the source is well-typed and the conditions hold, so it may take the place of the source. The
tests check this for every axiom. Otherwise the axiom only says that the two are equal if both exist and have the same
type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from taso_ext._core import RuleSet
from taso_ext.verify.rule_reader import Extent, RuleText, Statement, Term, Variable, read_rule

_FOLLOWS, _BOTH = "types(follow)", "types(follow, backwards)"
"""The proof sections that set `follows`: forwards only, and in both directions. Other axioms have no proof section."""
_LENGTHS = (2, 3)


@dataclass(frozen=True)
class Axiom:
    """One form of an axiom.

    Attributes:
      name: the name of the axiom.
      rule: a rule whose source the prover looks for and whose target is equal to it.
      follows: whether the target may take the place of the source, as said above.
      lists: symbols that stand for lists of a given length, each with the symbols of its elements.
    """

    name: str
    rule: RuleText
    follows: bool
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()


def axiom_text() -> str:
    """Returns the text of the axioms: rules with `types(...)` as their proof, or without a proof."""
    return files("taso_ext.verify.axioms").joinpath("axioms.rules").read_text(encoding="utf-8")


@cache
def axioms() -> tuple[Axiom, ...]:
    """Returns all forms of all axioms."""
    return tuple(form for axiom in read_axioms(axiom_text()) for form in _forms(axiom))


def read_axioms(text: str) -> Iterator[tuple[RuleText, bool, bool]]:
    """Yields the rules of `text`, each with whether types follow forwards and whether they follow backwards."""
    rules = RuleSet.parse(text, "axioms.rules")
    for index in range(len(rules)):
        proof = rules.proof(index)
        if proof not in ("", _FOLLOWS, _BOTH):
            raise ValueError(f"axiom {rules.names[index]}: expected {_FOLLOWS} or {_BOTH} as proof, got {proof!r}")
        yield read_rule(rules.text(index)), proof != "", proof == _BOTH


def backwards(rule: RuleText) -> RuleText:
    """Returns the rule with source and target exchanged."""
    return replace(rule, source=rule.target, target=rule.source)


def _forms(axiom: tuple[RuleText, bool, bool]) -> Iterator[Axiom]:
    rule, follows, both = axiom
    for side, typed in ((rule, follows), (backwards(rule), both)):
        if all(not statement.op for statement in side.source):
            continue  # nothing to look for
        yield Axiom(rule.name, side, typed)
        if has_stars(side):
            for count in _LENGTHS:
                if count >= rule.least:
                    yield _expanded(rule.name, side, typed, count)


def has_stars(rule: RuleText) -> bool:
    return any(term.starred for statement in rule.source for term in (*statement.results, *statement.arguments))


def element(name: str, place: int) -> str:
    """Returns the name of the element `place` of the list `name`."""
    return f"{name}.{place}"


def _expanded(name: str, rule: RuleText, follows: bool, count: int) -> Axiom:
    """Returns the rule for lists of `count` elements, each of which has a name of its own."""
    variables = {v.term.name: v for variable in rule.variables.values() for v in _elements(variable, count)}
    starred = {
        extent.symbol
        for variable in rule.variables.values()
        for extent in variable.shape or ()
        if extent.kind == "starred"
    }
    lists = tuple((symbol, tuple(element(symbol, place) for place in range(count))) for symbol in sorted(starred))
    source, target = (
        tuple(s for statement in side for s in _statements(statement, count)) for side in (rule.source, rule.target)
    )
    return Axiom(name, replace(rule, variables=variables, source=source, target=target), follows, lists)


def _elements(variable: Variable, count: int) -> Iterator[Variable]:
    if not variable.term.starred:
        yield variable
        return
    for place in range(count):
        shape = variable.shape and tuple(
            Extent("symbol", element(extent.symbol, place)) if extent.kind == "starred" else extent
            for extent in variable.shape
        )
        yield Variable(Term(element(variable.term.name, place), False), variable.origin, variable.floating, shape)


def _statements(statement: Statement, count: int) -> Iterator[Statement]:
    if statement.mapped or (not statement.op and statement.results[0].starred):
        for place in range(count):
            arguments = tuple(Term(element(t.name, place), False) if t.starred else t for t in statement.arguments)
            result = Term(element(statement.results[0].name, place), False)
            yield replace(statement, results=(result,), arguments=arguments)
        return
    yield replace(
        statement, results=_spelled_out(statement.results, count), arguments=_spelled_out(statement.arguments, count)
    )


def _spelled_out(terms: tuple[Term, ...], count: int) -> tuple[Term, ...]:
    return tuple(
        each
        for term in terms
        for each in ([Term(element(term.name, p), False) for p in range(count)] if term.starred else [term])
    )


def symbol_of(expression: ast.expr) -> str | None:
    """Returns the name of which an expression consists, or None if it is not a single name."""
    return expression.id if isinstance(expression, ast.Name) else None
