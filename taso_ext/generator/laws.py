"""Laws: equations between expressions, as the native part finds them, and the rewritings that they allow.

By a law, each side may replace the other. By two laws about the two parts of one split, the right sides may replace the
parts, and the reverse. By a law about a concatenation, the other side may be split back into the operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taso_ext.generator.grid import VARIABLE, Domain, Operator, operator

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Term:
    """An expression: an operator with its operands, a variable, or a constant.

    Attributes:
      head: the operator's name, or the content of a leaf.
      shapes: the shape of the result in each shape set.
      number: the number of a variable; −1 for other expressions.
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
        """The number of operators; a shared operator counts once for each time that it is read."""
        return (not self.is_leaf) + sum(operand.written_size for operand in self.operands)

    def subterms(self) -> Iterator[Term]:
        """Yields every occurrence of an expression in this one: operands first, itself last."""
        for operand in self.operands:
            yield from operand.subterms()
        yield self

    @cached_property
    def variables(self) -> frozenset[int]:
        """The numbers of the variables."""
        return frozenset(each.number for each in self.subterms() if each.is_variable)


@dataclass(frozen=True)
class Law:
    """Two equal expressions of a domain; the right one is not larger."""

    domain: Domain
    left: Term
    right: Term

    @property
    def size(self) -> int:
        """The number of operators of both sides together."""
        return self.left.written_size + self.right.written_size

    @property
    def repeats_operand(self) -> bool:
        """Whether an operator has one tensor as both operands, as in x + x, which does not occur in networks."""
        return any(
            len(set(each.operands)) < len(each.operands) for side in (self.left, self.right) for each in side.subterms()
        )

    def operator(self, term: Term) -> Operator:
        """Returns the operator of an expression."""
        return self.domain.by_name[term.head]

    def operators(self) -> list[Operator]:
        """Returns the operators of both sides, without repetition."""
        terms = [each for side in (self.left, self.right) for each in side.subterms() if not each.is_leaf]
        return list(dict.fromkeys(self.operator(term) for term in terms))


def read_law(domain: Domain, native: tuple[Any, Any]) -> Law:
    """Returns the law of a pair of expressions from `taso_ext._generator.enumerate`."""
    return Law(domain, *(_read_term(side) for side in native))


def _read_term(native: tuple[Any, ...]) -> Term:
    head, *rest = native
    if head in ("$", "#"):
        shapes = tuple(tuple(dims) for dims in rest[1])
        return Term(VARIABLE, shapes, number=rest[0]) if head == "$" else Term(rest[0], shapes)
    return Term(head, tuple(tuple(dims) for dims in rest[0]), tuple(_read_term(each) for each in rest[1:]))


@dataclass(frozen=True)
class Rewriting:
    """The replacement that a rule makes: other expressions compute the results of some expressions.

    Attributes:
      law: the law that allows it; it has the operators and extents.
      source, target: the expression that computes each result.
      splits: operators that the law does not have, by name: a split back into the results.
    """

    law: Law
    source: tuple[Term, ...]
    target: tuple[Term, ...]
    splits: tuple[tuple[str, Operator], ...] = ()

    def operator(self, term: Term) -> Operator:
        """Returns the operator of an expression."""
        return dict(self.splits).get(term.head) or self.law.operator(term)


Partners = Mapping[tuple[str, Term], Law]
"""Laws about the second part of a split, by the name of the split without its port and by the operand."""


def partners_of(laws: Iterable[Law]) -> Partners:
    """Returns the laws about second parts of splits; `rewritings` joins them with the laws about first parts."""
    found: dict[tuple[str, Term], Law] = {}
    for law in laws:
        if not law.left.is_leaf and law.operator(law.left).kind == "Split" and law.operator(law.left)["port"] == 1:
            found.setdefault((law.operator(law.left).node.name, law.left.operands[0]), law)
    return found


def rewritings(law: Law, partners: Partners) -> Iterator[Rewriting]:
    """Yields all legal rewritings of a law.

    Their source has all variables that the target reads, is connected, and has no expression that is a bare leaf.
    """
    for rewriting in _all(law, partners):
        read = frozenset().union(*(term.variables for term in rewriting.source))
        computes = all(not term.is_leaf for term in rewriting.source)
        if computes and _connected(rewriting.source) and all(term.variables <= read for term in rewriting.target):
            yield rewriting


def _all(law: Law, partners: Partners) -> Iterator[Rewriting]:
    left = None if law.left.is_leaf else law.operator(law.left)
    if left is not None and left.kind == "Split":
        partner = partners.get((left.node.name, law.left.operands[0])) if left["port"] == 0 else None
        if partner is not None:
            parts, wholes = (law.right, partner.right), (law.left, partner.left)
            yield Rewriting(law, wholes, parts)
            yield Rewriting(law, parts, wholes)
        return
    yield Rewriting(law, (law.left,), (law.right,))
    if not _stands_in(law.right, law.left):
        yield Rewriting(law, (law.right,), (law.left,))
    for joined, whole in ((law.left, law.right), (law.right, law.left)):
        if not joined.is_leaf and law.operator(joined).kind == "Concat" and not whole.is_leaf:
            yield _split_back(law, joined, whole)


def _split_back(law: Law, joined: Term, whole: Term) -> Rewriting:
    """Returns the rewriting that computes a joined expression as a whole and splits it back into its operands."""
    axis = law.operator(joined)["axis"]
    ports = [operator("Split", axis=axis, first="", port=port) for port in (0, 1)]
    parts = tuple(Term(port.name, part.shapes, (whole,)) for port, part in zip(ports, joined.operands, strict=True))
    return Rewriting(law, joined.operands, parts, tuple((port.name, port) for port in ports))


def _stands_in(part: Term, whole: Term) -> bool:
    return part in whole.subterms()


def _connected(terms: Sequence[Term]) -> bool:
    """Returns whether the results differ and share a subexpression, along which the matcher finds both."""
    if len(terms) == 1:
        return True
    first, second = (set(term.subterms()) for term in terms)
    return terms[0] != terms[1] and bool(first & second)
