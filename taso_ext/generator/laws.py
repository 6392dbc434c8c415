"""Equations between expressions, as the native part finds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taso_ext.generator.grid import VARIABLE, Domain, Operator

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Term:
    """An expression: an operator and its operands, a variable or a constant.

    Attributes:
      head: the operator's name, or the content of a leaf.
      shapes: of the result, in each shape set.
      number: of a variable.
    """

    head: str
    shapes: Shapes
    operands: tuple[Term, ...] = ()
    number: int = -1

    @property
    def is_variable(self) -> bool:
        return self.head == VARIABLE

    @property
    def is_leaf(self) -> bool:
        return not self.operands

    @cached_property
    def written_size(self) -> int:
        """Operators, those that are shared as often as they are read."""
        return (not self.is_leaf) + sum(operand.written_size for operand in self.operands)

    def subterms(self) -> Iterator[Term]:
        """Every occurrence of an expression in this one, operands first, itself last."""
        for operand in self.operands:
            yield from operand.subterms()
        yield self

    @cached_property
    def variables(self) -> frozenset[int]:
        """Numbers of the variables."""
        return frozenset(each.number for each in self.subterms() if each.is_variable)


@dataclass(frozen=True)
class Law:
    """Two equal expressions of a domain; the right one is not larger."""

    domain: Domain
    left: Term
    right: Term

    @property
    def size(self) -> int:
        """Operators of both sides."""
        return self.left.written_size + self.right.written_size

    @property
    def repeats_operand(self) -> bool:
        """Whether an operator has one tensor as both operands, as in x + x: networks do not do that."""
        return any(
            len(set(each.operands)) < len(each.operands) for side in (self.left, self.right) for each in side.subterms()
        )

    def operator(self, term: Term) -> Operator:
        """The operator of an expression."""
        return self.domain.by_name[term.head]

    def operators(self) -> list[Operator]:
        """Those of both sides, without repetition."""
        terms = [each for side in (self.left, self.right) for each in side.subterms() if not each.is_leaf]
        return list(dict.fromkeys(self.operator(term) for term in terms))


def read_law(domain: Domain, native: tuple[Any, Any]) -> Law:
    """A law as `taso_ext._generator.enumerate` returns it."""
    return Law(domain, *(_read_term(side) for side in native))


def _read_term(native: tuple[Any, ...]) -> Term:
    head, *rest = native
    if head in ("$", "#"):
        shapes = tuple(tuple(dims) for dims in rest[1])
        return Term(VARIABLE, shapes, number=rest[0]) if head == "$" else Term(rest[0], shapes)
    return Term(head, tuple(tuple(dims) for dims in rest[0]), tuple(_read_term(each) for each in rest[1:]))
