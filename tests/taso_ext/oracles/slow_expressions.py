"""A second implementation of the expressions of the rule language, for the tests."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

import numpy as np
from onnx import TensorProto

from taso_ext.onnx_io.weights.content import NONZERO, PATTERNS, known, materialise

Number = int | float
Quantity = Number | str | tuple[Number, ...]
Dims = tuple[int, ...]
T = TypeVar("T")

LONGEST_REPEAT = 64


@dataclass(frozen=True)
class Scope:
    """The meaning of names: symbols, dims, contents and dtypes of tensors, lengths of lists, and attributes.

    The attributes are those that `@name` binds and those of operator variables; `attribute_names` also has the names of
    attributes that expressions do not know.
    """

    symbols: Mapping[str, Quantity]
    dims: Mapping[str, Dims]
    contents: Mapping[str, float | str | None]
    lengths: Mapping[str, int] = field(default_factory=dict)
    rests: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    attribute_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)


class NoValueError(Exception):
    """An expression has no value: a symbol is unbound, an index out of range, a division inexact, and so on."""


def evaluate(expression: ast.expr, scope: Scope) -> Quantity | None:
    """Returns the value of an expression, or None if it has none; the value of a comparison is 1 or 0."""
    try:
        return _value(expression, scope)
    except NoValueError:
        return None


def holds(condition: ast.expr, scope: Scope) -> bool:
    """Returns whether a condition has a value and is true."""
    value = evaluate(condition, scope)
    return isinstance(value, (int, float)) and value != 0


def same(a: Quantity, b: Quantity) -> bool:
    """Returns whether two values are equal; reals may differ by two units in the last place of float32."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (not (isinstance(a, int) and isinstance(b, int)) and abs(a - b) <= 2 * _spacing(a, b))
    return a == b


def _spacing(a: float, b: float) -> float:
    largest = np.float32(max(abs(a), abs(b)))
    return float(np.spacing(largest)) if np.isfinite(largest) else 0.0


def _value(expression: ast.expr, scope: Scope) -> Quantity:
    match expression:
        case ast.Constant(int(constant) | float(constant) | str(constant)):
            return constant
        case ast.Name(name):
            return _known(scope.symbols, name)
        case ast.List(items):
            return tuple(number for item in items for number in _item(item, scope))
        case ast.Subscript(values, index):
            return _element(_list(values, scope), _number(index, scope))
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand, scope)
        case ast.UnaryOp(ast.Not(), operand):
            return int(not holds(operand, scope))
        case ast.BoolOp(operator, operands):
            return int((all if isinstance(operator, ast.And) else any)([holds(each, scope) for each in operands]))
        case ast.Compare(left, [relation], [right]):
            return int(_compare(relation, left, right, scope))
        case ast.BinOp(left, operator, right):
            return _elementwise(operator, _value(left, scope), _value(right, scope))
        case ast.Call(ast.Name(function), arguments):
            return _call(function, arguments, scope)
    raise NotImplementedError(ast.dump(expression))


def _known(names: Mapping[str, T], name: str) -> T:
    if name not in names:
        raise NoValueError
    return names[name]


def _number(expression: ast.expr, scope: Scope) -> Any:
    value = _value(expression, scope)
    if not isinstance(value, (int, float)):
        raise NoValueError
    return value


def _list(expression: ast.expr, scope: Scope) -> Any:
    value = _value(expression.value if isinstance(expression, ast.Starred) else expression, scope)
    if not isinstance(value, tuple):
        raise NoValueError
    return value


def _item(item: ast.expr, scope: Scope) -> Any:
    return _list(item, scope) if isinstance(item, ast.Starred) else (_number(item, scope),)


def _element(values: Any, index: Any) -> Any:
    if not isinstance(index, int) or not -len(values) <= index < len(values):
        raise NoValueError
    return values[index]


def _compare(relation: ast.cmpop, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
    if isinstance(relation, (ast.Eq, ast.NotEq)):
        return same(_value(left, scope), _value(right, scope)) == isinstance(relation, ast.Eq)
    a, b = _number(left, scope), _number(right, scope)
    if same(a, b):
        return isinstance(relation, (ast.LtE, ast.GtE))
    return (a < b) == isinstance(relation, (ast.Lt, ast.LtE))


def _elementwise(operator: ast.operator, a: Quantity, b: Quantity) -> Quantity:
    """Applies an operator to two numbers, or element by element; a number beside a list is repeated."""
    if isinstance(a, str) or isinstance(b, str):
        raise NoValueError
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return _arithmetic(operator, a, b)
    length = len(a) if isinstance(a, tuple) else len(b)  # type: ignore[arg-type]
    first, second = (each if isinstance(each, tuple) else (each,) * length for each in (a, b))
    if len(first) != len(second):
        raise NoValueError
    return tuple(_arithmetic(operator, x, y) for x, y in zip(first, second, strict=True))


def _arithmetic(operator: ast.operator, a: Number, b: Number) -> Number:
    real = isinstance(a, float) or isinstance(b, float)
    match operator:
        case ast.Div() if real and b != 0:
            return a / b
        case ast.Mod() if real:
            raise NoValueError
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() if not real and b != 0 and a % b == 0:
            return a // b
        case ast.Mod() if b > 0:
            return a % b
    raise NoValueError


def _call(function: str, arguments: list[ast.expr], scope: Scope) -> Quantity:
    if function in _OF_A_TENSOR:
        tensor = _name(arguments[0])
        return _OF_A_TENSOR[function](_known(scope.dims, tensor), scope.contents.get(tensor))
    if function == "dtype":
        return TensorProto.DataType.Name(_known(scope.dtypes, _name(arguments[0]))).lower()
    if function == "count":
        return _known(scope.lengths, _name(arguments[0]))
    if function == "only":
        owner, *names = map(_name, arguments)
        return int(_known(scope.attribute_names, owner) <= set(names))
    if function == "attribute":
        found, name = _known(scope.rests, _name(arguments[0])), _name(arguments[1])
        return _value(arguments[2], scope) if name not in found and len(arguments) > 2 else _known(found, name)
    if function == "within":
        value, low, high = _value(arguments[0], scope), _number(arguments[1], scope), _number(arguments[2], scope)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, str) for number in numbers):
            raise NoValueError
        return int(all(low <= number <= high for number in numbers))
    if function == "sqrt":
        radicand = _number(arguments[0], scope)
        if radicand < 0:
            raise NoValueError
        return float(radicand) ** 0.5
    if function == "repeat":
        value, count = (_number(each, scope) for each in arguments)
        if not 0 <= count <= LONGEST_REPEAT:
            raise NoValueError
        return (value,) * count
    first = _list(arguments[0], scope)
    if function in ("take", "drop"):
        count = _number(arguments[1], scope)
        if not 0 <= count <= len(first):
            raise NoValueError
        return first[:count] if function == "take" else first[count:]
    if function == "permute":
        return tuple(_element(first, _natural(index)) for index in _list(arguments[1], scope))
    return _OF_A_LIST[function](first)


def _name(expression: ast.expr) -> str:
    assert isinstance(expression, ast.Name)
    return expression.id


def _natural(index: int) -> int:
    if index < 0:
        raise NoValueError
    return index


def _inverse(perm: Dims) -> Dims:
    if sorted(perm) != list(range(len(perm))):
        raise NoValueError
    return tuple(perm.index(i) for i in range(len(perm)))


def _uniform(dims: Dims, content: float | str | None) -> float:
    if not isinstance(content, float):
        raise NoValueError
    return content


def _holds_pattern(name: str) -> Callable[[Dims, float | str | None], int]:
    """Returns a function that checks whether a tensor of some content is the pattern, by materialising both."""

    def holds_pattern(dims: Dims, content: float | str | None) -> int:
        pattern = PATTERNS[name](dims)
        if known(content) is None or content is None or pattern is None:
            return 0
        return int(all(map(same, materialise(content, dims).ravel().tolist(), pattern.ravel().tolist())))

    return holds_pattern


def _is_finite(content: float | str | None) -> bool:
    return bool(np.isfinite(content)) if isinstance(content, float) else content is not None


def _is_nonzero(content: float | str | None) -> bool:
    return content == NONZERO or (isinstance(content, float) and _is_finite(content) and content != 0)


_OF_A_TENSOR: dict[str, Callable[[Dims, float | str | None], Quantity]] = {
    "rank": lambda dims, content: len(dims),
    "dims": lambda dims, content: dims,
    "size": lambda dims, content: prod(dims),
    "value": _uniform,
    "is_identity": _holds_pattern("identity"),
    "is_identity_kernel": _holds_pattern("identity-kernel"),
    "is_averaging_kernel": _holds_pattern("averaging-kernel"),
    "is_finite": lambda dims, content: int(_is_finite(content)),
    "is_nonzero": lambda dims, content: int(_is_nonzero(content)),
}

_OF_A_LIST: dict[str, Callable[[Dims], Quantity]] = {
    "len": len,
    "prod": prod,
    "sum": sum,
    "sorted": lambda values: tuple(sorted(values)),
    "inverse": _inverse,
}
