"""A second implementation of rewriting, for the tests, which builds the whole graph after each rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from taso_ext.verify.rule_reader import RuleText, Statement, Term
from tests.taso_ext.oracles.slow_expressions import Quantity, Scope, evaluate
from tests.taso_ext.oracles.slow_graph import ABSENT, Operator, PlainGraph, Tensor, topological
from tests.taso_ext.oracles.slow_match import Match
from tests.taso_ext.oracles.slow_matcher import FLOATS, matches
from tests.taso_ext.oracles.slow_shapes import CONSTANTS, result_types

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"Pad": {"mode": "constant", "value": 0.0}}
"""Attributes of normal forms that rules leave out."""

REAL_ATTRIBUTES = frozenset(("alpha", "beta", "epsilon", "gamma", "value", "values"))


def legal_rewrites(rule: RuleText, graph: PlainGraph) -> Iterator[tuple[Match, PlainGraph]]:
    """Yields every legal match of a rule with the graph that it leads to; of matches that do the same, the first."""
    effects = set()
    for match in matches(rule, graph):
        found = _replacement(rule, graph, match)
        rewritten = None if found is None else _assemble(graph, *found)
        if found is not None and rewritten is not None and (effect := _effect(rule, match, *found)) not in effects:
            effects.add(effect)
            yield match, rewritten


def rewrite(rule: RuleText, graph: PlainGraph, match: Match) -> PlainGraph | None:
    """Returns the graph after the match is replaced, or None if the target is not valid.

    It is not valid if operands do not fit, if an output would change its type or become a constant, or if the graph
    would have a cycle.
    """
    found = _replacement(rule, graph, match)
    return None if found is None else _assemble(graph, *found)


def _replacement(rule: RuleText, graph: PlainGraph, match: Match) -> tuple[_Target, Mapping[int, int]] | None:
    """Returns the target side, and what is read instead of each output of the rule; None if operands do not fit."""
    target = _Target(rule, graph, match)
    if not all(target.add(statement) for statement in rule.target):
        return None
    replaced = target.replaced()
    return None if replaced is None else (target, replaced)


def _effect(rule: RuleText, match: Match, target: _Target, replaced: Mapping[int, int]) -> tuple[Any, ...]:
    """Returns what is equal for matches that do the same: the operators taken away, and the terms read instead.

    A matched operator that stays is named by what it computes of its operands, whichever of several alike it is.
    """
    gone = [node.outputs for index, nodes in match.nodes.items() if not rule.source[index].kept for node in nodes]
    made_or_kept = [*target.operators, *(node for nodes in match.nodes.values() for node in nodes)]
    producer = {value: operator for operator in made_or_kept for value in operator.outputs}
    fresh_values = {value for operator in target.operators for value in operator.outputs}

    def term(value: int) -> str:
        if value not in producer:
            return f"v{value}"
        made = producer[value]
        operands = [term(operand) if value in fresh_values else f"v{operand}" for operand in made.inputs]
        name = f"{made.op_type}{sorted(made.attributes.items(), key=str)}[{made.outputs.index(value)}]"
        return f"{name}({', '.join(sorted(operands) if made.symmetric else operands)})"

    return frozenset(gone), frozenset((old, term(fresh)) for old, fresh in replaced.items())


class _Target:
    """The target side under construction, one statement after the other."""

    def __init__(self, rule: RuleText, graph: PlainGraph, match: Match) -> None:
        self.rule = rule
        self.match = match
        self.before = graph
        self.tensors = dict(graph.tensors)
        self.operators: list[Operator] = []
        given = [term for statement in rule.source if statement.kept for term in statement.results]
        self.names: dict[Term, tuple[int, ...]] = {
            term: self.bound(term) for term in (*given, *(variable.term for variable in rule.variables.values()))
        }

    def bound(self, term: Term) -> tuple[int, ...]:
        return self.match.lists[term.name] if term.starred else (self.match.tensors[term.name],)

    def add(self, statement: Statement) -> bool:
        """Adds the operators of a statement and returns whether that was possible."""
        if not statement.op:
            self.names[statement.results[0]] = self.names[statement.arguments[0]]
            return True
        if not statement.mapped:
            operands = tuple(value for term in statement.arguments for value in self.names[term])
            results = self.create(statement, operands)
            return results is not None and self.name(statement.results, results)
        lists = {term: self.names[term] for term in statement.arguments if term.starred}
        lengths = {len(values) for values in lists.values()}
        if len(lengths) != 1:
            return False
        created = []
        for index in range(lengths.pop()):
            operands = tuple(self.names[term][index if term.starred else 0] for term in statement.arguments)
            results = self.create(statement, operands)
            if results is None:
                return False
            created.append(results[0])
        return self.name(statement.results, tuple(created))

    def name(self, terms: tuple[Term, ...], results: tuple[int, ...]) -> bool:
        if terms[0].starred:
            self.names[terms[0]] = results
            return True
        self.names |= {term: (value,) for term, value in zip(terms, results, strict=False)}
        return len(terms) == len(results)

    def create(self, statement: Statement, operands: tuple[int, ...]) -> tuple[int, ...] | None:
        """Adds one operator and returns the ids of its results, or None if the operator is not valid."""
        kind = self.operator(statement, operands)
        types = kind and result_types(*kind, [self.tensors[value].type for value in operands])
        if kind is None or types is None:
            return None
        first = max(self.tensors) + 1
        ids = tuple(range(first, first + len(types)))
        constant = all(self.tensors[value].weight_only for value in operands)
        self.tensors |= {
            id_: Tensor("", dtype, dims, None, constant) for id_, (dtype, dims) in zip(ids, types, strict=True)
        }
        self.operators.append(Operator("", *kind, operands, ids, constant, site=0))
        return ids

    def operator(self, statement: Statement, operands: tuple[int, ...]) -> tuple[str, dict[str, Any]] | None:
        """Returns operator type and attributes, or None if an attribute has no value.

        An operator variable gives both. Otherwise the written attributes are added to those that `@name` keeps.
        """
        if statement.op in self.rule.operators:
            op_type, kept = self.match.operators[statement.op]
            return op_type, {name: value for name, _, value in kept}
        kept = self.match.rests[statement.rest] if statement.rest is not None else ()
        attributes = {name: value for name, _, value in kept}
        for name, expression in statement.attributes.items():
            value = evaluate(expression, self.scope())
            if value is None:
                return None
            if name == "axis" and isinstance(value, int) and value < 0:
                value += len(self.tensors[operands[0]].dims or ())
            attributes[name] = _attribute(name, value)
        if statement.op in CONSTANTS:
            attributes["dtype"] = self.dtype()
        return statement.op, {**DEFAULTS.get(statement.op, {}), **attributes}

    def dtype(self) -> int:
        """Returns the dtype of the rule's first float variable, or 0 if there is none."""
        dtypes = [
            self.tensors[id_].dtype for variable in self.rule.variables.values() for id_ in self.bound(variable.term)
        ]
        return next((dtype for dtype in dtypes if dtype in FLOATS), 0)

    def scope(self) -> Scope:
        tensors = dict(self.match.tensors) | {term.name: ids[0] for term, ids in self.names.items() if not term.starred}
        dims = {name: self.tensors[id_].dims or () for name, id_ in tensors.items()}
        return Scope(self.match.symbols, dims, {name: self.tensors[id_].content for name, id_ in tensors.items()})

    def replaced(self) -> dict[int, int] | None:
        """Returns the replacement of each output of the rule, or None if one does not fit."""
        pairs: dict[int, int] = {}
        for term in self.rule.outputs:
            old, fresh = self.bound(term), self.names[term]
            if len(old) != len(fresh):
                return None
            pairs |= zip(old, fresh, strict=True)
        tensors = self.tensors
        fits = all(tensors[a].type == tensors[b].type and not tensors[b].weight_only for a, b in pairs.items())
        return pairs if fits else None


def _attribute(name: str, value: Quantity) -> Any:
    """Returns an attribute as an operator stores it: reals are rounded to float32."""
    if name in REAL_ATTRIBUTES:
        rounded = np.asarray(value, np.float32).astype(float).tolist()
        return rounded if isinstance(value, tuple) else float(rounded)
    return list(value) if isinstance(value, tuple) else value


def _assemble(graph: PlainGraph, target: _Target, replaced: Mapping[int, int]) -> PlainGraph | None:
    """Returns the graph of all operators that the outputs still need, or None if they form a cycle."""

    def moved(operator: Operator) -> Operator:
        inputs = tuple(replaced.get(value, value) for value in operator.inputs)
        return replace(operator, inputs=inputs)

    outputs = tuple(replaced.get(value, value) for value in graph.outputs)
    operators = _needed([*map(moved, graph.operators), *target.operators], outputs)
    order = topological(operators)
    return None if order is None else PlainGraph(target.tensors, tuple(order), graph.inputs, outputs)


def _needed(operators: list[Operator], outputs: tuple[int, ...]) -> list[Operator]:
    producer = {value: operator for operator in operators for value in operator.outputs}
    seen: set[int] = set()
    waiting = list(outputs)
    while waiting:
        value = waiting.pop()
        if value == ABSENT or value in seen or value not in producer:
            continue
        seen.update(producer[value].outputs)
        waiting.extend(producer[value].inputs)
    return [operator for operator in operators if operator.outputs[0] in seen]
