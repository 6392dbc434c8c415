"""Corrections: the source computed again where a mutant differs, and nowhere else.

In each case of a source the places that differ are intervals of rows or columns. Their ends are written as expressions
of the source's symbols that fit all cases. The source computes each interval from a slice of its operand, with the
elements around it that its windows reach, and replaces what the mutant has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from taso_ext.generator.partial.boxes import Difference, Interval
from taso_ext.generator.partial.expressions import ONE, ZERO, Env, Expression, number, symbol
from taso_ext.generator.partial.mutants import HALF, Mutant
from taso_ext.generator.partial.programs import Concrete, IllTypedError, Statement, concrete
from taso_ext.generator.partial.sources import RESULT, Case

LEAST_CASES = 3
"""The fewest cases that a rule is drawn from."""

Place = tuple[Expression, Expression]
"""An interval with symbolic ends."""


def corrected(mutant: Mutant, found: Sequence[tuple[Case, Difference]]) -> tuple[Statement, ...] | None:
    """Returns the mutant with its correction, or None if none was found that is right in at least LEAST_CASES cases.

    Args:
      found: cases in which the mutant differs in some places, with these places. Their intervals must be as many along
        each axis in all cases.
    """
    lead = mutant.source.rank - mutant.source.spatial
    counts = {tuple(map(len, each.intervals)) for _, each in found}
    if len(counts) != 1 or any(next(iter(counts))[:lead]):
        return None
    statements = list(mutant.statements())
    for axis in reversed(range(mutant.source.spatial)):
        intervals = [each.intervals[lead + axis] for _, each in found]
        if not intervals[0]:
            continue
        places = _fitted(mutant, axis, [case for case, _ in found], intervals)
        if places is None:
            return None
        statements = [*_renamed(statements, f"q{axis}"), *_mended(mutant, axis, places, f"q{axis}")]
    right = [case for case, _ in found if is_right(case, statements)]
    return tuple(statements) if len(right) >= LEAST_CASES else None


def is_right(case: Case, statements: Sequence[Statement]) -> bool | None:
    """Returns whether a program equals the source in a case; None if it is ill-typed there."""
    program = in_case(statements, case)
    if program is None:
        return None
    left = case.reference.difference(program)
    return left is not None and left.nowhere


def in_case(statements: Sequence[Statement], case: Case) -> Concrete | None:
    """Returns a program in a case, or None if it is ill-typed or has another result than the source."""
    try:
        program = concrete(statements, case.program.leaves, case.env)
    except IllTypedError:
        return None
    return program if program.dims(RESULT) == case.program.dims(RESULT) else None


def _renamed(statements: Sequence[Statement], name: str) -> list[Statement]:
    return [*statements[:-1], replace(statements[-1], result=name)]


# ---- ends of intervals as expressions


def _fitted(
    mutant: Mutant, axis: int, cases: Sequence[Case], intervals: Sequence[Sequence[Interval]]
) -> list[Place] | None:
    """Returns the intervals of all cases as expressions: the first ones, simplest first, that have these values."""
    envs = [case.env for case in cases]
    places: list[Place] = []
    for ends in zip(*intervals, strict=True):
        begin = _fit(mutant, axis, envs, [each[0] for each in ends])
        end = _fit(mutant, axis, envs, [each[1] for each in ends])
        if begin is None or end is None:
            return None
        places.append((begin, end))
    return places


def _fit(mutant: Mutant, axis: int, envs: Sequence[Env], values: Sequence[int]) -> Expression | None:
    for candidate in _ends(mutant, axis):
        try:
            if all(candidate.value(env) == value for env, value in zip(envs, values, strict=True)):
                return candidate
        except ArithmeticError:
            continue
    return None


def _ends(mutant: Mutant, axis: int) -> Iterator[Expression]:
    """Yields expressions for the end of an interval: an edge or a seam of the result, and lengths beside it."""
    source = mutant.source
    extent = symbol(f"dims({RESULT})[{source.rank - source.spatial + axis}]")
    pads = [symbol(f"p[{axis}]"), symbol(f"p[{axis + source.spatial}]")]
    stride = symbol(f"s[{axis}]")
    span = (symbol(f"a[{axis}]") - ONE) * symbol(f"d[{axis}]")
    fewest, others = [ZERO, *pads], [span - pads[0], span - pads[1], span, ONE]
    factors = mutant.relayout.lost(source.rank - source.spatial + axis)
    seams = [extent / HALF] if factors == [HALF] else []
    for edge in [ZERO, extent, *seams]:
        # At the end of an axis the pads at the end are likelier than those at the begin, which may be as many.
        lengths = [*(fewest if edge == ZERO else [ZERO, *reversed(pads)]), *others]
        rounded = [_quotient(length, stride) for length in lengths if length != ZERO]
        for length in [*lengths, *rounded]:
            yield edge + length
            yield edge - length


def _quotient(length: Expression, stride: Expression) -> Expression:
    """Returns the number of windows, `stride` apart, that begin within a length."""
    more = length + (stride - ONE)
    return (more - more % stride) / stride


# ---- the correction itself


def _mended(mutant: Mutant, axis: int, places: Sequence[Place], wrong: str) -> list[Statement]:
    """Returns statements that define the result from the tensor `wrong`, with some intervals computed again."""
    at = mutant.source.rank - mutant.source.spatial + axis
    extent = symbol(f"dims({RESULT})[{at}]")
    found: list[Statement] = []
    pieces: list[str] = []
    kept_from = ZERO
    for begin, end in [*places, (extent, extent)]:
        if begin != kept_from:
            pieces.append(f"{wrong}k{len(pieces)}")
            found.append(_slice(pieces[-1], wrong, at, kept_from, begin))
        if begin != extent:
            pieces.append(f"{wrong}m{len(pieces)}")
            found += _computed(mutant, axis, (begin, end), pieces[-1])
        kept_from = end
    found.append(Statement(RESULT, "Concat", tuple(pieces), {"axis": (number(at),)}))
    return found


def _computed(mutant: Mutant, axis: int, place: Place, name: str) -> list[Statement]:
    """Returns the source on the part of its operand that an interval of the result needs."""
    source, given = mutant.source, mutant.source.statement
    at, (begin, end) = source.rank - source.spatial + axis, place
    pads = list(given.attributes["pads"])
    low, stride = pads[axis], symbol(f"s[{axis}]")
    span = (symbol(f"a[{axis}]") - ONE) * symbol(f"d[{axis}]")
    first, last = ZERO, source.extents[source.moved][at]
    if begin != ZERO:
        first, pads[axis] = begin * stride - low, ZERO
    if end != symbol(f"dims({RESULT})[{at}]"):
        last, pads[axis + source.spatial] = (end - ONE) * stride - low + span + ONE, ZERO
    part = _slice(f"{name}x", source.moved, at, first, last)
    attributes = {**given.attributes, "pads": tuple(pads)}
    return [part, Statement(name, given.op, (part.result, *given.operands[1:]), attributes)]


def _slice(result: str, operand: str, axis: int, begin: Expression, end: Expression) -> Statement:
    return Statement(result, "Slice", (operand,), {"axes": (number(axis),), "starts": (begin,), "ends": (end,)})
