"""Rules from mutants: the conditions under which a mutant is right, found from cases, and the text of the rule."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from taso_ext.generator.partial.boxes import Difference
from taso_ext.generator.partial.corrections import LEAST_CASES, corrected, in_case, is_right
from taso_ext.generator.partial.expressions import ZERO, Env, parts_of
from taso_ext.generator.partial.mutants import Mutant
from taso_ext.generator.partial.programs import Statement
from taso_ext.generator.partial.sources import RESULT, Case

MOST_CONDITIONS = 3
AXES = {
    "conv": ("batch", "channels", "rows", "columns"),
    "average-pool": ("batch", "channels", "rows", "columns"),
    "matmul": ("batch", "rows", "depth"),
}
PLACEHOLDER = "partial"
LARGEST_PLANE = 256
"""The most elements of a plane that other images of a batch are added to: larger ones keep a device busy alone."""


@dataclass(frozen=True)
class Condition:
    """A condition on the symbols of a source, in the rule language and in Python."""

    text: str
    holds: Callable[[Env], bool]


@dataclass(frozen=True)
class Candidate:
    """A rule that was right in all its cases.

    Attributes:
      mutant: the mutant that it is made of.
      statements: its target.
      conditions: the conditions under which it is right.
      covered: the numbers of the cases in which it is right.
      is_corrected: whether its target has a correction.
    """

    mutant: Mutant
    statements: tuple[Statement, ...]
    conditions: tuple[str, ...]
    covered: frozenset[int]
    is_corrected: bool


Outcomes = Sequence[tuple[int, Case, Difference | None]]
"""The number of a case, the case, and where a mutant differs in it; None: nearly everywhere."""


def candidates(mutant: Mutant, outcomes: Outcomes) -> Iterator[Candidate]:
    """Yields the rule that a mutant is without a correction, and those that it is with one, if they exist."""
    equal = _conditions_of(mutant, outcomes, lambda each: each is not None and each.nowhere)
    if equal is not None:
        texts, chosen = equal
        yield Candidate(mutant, mutant.statements(), texts, frozenset(each[0] for each in chosen), False)
    yield from _corrected(mutant, outcomes)


def _corrected(mutant: Mutant, outcomes: Outcomes) -> Iterator[Candidate]:
    """Yields corrected candidates: under the fewest conditions, and with one more where this changes the correction."""
    partial = [each for _, _, each in outcomes if each is not None and not each.nowhere]
    found = _conditions_of(mutant, outcomes, lambda each: each is not None)
    if len(partial) < LEAST_CASES or found is None:
        return
    seen = list[tuple[Statement, ...]]()
    for more in (None, *_vocabulary(mutant)):
        chosen = [each for each in found[1] if more is None or more.holds(each[1].env)]
        differing = [(case, each) for _, case, each in chosen if each is not None and not each.nowhere]
        signatures = Counter(_signature(each) for _, each in differing)
        usual = next((signature for signature, _ in signatures.most_common(1)), ())
        differing = [(case, each) for case, each in differing if _signature(each) == usual]
        statements = corrected(mutant, differing) if len(differing) >= LEAST_CASES else None
        # With fewer intervals, one of them is empty: the correction must be ill-typed, or right all the same.
        if (
            statements is None
            or statements in seen
            or any(is_right(case, statements) is False for _, case, _ in chosen)
        ):
            continue
        seen.append(statements)
        covered = frozenset(at for at, case, _ in chosen if in_case(statements, case) is not None)
        conditions = found[0] if more is None or more.text in found[0] else (*found[0], more.text)
        yield Candidate(mutant, statements, conditions, covered, True)


def _signature(found: Difference) -> tuple[int, ...]:
    return tuple(map(len, found.intervals))


def stricter(candidate: Candidate) -> Iterator[Candidate]:
    """Yields the candidate, then the candidate with one more condition, for when random graphs refute it."""
    yield candidate
    for condition in _vocabulary(candidate.mutant):
        if condition.text not in candidate.conditions:
            cases = candidate.mutant.source.cases
            covered = frozenset(at for at in candidate.covered if condition.holds(cases[at].env))
            if len(covered) >= LEAST_CASES:
                yield replace(candidate, conditions=(*candidate.conditions, condition.text), covered=covered)


def _conditions_of(
    mutant: Mutant, outcomes: Outcomes, good: Callable[[Difference | None], bool]
) -> tuple[tuple[str, ...], Outcomes] | None:
    """Returns the fewest conditions under which all outcomes are good, and the outcomes that meet them."""
    known = _vocabulary(mutant)
    for count in range(MOST_CONDITIONS + 1):
        best: tuple[tuple[str, ...], Outcomes] | None = None
        for chosen in itertools.combinations(known, count):
            met = [each for each in outcomes if all(condition.holds(each[1].env) for condition in chosen)]
            if len(met) < LEAST_CASES or not all(good(each[2]) for each in met):
                continue
            if best is None or len(met) > len(best[1]):
                best = tuple(condition.text for condition in chosen), met
        if best is not None:
            return best
    return None


def _vocabulary(mutant: Mutant) -> list[Condition]:
    if not mutant.source.spatial:
        return []
    found = [
        Condition("s == [1, 1]", lambda env: env["s[0]"] == env["s[1]"] == 1),
        Condition("d == [1, 1]", lambda env: env["d[0]"] == env["d[1]"] == 1),
        Condition("prod(a) == 1", lambda env: env["a[0]"] == env["a[1]"] == 1),
        Condition("sum(p) == 0", lambda env: not any(env[f"p[{at}]"] for at in range(4))),
    ]
    if mutant.source.name == "conv":
        found.append(Condition("g == 1", lambda env: env["g"] == 1))
    if mutant.source.name == "average-pool":
        found.append(Condition("i == 1", lambda env: env["i"] == 1))
    if mutant.touched:
        found.append(
            Condition(
                " and ".join(map(_same_text, mutant.touched)),
                lambda env: all(_same(env, axis) for axis in mutant.touched),
            )
        )
    return found


def _same_text(axis: int) -> str:
    return f"p[{axis}] + p[{axis + 2}] == (a[{axis}] - 1) * d[{axis}]"


def _same(env: Env, axis: int) -> bool:
    return env[f"p[{axis}]"] + env[f"p[{axis + 2}]"] == (env[f"a[{axis}]"] - 1) * env[f"d[{axis}]"]


# ---- text


def name_of(candidate: Candidate) -> str:
    """Returns a name that says what moves where."""
    axes, mutant = AXES[candidate.mutant.source.name], candidate.mutant
    moves = mutant.relayout.moves
    lost = "-and-".join(dict.fromkeys(axes[move.axis] for move in moves))
    gained = "-and-".join(dict.fromkeys(axes[move.to] for move in moves))
    words = {"dilation": "phases-of-", "stride": "strided-", "half": "half-the-", "all": ""}[moves[0].name]
    suffix = "-corrected" * candidate.is_corrected + "-padded" * any(each.op == "Pad" for each in candidate.statements)
    return f"{mutant.source.name}-with-{words}{lost}-in-{gained}{suffix}"


def rule_text(candidate: Candidate, name: str, *, biased: bool = False) -> str:
    """Returns the rule in the language of taso_ext/rules/README.md, without a proof.

    Args:
      biased: whether its convolutions add a bias, which is a weight [o].
    """
    mutant, source = candidate.mutant, candidate.mutant.source
    declared = dict(source.declared) | ({"v": "weight float[o]"} if biased else {})
    statements = [_biased(each) for each in candidate.statements] if biased else list(candidate.statements)
    if biased and mutant.kernel == "twice":
        statements = [Statement("v2", "Concat", ("v", "v"), {"axis": (ZERO,)}), *statements]
        statements = [
            replace(each, operands=(*each.operands[:2], "v2")) if each.operands[1:2] == ("k3",) else each
            for each in statements
        ]
    operands = ", ".join([*source.statement.operands, *(["v"] if biased else [])])
    lines = {
        "var": ["; ".join(f"{variable}: {shape}" for variable, shape in declared.items())],
        "source": [f"{RESULT} = {source.statement.op}({operands}{'; ' * bool(source.written)}{source.written})"],
        "where": [*_moving(mutant), *candidate.conditions, *exact_conditions(candidate.statements)],
        "target": [each.text for each in statements],
    }
    text = [f"rule {name}"]
    for section, items in lines.items():
        text += [f"  {head:<6} {item}" for head, item in zip([section, *[""] * len(items)], items, strict=False)]
    return "\n".join(text) + "\n"


def _biased(statement: Statement) -> Statement:
    return replace(statement, operands=(*statement.operands, "v")) if statement.op == "Conv" else statement


def _moving(mutant: Mutant) -> list[str]:
    """Returns the conditions without which a mutant is pointless.

    Some factor that moves is not 1. If one axis loses its dilation, the other has none, because there are mutants in
    which both lose theirs. A plane that gains the images of a batch is small.
    """
    moves = mutant.relayout.moves
    factors = [move.factor.text for move in moves if move.factor.number is None]
    found = [f"{' * '.join(factors)} > 1"] if factors else []
    if len(mutant.touched) == 1 and moves[0].name == "dilation":
        found.append(f"d[{1 - moves[0].axis + mutant.source.rank - mutant.source.spatial}] == 1")
    if makes_larger_planes(mutant):
        found.append(f"h * w <= {LARGEST_PLANE}")
    return found


def makes_larger_planes(mutant: Mutant) -> bool:
    """Returns whether a mutant brings all images of a batch into one plane."""
    lead = mutant.source.rank - mutant.source.spatial
    return all(move.axis == 0 and move.to >= lead and move.name == "all" for move in mutant.relayout.moves)


def exact_conditions(statements: Sequence[Statement]) -> list[str]:
    """Returns conditions that quotients of the source's own symbols are integers."""
    found = []
    for quotient in (each for of in statements for expression in of.expressions() for each in expression.quotients()):
        dividend, divisor = quotient.parts
        rounded = any(part.head == "%" for part in parts_of(dividend))  # to a multiple of the divisor
        if "dims(" not in quotient.text and not rounded:
            found.append(f"{(dividend % divisor).text} == 0")
    return list(dict.fromkeys(found))
