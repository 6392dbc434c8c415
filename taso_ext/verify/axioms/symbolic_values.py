"""Numbers and lists of numbers with symbols in them, as in the attributes and shapes of rules.

They have a normal form, so most values that are equal are also equal Python objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Monomial: TypeAlias = tuple[tuple[Hashable, int], ...]
"""A product: atoms with their exponents, in the order of the texts of the atoms."""


@dataclass(frozen=True)
class Number:
    """A polynomial: monomials, in the order of their texts, with their coefficients, none of which is 0."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @staticmethod
    def of(value: int | float | Fraction) -> Number:
        """Returns a literal. A float becomes the decimal fraction that it is written as."""
        exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
        return Number((((), exact),) if exact else ())

    @staticmethod
    def atom(name: Hashable) -> Number:
        return Number(((((name, 1),), Fraction(1)),))

    @property
    def literal(self) -> Fraction | None:
        """The value if the number has no symbols, else None."""
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def integer(self) -> int | None:
        value = self.literal
        return None if value is None or value.denominator != 1 else value.numerator

    def __add__(self, other: Number) -> Number:
        return _collected([*self.terms, *other.terms])

    def __sub__(self, other: Number) -> Number:
        return self + other * Number.of(-1)

    def __mul__(self, other: Number) -> Number:
        return _collected([(_product(p, q), a * b) for p, a in self.terms for q, b in other.terms])


@dataclass(frozen=True)
class Span:
    """Any number of entries of a list or shape; only a name is known for them."""

    name: Hashable


@dataclass(frozen=True)
class Each:
    """An extent that differs between the elements of a list of tensors; `values` lists these extents."""

    values: Row


@dataclass(frozen=True)
class Unlike:
    """Extents that may differ between the elements of a list of tensors, also in number."""

    name: Hashable


Row: TypeAlias = "tuple[Number | Span, ...]"
Shape: TypeAlias = "tuple[Number | Span | Each | Unlike, ...]"
Value: TypeAlias = "Number | Row | str | Attributes"


@dataclass(frozen=True)
class Attributes:
    """The attributes of an operator.

    Attributes:
      known: the known attributes, by name.
      rest: the name `r` of the attributes that a rule leaves open as `@r`; None if there are none.
    """

    known: tuple[tuple[str, Value], ...]
    rest: str | None


class UnknownError(Exception):
    """A value cannot be determined without numbers for the symbols."""


ONE, ZERO = Number.of(1), Number.of(0)


def length(row: Iterable[object]) -> Number:
    """Returns the length of a list, or the rank of a shape.

    Raises:
      UnknownError: if the rank may differ between the elements of a list of tensors.
    """
    total = ZERO
    for item in row:
        if isinstance(item, Unlike):
            raise UnknownError
        total += span_length(item) if isinstance(item, Span) else ONE
    return total


def span_length(span: Span) -> Number:
    """Returns the number of entries; it is that of `row` if the name of the span is ("as long as", row, ...)."""
    name = span.name
    if isinstance(name, tuple) and name and name[0] == "as long as":
        return length(name[1])
    return Number.atom(("len", name))


def product(row: Iterable[object]) -> Number:
    """Returns the product of all entries; 1 if there are none."""
    total = ONE
    for item in row:
        total *= _entry(item, "prod")
    return total


def total(row: Iterable[object]) -> Number:
    """Returns the sum of all entries; 0 if there are none."""
    result = ZERO
    for item in row:
        result += _entry(item, "sum")
    return result


def entry(row: tuple[object, ...], at: Number) -> Number:
    """Returns `row[at]`, where a negative literal counts from the end; an atom if the position is not known.

    Raises:
      UnknownError: if the entry may differ between the elements of a list of tensors.
    """
    place = position(row, at)
    if place is not None:
        item = row[place]
        if isinstance(item, Number):
            return item
        raise UnknownError
    if any(isinstance(item, (Each, Unlike)) for item in row):
        raise UnknownError
    return Number.atom(("at", row, at))


def position(row: tuple[object, ...], at: Number) -> int | None:
    """Returns the index of the item of `row` at `at`, where a negative literal counts from the end; None if unknown."""
    if any(isinstance(item, Unlike) for item in row):
        before: tuple[object, ...] = ()
        for place, item in enumerate(row):
            if isinstance(item, Unlike):
                break
            if at == length(before) and not isinstance(item, Span):
                return place
            before = (*before, item)
    else:
        whole = length(row)
        wanted = at + whole if at.integer is not None and at.integer < 0 else at
        before = ()
        for place, item in enumerate(row):
            if wanted == length(before) and not isinstance(item, Span):
                return place
            before = (*before, item)
    number = at.integer
    if number is not None and number < 0:
        behind = row[number:]
        if len(behind) == -number and not any(isinstance(item, (Span, Unlike)) for item in behind):
            return len(row) + number
    return None


def _entry(item: object, function: str) -> Number:
    if isinstance(item, Span):
        return Number.atom((function, item.name))
    if isinstance(item, Number):
        return item
    raise UnknownError


def _product(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda each: repr(each[0])))


def _collected(terms: list[tuple[Monomial, Fraction]]) -> Number:
    sums: dict[Monomial, Fraction] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, Fraction(0)) + coefficient
    return Number(tuple(sorted(((m, c) for m, c in sums.items() if c), key=lambda each: repr(each[0]))))
