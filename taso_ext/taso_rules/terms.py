"""Sides of a substitution as terms over its variables, for comparing and for printing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from taso_ext.taso_rules.substitution import COMMUTATIVE, Operator, Substitution

Renaming = Mapping[str, str]


@dataclass(frozen=True)
class Term:
    """A variable (`operator` is None, `variable` its name), or output `port` of an operator on terms."""

    operator: Operator | None
    operands: tuple[Term, ...] = ()
    port: int = 0
    variable: str = ""

    @cached_property
    def skeleton(self) -> str:
        """The term without the names of its variables and the order of commutative operands."""
        if self.operator is None:
            return "x"
        skeletons = [operand.skeleton for operand in self.operands]
        return f"{self.operator.kind}.{self.port}({', '.join(_ordered(self.operator, skeletons))})"

    @cached_property
    def canonical(self) -> str:
        """The term without the order of commutative operands: equal for terms that are the same computation."""
        if self.operator is None:
            return self.variable
        texts = [operand.canonical for operand in self.operands]
        return f"{self.operator.kind}.{self.port}({', '.join(_ordered(self.operator, texts))})"

    def __str__(self) -> str:
        if self.operator is None:
            return self.variable
        axis = "" if self.operator.axis is None else f"; {self.operator.axis}"
        perm = "" if self.operator.perm is None else f"; {list(self.operator.perm)}"
        port = f"[{self.port}]" if len(self.operator.outputs) > 1 else ""
        return f"{self.operator.op_type}({', '.join(map(str, self.operands))}{axis}{perm}){port}"


def _ordered(operator: Operator, texts: list[str]) -> list[str]:
    return sorted(texts) if operator.op_type in COMMUTATIVE else texts


def output_terms(substitution: Substitution) -> list[tuple[Term, Term]]:
    """For each output of the rule what the source and what the target computes."""
    sides = [_terms(side) for side in (substitution.source, substitution.target)]
    return [(sides[0][name], sides[1][name]) for name in substitution.outputs]


def _terms(side: Sequence[Operator]) -> dict[str, Term]:
    terms: dict[str, Term] = {}
    for operator in side:
        operands = tuple(terms.get(name) or Term(None, variable=name) for name in operator.inputs)
        terms.update((name, Term(operator, operands, port)) for port, name in enumerate(operator.outputs))
    return terms


def changes_nothing(substitution: Substitution) -> bool:
    """Whether both sides are the same graph up to the order of commutative operands."""
    return all(source.canonical == target.canonical for source, target in output_terms(substitution))


def same_rule(a: Substitution, b: Substitution) -> bool:
    """Whether the rules differ only in names and in the order of commutative operands and of outputs."""
    of_a, of_b = output_terms(a), output_terms(b)
    if len(of_a) != len(of_b) or _skeletons(of_a) != _skeletons(of_b):
        return False
    return any(
        True
        for ordered in permutations(of_b)
        for _ in _unify([term for pair in of_a for term in pair], [term for pair in ordered for term in pair], {})
    )


def _skeletons(pairs: Sequence[tuple[Term, Term]]) -> list[tuple[str, str]]:
    return sorted((source.skeleton, target.skeleton) for source, target in pairs)


def _unify(left: Sequence[Term], right: Sequence[Term], renaming: Renaming) -> Iterator[Renaming]:
    """Renamings of the variables of `left`, one to one, that turn its terms into those of `right`."""
    if not left:
        yield renaming
        return
    a, b = left[0], right[0]
    if a.skeleton != b.skeleton:
        return
    if a.operator is None:
        known = renaming.get(a.variable)
        if known == b.variable or (known is None and b.variable not in renaming.values()):
            yield from _unify(left[1:], right[1:], {**renaming, a.variable: b.variable})
        return
    orders = permutations(b.operands) if a.operator.op_type in COMMUTATIVE else [b.operands]
    for operands in orders:
        yield from _unify([*a.operands, *left[1:]], [*operands, *right[1:]], renaming)
