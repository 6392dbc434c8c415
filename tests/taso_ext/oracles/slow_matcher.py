"""A second implementation of matching, for the tests: a plain enumeration of what taso_ext/rules/README.md describes.

This module settles as follows what that page leaves open.

* A match is an assignment of the source statements to different run-time operators, and of its names to tensors. An
  operator of two interchangeable operands is read in both orders, and each order that gives names another meaning is
  a match.
* `*y = F(x, *w)` stands for *all* operators that fit together with one of them, unless its results or a list among its
  operands are fixed by another statement (`y = Concat(*t)`): then there is one operator for each element.
* Interchangeable operators (`unordered`, elements of a list) are ordered by site, then by origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from taso_ext.verify.rule_reader import Extent, RuleText, Statement, Term, Variable
from tests.taso_ext.oracles.slow_expressions import Quantity, Scope, evaluate, holds, same
from tests.taso_ext.oracles.slow_graph import ABSENT, Operator, PlainGraph
from tests.taso_ext.oracles.slow_match import Match, place

FLOATS = frozenset((1, 10, 11, 16))  # FLOAT, FLOAT16, DOUBLE, BFLOAT16 of onnx.TensorProto


def matches(rule: RuleText, graph: PlainGraph) -> Iterator[Match]:
    """Yields every match of the source, whether or not the target is valid there."""
    return _Matcher(rule, graph).all()


class _Matcher:
    def __init__(self, rule: RuleText, graph: PlainGraph) -> None:
        self.rule = rule
        self.graph = graph
        self.candidates = [operator for operator in graph.operators if not operator.weight_only]

    def all(self) -> Iterator[Match]:
        # Statements for one operator come first, because they bind lists.
        order = sorted(range(len(self.rule.source)), key=lambda index: self.rule.source[index].mapped)
        return (match for match in self.extend(Match(), order) if self.acceptable(match))

    def extend(self, match: Match, order: Sequence[int]) -> Iterator[Match]:
        """Yields all ways to match the remaining statements."""
        if not order:
            yield match
            return
        statement = self.rule.source[order[0]]
        for nodes, bound in self.mapped(match, statement) if statement.mapped else self.single(match, statement):
            yield from self.extend(replace(bound, nodes={**bound.nodes, order[0]: nodes}), order[1:])

    # ---- one operator

    def single(self, match: Match, statement: Statement) -> Iterator[tuple[tuple[Operator, ...], Match]]:
        for node in self.near(match, statement):
            fitting = None if match.uses(node) else self.operator_fits(match, statement, node)
            fitting = fitting and self.results_fit(fitting, statement, node)
            for operands in self.assignments(statement, node) if fitting else ():
                bound = fitting
                for term, value in operands:
                    bound = bound and self.operand_fits(bound, term, value)
                if bound:
                    yield (node,), bound

    def near(self, match: Match, statement: Statement) -> Sequence[Operator]:
        """Returns the operators to try: if a result or operand is already known, only those that make or read it."""
        for term in statement.results:
            known = match.lists.get(term.name, ())[:1] if term.starred else [match.tensors.get(term.name, ABSENT)]
            for value in known:
                if value != ABSENT:
                    return [node for node in self.candidates if value in node.outputs]
        for term in statement.arguments:
            if term.name in match.tensors:
                return [node for node in self.graph.readers[match.tensors[term.name]] if not node.weight_only]
        return self.candidates

    def results_fit(self, match: Match, statement: Statement, node: Operator) -> Match | None:
        first = statement.results[0]
        if first.starred:
            return match.bind("lists", first.name, node.outputs) if len(node.outputs) >= self.rule.least else None
        if len(statement.results) != len(node.outputs):
            return None
        bound: Match | None = match
        for term, value in zip(statement.results, node.outputs, strict=True):
            bound = bound and bound.bind("tensors", term.name, value)
        return bound

    def assignments(self, statement: Statement, node: Operator) -> Iterator[list[tuple[Term, Any]]]:
        """Yields all ways to assign the operands to the arguments: one operand to a name, a run of operands to a list.

        A single list has at least `least` elements; if there are two, either may be empty (`flatten-concats`).
        """
        stars = sum(term.starred for term in statement.arguments)
        least = self.rule.least if stars == 1 else 0
        for operands in [node.inputs] if stars else node.orders:
            yield from _runs(statement.arguments, operands, least)

    # ---- one operator for each element

    def mapped(self, match: Match, statement: Statement) -> Iterator[tuple[tuple[Operator, ...], Match]]:
        for group in self.groups(match, statement):
            distinct = len({id(node) for node in group}) == len(group)
            if len(group) < self.rule.least or not distinct or any(match.uses(node) for node in group):
                continue
            # If a list fixes the group, each operand order of the first element is tried.
            known = statement.results[0].name in match.lists or any(
                term.name in match.lists for term in statement.arguments
            )
            for leading in group[0].orders if known else [None]:
                if (bound := self.group_fits(match, statement, group, leading)) is not None:
                    yield group, bound

    def groups(self, match: Match, statement: Statement) -> Iterator[tuple[Operator, ...]]:
        results = match.lists.get(statement.results[0].name)
        operands = [match.lists[term.name] for term in statement.arguments if term.starred and term.name in match.lists]
        if results is not None:
            producers = [self.graph.producer.get(value) for value in results]
            if all(node is not None and not node.weight_only for node in producers):
                yield tuple(node for node in producers if node)
        elif operands:
            # The elements are inner results, so a second reader of one would be outside the match.
            readers = [self.graph.readers[value] for value in operands[0]]
            if all(len(each) == 1 for each in readers):
                yield tuple(each[0] for each in readers)
        else:
            yield from self.maximal_groups(match, statement)

    def maximal_groups(self, match: Match, statement: Statement) -> Iterator[tuple[Operator, ...]]:
        seen: set[tuple[tuple[int, ...], ...]] = set()
        for first in self.candidates:
            bound = self.element_fits(match, statement, first, first.orders)
            if bound is None or match.uses(first):
                continue
            alike = [
                node
                for node in self.candidates
                if node is first or (not match.uses(node) and self.element_fits(bound[0], statement, node, node.orders))
            ]
            group = tuple(sorted(alike, key=place))
            if (key := tuple(node.outputs for node in group)) not in seen:
                seen.add(key)
                yield group

    def group_fits(
        self, match: Match, statement: Statement, group: Sequence[Operator], leading: tuple[int, ...] | None
    ) -> Match | None:
        """Returns the match with all elements and their lists, or None; `leading` is the first one's operand order."""
        bound: Match | None = match
        columns: dict[str, list[int]] = {term.name: [] for term in statement.arguments if term.starred}
        for index, node in enumerate(group):
            orders = [leading] if leading is not None and index == 0 else node.orders
            element = self.element_fits(bound, statement, node, orders, index) if bound else None
            bound = element and element[0]
            for name, value in element[1].items() if element else ():
                columns[name].append(value)
        for name, values in columns.items():
            bound = bound and self.operand_fits(bound, Term(name, True), tuple(values))
        return bound and bound.bind("lists", statement.results[0].name, tuple(node.outputs[0] for node in group))

    def element_fits(
        self,
        match: Match,
        statement: Statement,
        node: Operator,
        orders: Sequence[tuple[int, ...]],
        index: int | None = None,
    ) -> tuple[Match, dict[str, int]] | None:
        """Returns the match with the names that all elements share, and this element's values of starred names."""
        fitting = self.operator_fits(match, statement, node)
        if fitting is None or len(node.inputs) != len(statement.arguments) or len(node.outputs) != 1:
            return None
        for operands in orders:
            bound: Match | None = fitting
            starred: dict[str, int] = {}
            for term, value in zip(statement.arguments, operands, strict=True):
                if term.starred:
                    starred[term.name] = value
                    bound = bound and self.starred_operand_fits(bound, term, value, index)
                else:
                    bound = bound and self.operand_fits(bound, term, value)
            if bound:
                return bound, starred
        return None

    def starred_operand_fits(self, match: Match, term: Term, value: int, index: int | None) -> Match | None:
        known = match.lists.get(term.name)
        if known is not None and index is not None and known[index : index + 1] != (value,):
            return None
        variable = self.rule.variables.get(term.name)
        if value == ABSENT or variable is None:
            return match if value != ABSENT else None
        fitting = self.variable_fits(match, variable, value)
        return fitting and fitting[0]

    # ---- operators and tensors

    def operator_fits(self, match: Match, statement: Statement, node: Operator) -> Match | None:
        if node.domain != "" or node.weight_only:
            return None
        if statement.op in self.rule.operators:
            same = (node.op_type, _frozen(node.attributes))
            return match.bind("operators", statement.op, same) if same[0] in self.rule.operators[statement.op] else None
        if statement.op != node.op_type or not set(statement.attributes) <= set(node.attributes):
            return None
        others = {name: value for name, value in node.attributes.items() if name not in statement.attributes}
        if statement.rest is None and others:
            return None
        bound = match if statement.rest is None else match.bind("rests", statement.rest, _frozen(others))
        for name, expression in statement.attributes.items():
            if (symbol := getattr(expression, "id", None)) is not None:  # a lone name takes the value
                value = _quantity(node.attributes[name])
                bound = bound and (None if value is None else bound.bind("symbols", symbol, value))
        return bound

    def operand_fits(self, match: Match, term: Term, value: Any) -> Match | None:
        """Binds a name to a value, or a starred name to a tuple of values, and checks the declaration."""
        values = value if term.starred else (value,)
        bound = match.bind("lists" if term.starred else "tensors", term.name, value) if ABSENT not in values else None
        variable = self.rule.variables.get(term.name)
        if bound is None or variable is None:
            return bound
        columns: list[list[int]] = []
        for each in values:
            fitting = self.variable_fits(bound, variable, each) if bound else None
            bound = fitting and fitting[0]
            columns.append(fitting[1] if fitting else [])
        starred = [extent.symbol for extent in variable.shape or () if extent.kind == "starred"]
        for at, symbol in enumerate(starred):
            bound = bound and bound.bind("symbols", symbol, tuple(column[at] for column in columns))
        return bound

    def variable_fits(self, match: Match, variable: Variable, value: int) -> tuple[Match, list[int]] | None:
        """Checks role, dtype and shape; returns the match and the extents that differ from element to element."""
        tensor = self.graph.tensors[value]
        wrong_role = variable.origin == ("runtime" if tensor.weight_only else "weight")
        if wrong_role or tensor.dims is None or (variable.floating and tensor.dtype not in FLOATS):
            return None
        if variable.shape is None:
            return match, []
        extents = _spread(variable.shape, len(tensor.dims))
        if extents is None:
            return None
        starred, bound = [], match
        for extent, part in zip(extents, _parts(extents, tensor.dims), strict=True):
            if extent.kind == "starred":
                starred.append(part[0])
                continue
            if extent.kind == "integer" and part[0] != extent.integer:
                return None
            if extent.symbol:
                grown = bound.bind("symbols", extent.symbol, part if extent.kind == "ellipsis" else part[0])
                if grown is None:
                    return None
                bound = grown
        return bound, starred

    # ---- the whole match

    def acceptable(self, match: Match) -> bool:
        scope = self.scope(match)
        return (
            self.attributes_hold(match, scope)
            and all(holds(condition, scope) for condition in self.rule.conditions)
            and all(place(self.producer(match, a)) <= place(self.producer(match, b)) for a, b in self.rule.unordered)
            and self.closed(match)
        )

    def scope(self, match: Match) -> Scope:
        tensors = {name: self.graph.tensors[id_] for name, id_ in match.tensors.items()}
        dims = {name: tensor.dims or () for name, tensor in tensors.items()}
        lengths = {name: len(ids) for name, ids in match.lists.items()}
        owners = match.rests | {variable: attributes for variable, (_, attributes) in match.operators.items()}
        rests = {
            owner: {name: quantity for name, _, value in kept if (quantity := _quantity(value)) is not None}
            for owner, kept in owners.items()
        }
        names = {owner: frozenset(name for name, _, _ in kept) for owner, kept in owners.items()}
        contents = {name: tensor.content for name, tensor in tensors.items()}
        dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
        return Scope(match.symbols, dims, contents, lengths, rests, names, dtypes)

    def attributes_hold(self, match: Match, scope: Scope) -> bool:
        for index, statement in enumerate(self.rule.source):
            for name, expression in statement.attributes.items():
                for node in match.nodes[index]:
                    value = evaluate(expression, scope)
                    if name == "axis" and isinstance(value, int) and value < 0:
                        value += len(self.graph.tensors[node.inputs[0]].dims or ())
                    actual = _quantity(node.attributes[name])
                    if value is None or actual is None or not same(value, actual):
                        return False
        return True

    def producer(self, match: Match, name: str) -> Operator:
        return self.graph.producer[match.tensors[name]]

    def closed(self, match: Match) -> bool:
        """Returns whether no reader outside needs a removed result, and the match computes none of its variables."""
        for index, statement in enumerate(self.rule.source):
            for node in () if statement.kept else match.nodes[index]:
                if any(self.is_read_outside(match, value) for value in node.outputs):
                    return False
        for name in self.rule.variables:
            for value in match.lists.get(name, ()) if name in match.lists else [match.tensors.get(name, ABSENT)]:
                producer = self.graph.producer.get(value)
                if producer is not None and match.uses(producer):
                    return False
        return True

    def is_read_outside(self, match: Match, value: int) -> bool:
        replaced = [id_ for term in self.rule.outputs for id_ in _values(match, term)]
        if value in replaced:
            return False
        return value in self.graph.outputs or not all(match.uses(reader) for reader in self.graph.readers[value])


def _values(match: Match, term: Term) -> tuple[int, ...]:
    return match.lists[term.name] if term.starred else (match.tensors[term.name],)


def _runs(terms: Sequence[Term], operands: Sequence[int], least: int) -> Iterator[list[tuple[Term, Any]]]:
    """Yields all ways to cut `operands` into one operand for each plain term and a run for each starred term."""
    if not terms:
        if not operands:
            yield []
        return
    first, others = terms[0], terms[1:]
    lengths = range(least, len(operands) + 1) if first.starred else range(1, min(1, len(operands)) + 1)
    for length in lengths:
        taken = tuple(operands[:length]) if first.starred else operands[0]
        yield from ([(first, taken), *behind] for behind in _runs(others, operands[length:], least))


def _spread(shape: Sequence[Extent], rank: int) -> Sequence[Extent] | None:
    """Returns the shape if it can have this rank, otherwise None."""
    is_open = any(extent.kind == "ellipsis" for extent in shape)
    return shape if (len(shape) - 1 <= rank if is_open else len(shape) == rank) else None


def _parts(shape: Sequence[Extent], dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the dims that each entry of a shape stands for."""
    parts, at = [], 0
    for extent in shape:
        length = len(dims) - len(shape) + 1 if extent.kind == "ellipsis" else 1
        parts.append(dims[at : at + length])
        at += length
    return parts


def _quantity(attribute: object) -> Quantity | None:
    """Returns an attribute as the rule language sees it (a number, text or list of numbers), or None for others."""
    if isinstance(attribute, (int, float, str)):
        return attribute
    is_numbers = isinstance(attribute, list) and all(isinstance(each, (int, float)) for each in attribute)
    return tuple(attribute) if is_numbers else None  # type: ignore[arg-type]


def _frozen(attributes: Mapping[str, Any]) -> tuple[tuple[str, str, Any], ...]:
    """Returns attributes in a form whose comparison distinguishes 1 from 1.0."""
    return tuple((name, type(value).__name__, value) for name, value in sorted(attributes.items()))
