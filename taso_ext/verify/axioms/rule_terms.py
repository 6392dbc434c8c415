"""The terms of a rule, and the premises that hold wherever the rule matches.

In every match the source is well-typed, the conditions hold, and the target is well-typed with results of the same
types. The matcher refuses everything else.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from taso_ext.verify.axioms.matching import operator_name
from taso_ext.verify.axioms.symbolic_expressions import Facts, evaluate
from taso_ext.verify.axioms.symbolic_shapes import ShapeRules
from taso_ext.verify.axioms.symbolic_values import (
    ONE,
    Attributes,
    Each,
    Number,
    Row,
    Shape,
    Span,
    UnknownError,
    Unlike,
    Value,
    position,
    product,
)
from taso_ext.verify.axioms.tensor_terms import Terms
from taso_ext.verify.rule_reader import Extent, RuleText, Statement, Term, Variable

_RANKED = frozenset(["MatMul", "Concat", "Split", "Softmax"])
_LISTS = frozenset(
    ["shape", "perm", "split", "axes", "pads", "strides", "dilations", "kernel_shape", "starts", "ends", "steps"]
)


@dataclass
class RuleTerms:
    """The terms of a rule.

    Attributes:
      goals: pairs of terms that the rule says are equal.
      variables: the terms of the rule's variables, by name.
    """

    terms: Terms
    goals: list[tuple[int, int]]
    variables: dict[str, int]

    @staticmethod
    def of(rule: RuleText) -> RuleTerms | None:
        """Returns the terms of a rule; None if terms cannot express it or if its conditions contradict one another."""
        shape_rules = ShapeRules(rule.operators)
        for _ in range(2):  # the second time with what equal types of the results say about broadcasting
            try:
                made = _Reading(rule, shape_rules).read()
            except UnknownError:
                return None
            absorbed = {pair for a, b in made.goals for pair in _absorbed(made.terms, a, b)}
            shape_rules = ShapeRules(rule.operators, absorbed, _units(made.terms, {small for _, small in absorbed}))
        return None if made.terms.facts.contradictory() else made


def _units(terms: Terms, shapes: set[Shape]) -> set[Shape]:
    """Returns those of `shapes` that certainly have one element."""
    found = set()
    for shape in shapes:
        try:
            size = product(shape)
        except UnknownError:
            continue
        if terms.facts.same(size, ONE):
            found.add(shape)
    return found


def _absorbed(terms: Terms, a: int, b: int) -> list[tuple[Shape, Shape]]:
    found = []
    for mixed, plain in ((terms.shape(a), terms.shape(b)), (terms.shape(b), terms.shape(a))):
        match mixed:
            case (Span(name=("broadcast", frozenset() as parts)),) if plain != mixed:
                found += [(plain, part) for part in sorted(parts, key=repr) if part != plain]
    return found


@dataclass
class _Reading:
    rule: RuleText
    shape_rules: ShapeRules
    facts: Facts = field(default_factory=Facts)
    symbols: dict[str, Value] = field(default_factory=dict)
    tensors: dict[str, int] = field(default_factory=dict)

    def read(self) -> RuleTerms:
        self.terms = Terms(self.facts, self.shape_rules)
        for name, count in _list_lengths(self.rule).items():
            self.symbols[name] = tuple(Number.atom(("at", name, place)) for place in range(count))
        for variable in self.rule.variables.values():
            self.tensors[variable.term.name] = self.terms.variable(variable.term.name, self._declared(variable))
        self.terms.uniform = {self.tensors[name] for name in _asked_for(self.rule) if name in self.tensors}
        for statement in _in_order(self.rule.source, set(self.tensors)):
            self._apply(statement)
        for condition in self.rule.conditions:
            self.facts.suppose_condition(condition, self)
        source = dict(self.tensors)
        for statement in self.rule.target:
            self._apply(statement)
        goals = [(source[term.name], self.tensors[term.name]) for term in self.rule.outputs]
        for a, b in goals:
            self._suppose_same_shape(self.terms.shape(a), self.terms.shape(b))
            self.terms.suppose_same_type(a, b)
        return RuleTerms(self.terms, goals, {name: source[name] for name in self.rule.variables})

    def symbol(self, name: str) -> Value:
        if name not in self.symbols:
            raise UnknownError
        return self.symbols[name]

    def shape(self, tensor: str) -> Shape:
        return self.terms.shape(self.tensors[tensor])

    def contents(self, tensor: str) -> Number:
        return self.terms.contents(self.tensors[tensor])

    def _declared(self, variable: Variable) -> Shape:
        name = variable.term.name
        if variable.shape is None or (len(variable.shape) == 1 and variable.shape[0] == Extent("ellipsis")):
            if variable.term.starred:
                return (Unlike(("shape", name)),)
            behind = [Number.atom(("extent", name, place)) for place in range(-self._least_rank(name), 0)]
            return (Span(("shape", name)), *behind)
        return tuple(self._extent(variable, extent) for extent in variable.shape)

    def _least_rank(self, name: str) -> int:
        """Returns the least rank that operators which read `name` need: 2 for a MatMul, n for an axis of -n."""
        least = 0
        for statement in (*self.rule.source, *self.rule.target):
            if Term(name, False) not in statement.arguments or statement.op not in _RANKED:
                continue
            axis = statement.attributes.get("axis")
            match axis:
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as behind)):
                    least = max(least, behind)
            least = max(least, 2 if statement.op == "MatMul" else 0)
        return least

    def _extent(self, variable: Variable, extent: Extent) -> Number | Span | Each | Unlike:
        if extent.kind == "integer":
            return Number.of(extent.integer)
        if extent.kind == "ellipsis" and not extent.symbol:
            name = ("shape", variable.term.name)
            return Unlike(name) if variable.term.starred else Span(name)
        if extent.kind == "ellipsis":
            return Span(self._list_symbol(extent.symbol)[0].name)
        if extent.kind == "starred":
            return Each(self._list_symbol(extent.symbol))
        value = self.symbols.setdefault(extent.symbol, Number.atom(extent.symbol))
        if not isinstance(value, Number):
            raise UnknownError
        return value

    def _list_symbol(self, name: str) -> tuple[Span]:
        value = self.symbols.setdefault(name, (Span(name),))
        match value:
            case (Span() as span,):
                return (span,)
        raise UnknownError

    def _apply(self, statement: Statement) -> None:
        if not statement.op:
            self.tensors[statement.results[0].name] = self.tensors[statement.arguments[0].name]
            return
        known = {name: self._attribute(name, value) for name, value in statement.attributes.items()}
        operands = tuple((self.tensors[term.name], term.starred) for term in statement.arguments)
        if statement.op == "MatMul":
            self._suppose_inner_extents(operands)
        if statement.op == "Concat":
            self._suppose_alike(operands, known.get("axis"))
        attributes = Attributes(tuple(sorted(known.items(), key=lambda each: each[0])), statement.rest)
        term = self.terms.apply(operator_name(statement, statement.op), attributes, operands)
        results = [term]
        if self.terms.nodes[term].op.startswith("Split "):
            results = self.terms.items(term, len(statement.results))
        for result, made in zip(statement.results, results, strict=True):
            self.tensors[result.name] = made

    def _attribute(self, name: str, expression: ast.expr) -> Value:
        if isinstance(expression, ast.Name) and expression.id not in self.symbols:
            symbol = expression.id
            self.symbols[symbol] = (Span(symbol),) if name in _LISTS else Number.atom(symbol)
        return evaluate(expression, self)

    def _suppose_inner_extents(self, operands: tuple[tuple[int, bool], ...]) -> None:
        a, b = (self.terms.shape(term) for term, _ in operands)
        if len(a) > 1 and len(b) > 1 and isinstance(a[-1], Number) and isinstance(b[-2], Number):
            self.facts.suppose(self.facts.equation(a[-1], b[-2]))

    def _suppose_alike(self, operands: tuple[tuple[int, bool], ...], axis: Value | None) -> None:
        """Supposes that concatenated tensors have equal extents along all axes but one."""
        shapes = [self.terms.shape(term) for term, starred in operands if not starred]
        if len(shapes) < len(operands) or not isinstance(axis, Number):
            return
        rests = []
        for shape in shapes:
            place = position(shape, axis)
            if place is None or len(shape) != len(shapes[0]):
                return
            rests.append((*shape[:place], *shape[place + 1 :]))
        for rest in rests[1:]:
            self._suppose_same_shape(rests[0], rest)

    def _suppose_same_shape(self, a: Shape, b: Shape) -> None:
        if len(a) != len(b):
            return
        row_a, row_b = (tuple(i for i in shape if isinstance(i, (Number, Span))) for shape in (a, b))
        if len(row_a) == len(a) and len(row_b) == len(b) and _aligned(row_a, row_b):
            for x, y in zip(row_a, row_b, strict=True):
                if isinstance(x, Number) and isinstance(y, Number):
                    self.facts.suppose(self.facts.equation(x, y))
                else:
                    self.facts.suppose(self.facts.equation((x,), (y,)))


def _aligned(a: Row, b: Row) -> bool:
    """Returns whether equal lists have equal entries: each has at most one run of unknown length, at the same place."""
    places = [[at for at, item in enumerate(row) if isinstance(item, Span)] for row in (a, b)]
    return places[0] == places[1] and len(places[0]) <= 1


def _list_lengths(rule: RuleText) -> Mapping[str, int]:
    """Returns the lengths of attributes' lists, by symbol, as far as conditions give them."""
    found: dict[str, int] = {}
    for condition in _conjuncts(rule.conditions):
        match condition:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=int() as count)],
            ):
                found[name] = count
    return found


def _conjuncts(conditions: tuple[ast.expr, ...]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for condition in conditions:
        match condition:
            case ast.BoolOp(op=ast.And(), values=values):
                found += _conjuncts(tuple(values))
            case _:
                found.append(condition)
    return found


def _in_order(statements: tuple[Statement, ...], known: set[str]) -> list[Statement]:
    """Returns the statements in an order in which each follows those whose results it reads."""
    ordered: list[Statement] = []
    waiting = list(statements)
    while waiting:
        ready = next((s for s in waiting if all(term.name in known for term in s.arguments)), None)
        if ready is None:
            raise UnknownError
        waiting.remove(ready)
        ordered.append(ready)
        known |= {term.name for term in ready.results}
    return ordered


def _asked_for(rule: RuleText) -> set[str]:
    """Returns the names of constants whose contents the rule uses; it matches only if these contents are known."""
    alone = [each for each in _conjuncts(rule.conditions) if not isinstance(each, (ast.BoolOp, ast.UnaryOp))]
    made = [value for statement in rule.target for value in statement.attributes.values()]
    return {
        call.args[0].id
        for expression in (*alone, *made)
        for call in ast.walk(expression)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "value"
        and isinstance(call.args[0], ast.Name)
    }
