"""Expressions of the rule language with symbols for values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

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
    """What the names of an expression stand for; each raises UnknownError where that is not known."""

    def symbol(self, name: str) -> Value: ...

    def shape(self, tensor: str) -> Shape: ...

    def contents(self, tensor: str) -> Number:
        """What all its elements are, if that is one number."""


def evaluate(expression: ast.expr, scope: Scope) -> Value:
    """The value of an expression that is no condition.

    Raises:
      UnknownError: if it has none, or none that this language of values can say.
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
    """A shape as a list.

    Raises:
      UnknownError: if it differs between the elements of a list of tensors.
    """
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
    """Of a list of literals."""
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
