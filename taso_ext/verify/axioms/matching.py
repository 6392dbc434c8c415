"""The search for an axiom's source among the terms of a rule, and the construction of its target there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from taso_ext.verify.axioms.axiom_set import Axiom, symbol_of
from taso_ext.verify.axioms.symbolic_expressions import evaluate
from taso_ext.verify.axioms.symbolic_values import (
    Attributes,
    Each,
    Number,
    Row,
    Shape,
    Span,
    UnknownError,
    Value,
)
from taso_ext.verify.axioms.tensor_terms import EACH, Terms, counted_from_the_front
from taso_ext.verify.rule_reader import Extent, Statement, Term, Variable

Operators = dict[str, frozenset[str]]
"""The operators that each operator variable of a rule may stand for."""


@dataclass
class Match:
    """The values of an axiom's names: a place where its source stands, and the scope of its expressions."""

    axiom: Axiom
    terms: Terms
    tensors: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, Value] = field(default_factory=dict)
    rests: dict[str, Attributes] = field(default_factory=dict)
    operators: dict[str, tuple[str, Attributes]] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)  # terms of the source's operators, by their first result
    open: tuple[tuple[ast.expr, Value, int], ...] = ()  # attributes to compare once all symbols are known

    def copy(self) -> Match:
        return Match(
            self.axiom,
            self.terms,
            dict(self.tensors),
            dict(self.symbols),
            dict(self.rests),
            dict(self.operators),
            dict(self.found),
            self.open,
        )

    def symbol(self, name: str) -> Value:
        """Returns the value of a symbol. A symbol for a list of given length has the values of its elements."""
        for symbol, elements in self.axiom.lists:
            if symbol == name:
                values = [self.symbol(each) for each in elements]
                numbers = tuple(value for value in values if isinstance(value, Number))
                if len(numbers) != len(values):
                    raise UnknownError
                return numbers
        if name not in self.symbols:
            raise UnknownError
        return self.symbols[name]

    def shape(self, tensor: str) -> Shape:
        if tensor not in self.tensors:
            raise UnknownError
        return self.terms.shape(self.tensors[tensor])

    def contents(self, tensor: str) -> Number:
        if tensor not in self.tensors:
            raise UnknownError
        return self.terms.contents(self.tensors[tensor])

    def bind_tensor(self, name: str, term: int) -> bool:
        if name in self.tensors:
            return self.terms.find(self.tensors[name]) == self.terms.find(term)
        self.tensors[name] = term
        return True

    def bind_symbol(self, name: str, value: Value) -> bool:
        if name in self.symbols:
            return self.terms.facts.same(self.symbols[name], value)
        self.symbols[name] = value
        return True


def matches(axiom: Axiom, terms: Terms, operators: Operators) -> Iterator[Match]:
    """Yields the matches of the axiom's source for which its conditions certainly hold."""
    statements = [statement for statement in reversed(axiom.rule.source) if statement.op]
    for found in _matches(Match(axiom, terms), statements, operators):
        for shaped in _with_shapes(found, [v for v in axiom.rule.variables.values() if v.term.name in found.tensors]):
            if _holds(shaped):
                yield shaped


def _holds(match: Match) -> bool:
    facts = match.terms.facts
    for expression, value, first in match.open:
        try:
            wanted = _from_the_front(evaluate(expression, match), match, first)
        except UnknownError:
            return False
        if not facts.same(wanted, value):
            return False
    return all(facts.imply_condition(condition, match) for condition in match.axiom.rule.conditions)


def _from_the_front(value: Value, match: Match, first: int) -> Value:
    """Returns `value`; a negative axis of the tensor `first` is counted from the front instead."""
    if isinstance(value, Number) and value.integer is not None and value.integer < 0:
        attributes = Attributes((("axis", value),), None)
        return counted_from_the_front(attributes, match.terms.shape(first)).known[0][1]
    return value


def _matches(match: Match, statements: list[Statement], operators: Operators) -> Iterator[Match]:
    """Yields the matches of `statements`, which stand in reverse order because results lead to operands."""
    if not statements:
        yield match
        return
    first, rest = statements[0], statements[1:]
    for term in _candidates(match, first):
        for found in _bindings(match, first, term, operators):
            yield from _matches(found, rest, operators)


def _candidates(match: Match, statement: Statement) -> Iterator[int]:
    terms = match.terms
    if len(statement.results) == 1 and statement.results[0].name in match.tensors:
        yield from terms.members(match.tensors[statement.results[0].name])
        return
    for result in statement.results:
        if result.name in match.tensors:  # a named result of a Split leads to the Split
            for term in list(terms.members(match.tensors[result.name])):
                if terms.nodes[term].op == "item":
                    yield terms.nodes[term].operands[0][0]
            return
    yield from range(len(terms))


def operator_name(statement: Statement, op: str) -> str:
    """Returns the operator name of a term; operators on lists and Splits with named results have names of their own."""
    if statement.mapped:
        return EACH + op
    return f"Split {len(statement.results)}" if op == "Split" and not statement.results[0].starred else op


def _bindings(match: Match, statement: Statement, term: int, operators: Operators) -> Iterator[Match]:
    """Yields the match in which the statement is this term; nothing if it cannot be."""
    node = match.terms.nodes[term]
    # Most terms are other operators, for which no match needs to be copied.
    if not node.op or (
        statement.op not in match.axiom.rule.operators and node.op != operator_name(statement, statement.op)
    ):
        return
    found = match.copy()
    if len(node.operands) != len(statement.arguments) or not _bind_operator(found, statement, term, operators):
        return
    for argument, (operand, starred) in zip(statement.arguments, node.operands, strict=True):
        if argument.starred != starred or not found.bind_tensor(argument.name, operand):
            return
    if not _bind_results(found, statement.results, term):
        return
    if statement.op not in match.axiom.rule.operators and not _bind_attributes(found, statement, term):
        return
    found.found[statement.results[0].name] = term
    yield found


def _bind_operator(match: Match, statement: Statement, term: int, operators: Operators) -> bool:
    node = match.terms.nodes[term]
    choices = match.axiom.rule.operators.get(statement.op)
    if choices is None:
        return node.op == operator_name(statement, statement.op)
    if statement.mapped != node.op.startswith(EACH):
        return False
    op = node.op.removeprefix(EACH)
    if not operators.get(op, frozenset([op])) <= frozenset(choices):
        return False
    if statement.op in match.operators:
        return match.operators[statement.op] == (op, node.attributes)
    match.operators[statement.op] = (op, node.attributes)
    return True


def _bind_results(match: Match, results: tuple[Term, ...], term: int) -> bool:
    if match.terms.nodes[term].op.startswith("Split "):
        items = match.terms.items(term, len(results))
        return all(match.bind_tensor(result.name, item) for result, item in zip(results, items, strict=True))
    return match.bind_tensor(results[0].name, term)


def _bind_attributes(match: Match, statement: Statement, term: int) -> bool:
    node = match.terms.nodes[term]
    known = dict(node.attributes.known)
    for name, expression in statement.attributes.items():
        if name not in known:
            return False
        value = known.pop(name)
        symbol = symbol_of(expression)
        if symbol is not None and all(symbol != listed for listed, _ in match.axiom.lists):
            if not match.bind_symbol(symbol, value):
                return False
        else:
            first = node.operands[0][0] if node.operands else 0
            match.open = (*match.open, (expression, value, first))
    rest = Attributes(tuple(sorted(known.items(), key=lambda each: each[0])), node.attributes.rest)
    if statement.rest is None:
        return not rest.known and rest.rest is None
    return match.rests.setdefault(statement.rest, rest) == rest


def _with_shapes(match: Match, variables: list[Variable]) -> Iterator[Match]:
    """Yields matches with the symbols of declared shapes bound, in every way that the shapes of the terms allow."""
    if not variables:
        yield match
        return
    first, rest = variables[0], variables[1:]
    for shape in [()] if first.shape is None else match.terms.shapes(match.tensors[first.term.name]):
        found = match.copy()
        if first.shape is None or _bind_shape(found, first.shape, shape):
            yield from _with_shapes(found, rest)


def _bind_shape(match: Match, extents: tuple[Extent, ...], shape: Shape) -> bool:
    dots = next((place for place, extent in enumerate(extents) if extent.kind == "ellipsis"), None)
    if dots is None:
        return len(extents) == len(shape) and _bind_extents(match, extents, shape)
    behind = len(extents) - dots - 1
    if len(shape) < dots + behind:
        return False
    middle = shape[dots : len(shape) - behind]
    fits = _bind_extents(match, extents[:dots], shape[:dots])
    fits = fits and _bind_extents(match, extents[dots + 1 :], shape[len(shape) - behind :])
    if not extents[dots].symbol:
        return fits
    row: Row = tuple(item for item in middle if isinstance(item, (Number, Span)))
    return fits and len(row) == len(middle) and match.bind_symbol(extents[dots].symbol, row)


def _bind_extents(match: Match, extents: tuple[Extent, ...], shape: Shape) -> bool:
    return all(_bind_extent(match, extent, item) for extent, item in zip(extents, shape, strict=True))


def _bind_extent(match: Match, extent: Extent, item: object) -> bool:
    match extent.kind, item:
        case "integer", Number():
            return match.terms.facts.same(item, Number.of(extent.integer))
        case "symbol", Number():
            return match.bind_symbol(extent.symbol, item)
        case "starred", Each():
            return match.bind_symbol(extent.symbol, item.values)
    return False


@dataclass
class Built:
    """The target of an axiom among the terms of a rule.

    Attributes:
      results: the terms of its results, by name.
      found: the terms of its operators, by the name of their first result.
    """

    results: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)


def build(match: Match, *, new: bool) -> Built | None:
    """Returns the terms of the axiom's target, or None if they cannot be built.

    Args:
      new: whether to make terms that do not exist yet.
    """
    built, scope = Built(), match.copy()
    for statement in match.axiom.rule.target:
        term = _build(scope, statement, new)
        if term is None:
            return None
        results = [term]
        if statement.op:
            built.found[statement.results[0].name] = term
        if match.terms.nodes[term].op.startswith("Split ") and statement.op:
            results = match.terms.items(term, len(statement.results))
        for result, made in zip(statement.results, results, strict=True):
            built.results[result.name] = scope.tensors[result.name] = made
    return built


def _build(scope: Match, statement: Statement, new: bool) -> int | None:
    if not statement.op:
        return scope.tensors[statement.arguments[0].name]
    operands = tuple((scope.tensors[term.name], term.starred) for term in statement.arguments)
    if statement.op in scope.axiom.rule.operators:
        op, attributes = scope.operators[statement.op]
    else:
        op = statement.op
        try:
            attributes = _attributes(scope, statement)
        except UnknownError:
            return None
    name = operator_name(statement, op)
    make = scope.terms.apply if new else scope.terms.lookup
    return make(name, attributes, operands)


def _attributes(scope: Match, statement: Statement) -> Attributes:
    known = {name: evaluate(expression, scope) for name, expression in statement.attributes.items()}
    rest = scope.rests[statement.rest] if statement.rest is not None else Attributes((), None)
    return Attributes(tuple(sorted({**dict(rest.known), **known}.items(), key=lambda each: each[0])), rest.rest)
