"""Values of the rule language's expressions, with symbols in them, and what follows from the conditions of a rule.

z3 decides linear and polynomial arithmetic. Integers are treated as reals, because what holds for all reals holds for
all integers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Protocol

import z3

from taso_ext.verify.axioms.symbolic_values import (
    Attributes,
    Each,
    Number,
    Row,
    Shape,
    Span,
    UnknownError,
    Unlike,
    Value,
    entry,
    length,
    product,
    total,
)


class Scope(Protocol):
    """The values of the names in an expression. Each method raises UnknownError if the value is not known."""

    def symbol(self, name: str) -> Value: ...

    def shape(self, tensor: str) -> Shape: ...

    def contents(self, tensor: str) -> Number:
        """Returns the number that all elements of the tensor have."""


def evaluate(expression: ast.expr, scope: Scope) -> Value:
    """Returns the value of an expression that is not a condition.

    Raises:
      UnknownError: if it has no value, or none that `Value` can express.
    """
    match expression:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=bool()):
            raise UnknownError
        case ast.Constant(value=int() | float() as number):
            return Number.of(number)
        case ast.Name(id=name):
            return scope.symbol(name)
        case ast.List(elts=elements):
            return _list(elements, scope)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Number.of(0) - number_of(operand, scope)
        case ast.BinOp(left=left, op=sign, right=right):
            return _arithmetic(type(sign).__name__, evaluate(left, scope), evaluate(right, scope))
        case ast.Subscript(value=row, slice=at):
            return entry(row_of(row, scope), number_of(at, scope))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, arguments, scope)
    raise UnknownError


def number_of(expression: ast.expr, scope: Scope) -> Number:
    value = evaluate(expression, scope)
    if not isinstance(value, Number):
        raise UnknownError
    return value


def row_of(expression: ast.expr, scope: Scope) -> Row:
    value = evaluate(expression, scope)
    if not isinstance(value, tuple):
        raise UnknownError
    return value


def row_of_shape(shape: Shape) -> Row:
    """Returns a shape as a list. Raises UnknownError if it differs between the elements of a list of tensors."""
    if any(isinstance(item, (Each, Unlike)) for item in shape):
        raise UnknownError
    return tuple(item for item in shape if isinstance(item, (Number, Span)))


def _list(elements: list[ast.expr], scope: Scope) -> Row:
    row: Row = ()
    for element in elements:
        if isinstance(element, ast.Starred):
            row += row_of(element.value, scope)
        else:
            row += (number_of(element, scope),)
    return row


def _arithmetic(sign: str, a: Value, b: Value) -> Value:
    if isinstance(a, Number) and isinstance(b, Number):
        return _number_arithmetic(sign, a, b)
    if isinstance(a, (str, Attributes)) or isinstance(b, (str, Attributes)):
        raise UnknownError
    rows = [each for each in (a, b) if isinstance(each, tuple)]
    if all(isinstance(item, Number) for row in rows for item in row):
        count = len(rows[0])
        if any(len(row) != count for row in rows):
            raise UnknownError
        left = a if isinstance(a, tuple) else (a,) * count
        right = b if isinstance(b, tuple) else (b,) * count
        return tuple(_number_arithmetic(sign, x, y) for x, y in zip(left, right, strict=True))  # type: ignore[arg-type]
    return (Span(("elementwise", sign, a, b)),)


def _number_arithmetic(sign: str, a: Number, b: Number) -> Number:
    match sign:
        case "Add":
            return a + b
        case "Sub":
            return a - b
        case "Mult":
            return a * b
        case "Div" if b.literal:
            return a * Number.of(Fraction(1) / b.literal)
        case "Div":
            return Number.atom(("quotient", a, b))
        case "Mod":
            return Number.atom(("remainder", a, b))
    raise UnknownError


def _call(name: str, arguments: list[ast.expr], scope: Scope) -> Value:
    if name in _OF_TENSORS:
        match arguments[0]:
            case ast.Name(id=tensor):
                return _OF_TENSORS[name](scope, tensor)
        raise UnknownError
    if name in _OF_VALUES:
        return _OF_VALUES[name](*(evaluate(each, scope) for each in arguments))
    raise UnknownError


def _row(value: Value) -> Row:
    if not isinstance(value, tuple):
        raise UnknownError
    return value


def _count(value: Value) -> int:
    if not isinstance(value, Number) or value.integer is None or value.integer < 0:
        raise UnknownError
    return value.integer


def _is_plain(row: Row) -> bool:
    return all(isinstance(item, Number) for item in row)


def _begins_plainly(row: Row, count: int) -> bool:
    return len(row) >= count and _is_plain(row[:count])


def _repeat(value: Value, count: Value) -> Row:
    if not isinstance(value, Number) or not isinstance(count, Number):
        raise UnknownError
    if count.integer is not None:
        return (value,) * _count(count)
    return (Span(("repeat", value, count)),)


def _take(value: Value, count: Value) -> Row:
    row = _row(value)
    if isinstance(count, Number) and count.integer is not None and _begins_plainly(row, _count(count)):
        return row[: _count(count)]
    return (Span(("take", row, count)),)


def _drop(value: Value, count: Value) -> Row:
    row = _row(value)
    if isinstance(count, Number) and count.integer is not None and _begins_plainly(row, _count(count)):
        return row[_count(count) :]
    return (Span(("drop", row, count)),)


def _sorted(value: Value) -> Row:
    row = _row(value)
    numbers = [item.literal for item in row if isinstance(item, Number)]
    if len(numbers) == len(row) and all(number is not None for number in numbers):
        return tuple(Number.of(number) for number in sorted(n for n in numbers if n is not None))
    return (Span(("as long as", row, "sorted")),)


def integers(row: Row) -> list[int] | None:
    """Returns a list of integer literals as integers; None if an entry is anything else."""
    found = [item.integer for item in row if isinstance(item, Number)]
    return [each for each in found if each is not None] if len(found) == len(row) and None not in found else None


def _inverse(value: Value) -> Row:
    row = _row(value)
    order = integers(row)
    if order is None:
        return (Span(("as long as", row, "inverse")),)
    if sorted(order) != list(range(len(order))):
        raise UnknownError
    return tuple(Number.of(order.index(place)) for place in range(len(order)))


def _permute(value: Value, order: Value) -> Row:
    row, places = _row(value), integers(_row(order))
    if places is not None and _is_plain(row) and sorted(places) == list(range(len(row))):
        return tuple(row[place] for place in places)
    return (Span(("as long as", row, "permute", _row(order))),)


def _sqrt(value: Value) -> Number:
    if not isinstance(value, Number):
        raise UnknownError
    return Number.atom(("sqrt", value))


_OF_TENSORS: dict[str, Callable[[Scope, str], Value]] = {
    "rank": lambda scope, tensor: length(scope.shape(tensor)),
    "dims": lambda scope, tensor: row_of_shape(scope.shape(tensor)),
    "size": lambda scope, tensor: product(scope.shape(tensor)),
    "value": lambda scope, tensor: scope.contents(tensor),
}

_OF_VALUES: dict[str, Callable[..., Value]] = {
    "len": lambda row: length(_row(row)),
    "prod": lambda row: product(_row(row)),
    "sum": lambda row: total(_row(row)),
    "sqrt": _sqrt,
    "repeat": _repeat,
    "take": _take,
    "drop": _drop,
    "sorted": _sorted,
    "inverse": _inverse,
    "permute": _permute,
}


_EFFORT = 200_000
"""The limit of z3's own count of steps. Unlike a time limit, it gives the same answer on every machine."""


class Facts:
    """Premises, and checks whether they imply a conclusion. The answer "no" may also mean that z3 could not decide."""

    def __init__(self) -> None:
        self._solver = z3.Solver()
        self._solver.set("rlimit", _EFFORT)
        self._atoms: dict[Hashable, z3.ArithRef] = {}
        self._rows: dict[Row, z3.ExprRef] = {}
        self._row_sort = z3.DeclareSort("Row")
        self._answers: dict[tuple[Value, Value], bool] = {}

    def suppose(self, premise: z3.BoolRef) -> None:
        self._solver.add(premise)
        self._answers.clear()

    def suppose_condition(self, condition: ast.expr, scope: Scope) -> None:
        """Adds a rule's condition to the premises, as far as `Value` can express it."""
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            for each in condition.values:
                self.suppose_condition(each, scope)
            return
        try:
            self.suppose(self.formula(condition, scope))
        except UnknownError:
            return  # fewer premises prove less

    def imply_condition(self, condition: ast.expr, scope: Scope) -> bool:
        """Returns whether a condition certainly holds."""
        try:
            return self.imply(self.formula(condition, scope))
        except UnknownError:
            return False

    def imply(self, conclusion: z3.BoolRef) -> bool:
        self._solver.push()
        self._solver.add(z3.Not(conclusion))
        found = self._solver.check()
        self._solver.pop()
        return bool(found == z3.unsat)

    def contradictory(self) -> bool:
        return bool(self._solver.check() == z3.unsat)

    def same(self, a: Value, b: Value) -> bool:
        """Returns whether two values are certainly equal."""
        if a == b:
            return True
        if isinstance(a, (str, Attributes)) or isinstance(b, (str, Attributes)):
            return False
        if isinstance(a, Number) != isinstance(b, Number):
            return False
        if isinstance(a, Number) and isinstance(b, Number) and (a - b).literal is not None:
            return False  # they differ by a constant
        if (a, b) not in self._answers:
            self._answers[a, b] = self.imply(self.equation(a, b))
        return self._answers[a, b]

    def formula(self, condition: ast.expr, scope: Scope) -> z3.BoolRef:
        """Returns a condition in z3's language.

        Raises:
          UnknownError: if the condition cannot be expressed there.
        """
        match condition:
            case ast.BoolOp(op=ast.And(), values=values):
                return z3.And([self.formula(value, scope) for value in values])
            case ast.BoolOp(op=ast.Or(), values=values):
                return z3.Or([self.formula(value, scope) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return z3.Not(self.formula(operand, scope))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._comparison(sign, evaluate(left, scope), evaluate(right, scope))
        raise UnknownError

    def _comparison(self, sign: ast.cmpop, a: Value, b: Value) -> z3.BoolRef:
        if isinstance(sign, (ast.Eq, ast.NotEq)):
            equal = self.equation(a, b)
            return equal if isinstance(sign, ast.Eq) else z3.Not(equal)
        if not isinstance(a, Number) or not isinstance(b, Number):
            raise UnknownError
        left, right = self.real(a), self.real(b)
        match sign:
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
        raise UnknownError

    def equation(self, a: Value, b: Value) -> z3.BoolRef:
        """Returns the formula for two equal values. Lists are equal if their entries are, or if a premise says so."""
        if isinstance(a, Number) and isinstance(b, Number):
            return self.real(a) == self.real(b)
        if isinstance(a, tuple) and isinstance(b, tuple):
            return self._row_equation(a, b)
        if isinstance(a, str) and isinstance(b, str):
            return z3.BoolVal(a == b)
        raise UnknownError

    def _row_equation(self, a: Row, b: Row) -> z3.BoolRef:
        if a == b:
            return z3.BoolVal(True)
        plain = all(isinstance(item, Number) for item in (*a, *b))
        if plain and len(a) != len(b):
            return z3.BoolVal(False)
        entries = z3.BoolVal(False)
        if len(a) == len(b) and all(isinstance(x, Number) == isinstance(y, Number) for x, y in zip(a, b, strict=True)):
            pairs = zip(a, b, strict=True)
            entries = z3.And(
                [
                    self.real(x) == self.real(y)
                    if isinstance(x, Number) and isinstance(y, Number)
                    else self._row((x,)) == self._row((y,))
                    for x, y in pairs
                ]
            )
        return entries if plain else z3.Or(self._row(a) == self._row(b), entries)

    def real(self, number: Number) -> z3.ArithRef:
        """Returns a number in z3's language."""
        terms = []
        for monomial, coefficient in number.terms:
            term: z3.ArithRef = z3.RealVal(str(coefficient))
            for atom, power in monomial:
                for _ in range(power):
                    term = term * self._atom(atom)
            terms.append(term)
        return z3.Sum(terms) if terms else z3.RealVal(0)

    def _atom(self, name: Hashable) -> z3.ArithRef:
        if name not in self._atoms:
            self._atoms[name] = z3.Real(f"a{len(self._atoms)}")
            match name:
                case ("quotient", Number() as a, Number() as b):  # for integers it is exact, else nothing matches
                    divisor = self.real(b)
                    self._solver.add(z3.Implies(divisor != 0, self._atoms[name] * divisor == self.real(a)))
                case ("sqrt", Number() as square):
                    root, inside = self._atoms[name], self.real(square)
                    self._solver.add(z3.Implies(inside >= 0, z3.And(root * root == inside, root >= 0)))
                case ("len" | "prod", _):
                    self._solver.add(self._atoms[name] >= 0)
        return self._atoms[name]

    def _row(self, row: Row) -> z3.ExprRef:
        if row not in self._rows:
            self._rows[row] = z3.Const(f"r{len(self._rows)}", self._row_sort)
        return self._rows[row]
