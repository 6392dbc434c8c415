"""Patterns and targets of rules in the language of egglog. This file makes text, and knows no e-graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from controller.saturation.oracle import Reference, Template
from controller.saturation.patterns import Pattern


def variable(name: str) -> str:
    """Returns the variable of a tensor of a pattern."""
    return f"t-{name}"


def facts_of(pattern: Pattern) -> list[str]:
    """Returns that the operators of a pattern are there; `s0`, `s1`, … are their settings."""
    facts: list[str] = []
    identities: dict[str, list[str]] = {}
    for number, found in enumerate(pattern.operators):
        whole = f"({found.operator.constructor} s{number} {' '.join(map(variable, found.operands))})"
        if found.operator.num_outputs == 1:
            identity = variable(found.results[0])
        else:
            identity = f"n{number}"
            facts += [f"(= {variable(name)} (Result {at} {identity}))" for at, name in enumerate(found.results)]
        facts.append(f"(= {identity} {whole})")
        identities.setdefault(found.operator.constructor, []).append(identity)
    # One operator of the e-graph stands for one of the pattern only.
    return facts + [f"(!= {a} {b})" for same in identities.values() for a, b in itertools.combinations(same, 2)]


def kinds_of(pattern: Pattern) -> list[str]:
    """Returns that all tensors of a pattern have kinds, which are `k0`, `k1`, …; operands that are absent have none."""
    return [f"(= k{number} (kind {variable(name)}))" for number, name in enumerate(pattern.tensors)]


def actions_of(
    pattern: Pattern, template: Template, settings: Sequence[object], kinds: Sequence[object]
) -> Iterator[str]:
    """Yields the actions that build a target and make its results equal to the roots of the pattern.

    Args:
      settings: numbers or variables of the settings of its operators.
      kinds: those of the kinds of their results.
    """

    def term(reference: Reference | None) -> str:
        if reference is None:
            return "(Value -1)"
        if reference.node < 0:
            return variable(pattern.leaves[reference.result])
        single = template.operators[reference.node].operator.num_outputs == 1
        return f"m{reference.node}" if single else f"(Result {reference.result} m{reference.node})"

    remaining = iter(kinds)
    for number, made in enumerate(template.operators):
        yield f"(let m{number} ({made.operator.constructor} {settings[number]} {' '.join(map(term, made.operands))}))"
        for result in range(made.operator.num_outputs):
            yield f"(set (kind {term(Reference(number, result))}) {next(remaining)})"
    for root, reference in zip(pattern.roots, template.roots, strict=True):
        yield f"(union {variable(root)} {term(reference)})"
