"""What rewritings a law allows: each side for the other, two results for two parts of one, and the reverse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from taso_ext.generator.grid import operator
from taso_ext.generator.laws import Law, Term
from taso_ext.generator.wording import Rewriting

Partners = Mapping[tuple[str, Term], Law]
"""Laws about one part of a split by the operator that splits, without its port, and what is split."""


def partners_of(laws: Iterable[Law]) -> Partners:
    """The laws about second parts of splits, for those about the first ones."""
    found: dict[tuple[str, Term], Law] = {}
    for law in laws:
        if not law.left.is_leaf and law.operator(law.left).kind == "Split" and law.operator(law.left)["port"] == 1:
            found.setdefault((law.operator(law.left).node.name, law.left.operands[0]), law)
    return found


def rewritings(law: Law, partners: Partners) -> Iterator[Rewriting]:
    """All that are legal: whatever a target reads its source must have, and a source is no bare variable."""
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
    """Where two results joined are one expression, they can be computed by it and split again."""
    axis = law.operator(joined)["axis"]
    ports = [operator("Split", axis=axis, first="", port=port) for port in (0, 1)]
    parts = tuple(Term(port.name, part.shapes, (whole,)) for port, part in zip(ports, joined.operands, strict=True))
    return Rewriting(law, joined.operands, parts, tuple((port.name, port) for port in ports))


def _stands_in(part: Term, whole: Term) -> bool:
    return part in whole.subterms()


def _connected(terms: Sequence[Term]) -> bool:
    """Whether the results share what they read; rules are matched along that."""
    if len(terms) == 1:
        return True
    first, second = (set(term.subterms()) for term in terms)
    return terms[0] != terms[1] and bool(first & second)
