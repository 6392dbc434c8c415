"""Integer expressions of the rule language, which have a value for each concrete case.

height, rate = symbol("h"), symbol("d[0]")
(height / rate).text                       # "h / d[0]"
(height / rate).value({"h": 6, "d[0]": 2})  # 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

Env = Mapping[str, int]
"""The values of symbols in one case; `d[0]` and `dims(t)[2]` are symbols like any other."""

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_ATOM = 3


class InexactError(ArithmeticError):
    """A quotient is no integer, or its divisor is not positive, so that the expression has no value in a case."""


@dataclass(frozen=True)
class Expression:
    """A number, a symbol, or an operation on two expressions.

    Attributes:
      head: the digits of a number, the name of a symbol, or one of + - * / %.
      parts: the two operands of an operation; empty for numbers and symbols.
    """

    head: str
    parts: tuple[Expression, ...] = ()

    @cached_property
    def text(self) -> str:
        """The expression in the rule language, with as few parentheses as it needs."""
        if not self.parts:
            return self.head
        left, right = self.parts
        strength = _STRENGTH[self.head]
        first = left.text if left._strength >= strength else f"({left.text})"
        second = right.text if right._strength > strength else f"({right.text})"
        return f"{first} {self.head} {second}"

    @property
    def _strength(self) -> int:
        return _STRENGTH[self.head] if self.parts else _ATOM

    @property
    def number(self) -> int | None:
        """The value of a literal number; None for anything else."""
        return int(self.head) if not self.parts and self.head.isdigit() else None

    def value(self, env: Env) -> int:
        """Returns the value in a case.

        Raises:
          InexactError: if a quotient is no integer or a divisor is not positive.
          KeyError: if the case lacks a symbol.
        """
        return self._function(env)

    @cached_property
    def _function(self) -> Callable[[Env], int]:
        return _compiled(self._python())

    def _python(self) -> str:
        """Returns the expression in Python, as a function of `env`: many cases evaluate the same few expressions."""
        if not self.parts:
            return self.head if self.head.isdigit() else f"env[{self.head!r}]"
        left, right = (part._python() for part in self.parts)
        if self.head in ("/", "%"):
            return f"{'_exact' if self.head == '/' else '_remainder'}({left}, {right})"
        return f"({left} {self.head} {right})"

    def quotients(self) -> Iterator[Expression]:
        """Yields every quotient in the expression, which must be exact for a rule to match."""
        for part in self.parts:
            yield from part.quotients()
        if self.head == "/":
            yield self

    def __add__(self, other: Expression) -> Expression:
        if self.number == 0:
            return other
        return self if other.number == 0 else Expression("+", (self, other))

    def __sub__(self, other: Expression) -> Expression:
        return self if other.number == 0 else Expression("-", (self, other))

    def __mul__(self, other: Expression) -> Expression:
        if self.number == 1:
            return other
        if self.head == "/" and self.parts[1] == other:
            return self.parts[0]
        return self if other.number == 1 else Expression("*", (self, other))

    def __truediv__(self, other: Expression) -> Expression:
        if self == other:
            return ONE
        return self if other.number == 1 else Expression("/", (self, other))

    def __mod__(self, other: Expression) -> Expression:
        return ZERO if other.number == 1 else Expression("%", (self, other))


def _exact(a: int, b: int) -> int:
    if b <= 0 or a % b:
        raise InexactError(f"{a} / {b} is no integer")
    return a // b


def _remainder(a: int, b: int) -> int:
    if b <= 0:
        raise InexactError(f"{a} % {b} has no value")
    return a % b


@cache
def _compiled(python: str) -> Callable[[Env], int]:
    function: Callable[[Env], int] = eval(f"lambda env: {python}", {"_exact": _exact, "_remainder": _remainder})
    return function


def number(value: int) -> Expression:
    """Returns a literal; a negative one is written as a difference from 0, as the rule language needs it."""
    return Expression(str(value)) if value >= 0 else Expression("-", (Expression("0"), Expression(str(-value))))


def symbol(name: str) -> Expression:
    """Returns a symbol, such as `h`, `d[0]` or `dims(y)[2]`."""
    return Expression(name)


ZERO, ONE = number(0), number(1)


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yields an expression and all parts of it, at any depth."""
    yield expression
    for part in expression.parts:
        yield from parts_of(part)


def product(factors: Sequence[Expression]) -> Expression:
    """Returns the product of any number of factors; 1 if there are none."""
    found = ONE
    for factor in factors:
        found = found * factor
    return found


def listed(parts: Sequence[Expression]) -> str:
    """Returns expressions as a list of the rule language."""
    return f"[{', '.join(part.text for part in parts)}]"
