"""Equality of two graphs as functions, by evaluation at random points of prime fields.

Two graphs of linear and rational operators compute the same function for given shapes exactly when their outputs agree
as rational functions of all input and weight elements. If they do not, they still agree at a uniformly random point of
the field of p elements with probability at most d/p, where d is the degree of the difference (Schwartz 1980; Zippel
1979). One point in each of two fields with p ≈ 2⁶¹ makes that (d/p)²: under 2⁻⁶⁰ per shape and attribute instance for
every degree below 2³¹; `FieldAgreement.error_bits` has the figure of the graphs at hand.

Roots and exponentials have counterparts in the field, and random functions stand for other functions (fields.py):
distinct arguments give independent values, which count as fresh variables in this bound. Operators without a kernel
are opaque: every element of a result is a random function of all operands together. Graphs that differ here because a
function is random are compared in real numbers (reals.py). Real numbers decide what is positive and what is greatest.
One point shows only one branch of such a decision, so graphs that decide are compared at more points, and at one
where all inputs are zero but for one element: it shows what the bounds of norms and of softmaxes decide. This test does
*not* cover float rounding, overflow and the special values; numeric/differential.py does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taso_ext._core import Graph
from taso_ext.verify.exact.evaluation import draw_leaves, element_count, evaluate, qualified, seed_of
from taso_ext.verify.exact.fields import EXPONENT_PRIMES, PRIMES, NotInvertibleError
from taso_ext.verify.exact.functions import EXPONENTIALS
from taso_ext.verify.exact.points import MOST_POINTS, decisions, error_bits, points_needed
from taso_ext.verify.exact.reals import LongArithmetic, LongMismatch, first_difference, movements
from taso_ext.verify.exact.sampling import OutOfRangeError
from taso_ext.verify.exact.tensor import Arithmetic, FieldTensor, UnsupportedOperatorError

_ATTEMPTS = 8  # a random divisor is zero with probability about elements / 2⁶¹: one retry is already rare


@dataclass(frozen=True)
class FieldMismatch:
    """The place where two graphs differ (output and element), and what each graph computes there modulo `prime`.

    `target` is None if the target divides by zero at every point at which the source does not. `is_certain` says that
    no random functions took part, so that the graphs differ as real functions, too.
    """

    output: int
    index: tuple[int, ...]
    source: int
    target: int | None
    prime: int
    is_certain: bool = False

    def __str__(self) -> str:
        if self.target is None:
            return f"the target divides by zero where the source does not, at all random points modulo {self.prime}"
        return (
            f"output {self.output} at {list(self.index)} is {self.source} in the source and {self.target} in the "
            f"target, modulo {self.prime}"
        )


@dataclass(frozen=True)
class FieldAgreement:
    """The outcome of comparing two graphs.

    Attributes:
      mismatch: the first difference, or None.
      points: how many points were compared in each field.
      in_reals: whether the graphs differ in the fields, where functions are random, and agree in real numbers.
      error_bits: different graphs would agree at all points with probability below 2^−error_bits; 0 after a mismatch.
    """

    mismatch: FieldMismatch | LongMismatch | None
    points: int
    error_bits: float
    in_reals: bool = False


def find_difference(source: Graph, target: Graph, *, seed: int = 0) -> FieldMismatch | None:
    """Returns the first difference of two graphs that a random point of the fields shows, or None."""
    mismatch = compare_exactly(source, target, seed=seed, in_reals=False).mismatch
    assert not isinstance(mismatch, LongMismatch)
    return mismatch


def compare_exactly(
    source: Graph, target: Graph, *, seed: int = 0, most_points: int = MOST_POINTS, in_reals: bool = True
) -> FieldAgreement:
    """Compares two graphs at random points: as many as their signs need, but at most `most_points` in each field.

    Args:
      in_reals: whether graphs that differ in the fields, where some functions are random, are compared as functions of
        real numbers (reals.py).
    Raises:
      TooLargeError: if the graphs differ in the fields and are too large to be compared in real numbers.
      UnsupportedOperatorError: as in `evaluate`.
      NotInvertibleError: if the source divides by zero at every point that is tried.
    """
    operators = [qualified(node.domain, node.op_type) for graph in (source, target) for node in graph.nodes()]
    exponents = bool(EXPONENTIALS.intersection(operators))
    points = min(most_points, points_needed(source, target, max(most_points, MOST_POINTS)))
    for point in range(points):
        for prime, exponent_prime in zip(PRIMES, EXPONENT_PRIMES, strict=True):
            primes = (prime, exponent_prime) if exponents else (prime,)
            mismatch = _differ_at_point(source, target, primes, f"{seed}/{point}")
            if mismatch is not None:
                if in_reals:
                    in_reals_at = points if most_points > MOST_POINTS else min(points, REAL_POINTS)
                    return _compare_reals(source, target, seed, in_reals_at, mismatch)
                return FieldAgreement(mismatch, points, 0.0)
    if decisions(source, target) and in_reals:
        mismatch = _differ_at_single_numbers(source, target, primes, seed)
        if mismatch is not None:
            return _compare_reals(source, target, seed, 1, mismatch)
    return FieldAgreement(None, points, error_bits(source, target, points))


REAL_POINTS = 16
"""The most points in real numbers, but for the first graphs of a rule."""
INTEGER_POINTS = 3
"""The number of further points, at small integers."""
_SINGLE = -INTEGER_POINTS - 1
"""The point at which one element of each input is an integer, and the others are zero."""
MOST_LONG_ELEMENTS = 20_000
"""The most elements of all values of two graphs, at all points, that are evaluated in real numbers."""
_ERRORS = 3  # evaluations with errors of the constants


class TooLargeError(ValueError):
    """Two graphs differ in the fields and are too large for real numbers, so that nothing is known."""


def _compare_reals(source: Graph, target: Graph, seed: int, points: int, mismatch: FieldMismatch) -> FieldAgreement:
    """Compares graphs that differ in the fields as real functions, if all their operators have a definition there.

    Raises:
      TooLargeError: if the graphs have too many elements, and random functions may be why they differ.
      NotInvertibleError: if the source is undefined at every point that is tried.
    """
    elements = element_count(source) + element_count(target)
    points, compared = min(points, MOST_LONG_ELEMENTS // elements), 0
    if points == 0:
        if mismatch.is_certain and not _computes_attributes(source, target):
            return FieldAgreement(mismatch, 0, 0.0)
        raise TooLargeError("the graphs differ in prime fields and are too large to be compared in real numbers")
    for point in range(points * _ATTEMPTS):
        try:
            difference = _differ_in_reals(source, target, seed, point)
        except UnsupportedOperatorError:
            return FieldAgreement(mismatch, points, 0.0)
        except NotInvertibleError:
            continue
        if difference is not None:
            return FieldAgreement(difference, points, 0.0)
        compared += 1
        if compared == points:
            difference = _differ_at_integers(source, target, seed)
            if difference is not None:
                return FieldAgreement(difference, points, 0.0)
            return FieldAgreement(None, points, error_bits(source, target, points), in_reals=True)
    raise NotInvertibleError(f"the source is undefined at most of {points * _ATTEMPTS} real points")


def _computes_attributes(source: Graph, target: Graph) -> bool:
    """Returns whether the target has real attributes, other than constants, that are not in the source."""
    real = [
        {each for node in graph.nodes() if node.inputs for each in node.attributes.values() if isinstance(each, float)}
        for graph in (source, target)
    ]
    return not real[1] <= real[0]


def _differ_at_integers(source: Graph, target: Graph, seed: int) -> LongMismatch | None:
    """Returns a difference of results at small integers; points at which either side divides by zero say nothing."""
    for point in range(_SINGLE, 0):
        try:
            difference = _differ_in_reals(source, target, seed, point)
        except NotInvertibleError:
            continue
        if difference is not None:
            return difference
    return None


def _differ_in_reals(source: Graph, target: Graph, seed: int, point: int) -> LongMismatch | None:
    """Returns the first difference of results.

    Raises:
      NotInvertibleError: if the source is undefined, or if the target divides by zero at integers (`point` < 0).
    """

    def results(graph: Graph, arithmetic: LongArithmetic) -> list[FieldTensor]:
        numbers = draw_leaves([source, target], arithmetic, seed_of(f"real {seed}/{point}"), single=point == _SINGLE)
        return evaluate(graph, numbers, arithmetic)

    given = frozenset(each for node in source.nodes() for each in node.attributes.values() if isinstance(each, float))
    exact = [LongArithmetic.of(point), LongArithmetic.of(point, given=given)]
    expected = results(source, exact[0])
    try:
        got = results(target, exact[1])
        errors = range(_ERRORS if any(each.uncertain for each in exact) else 0)
        of_source = [results(source, LongArithmetic.of(point, each)) for each in errors]
        of_target = [results(target, LongArithmetic.of(point, each, given=given)) for each in errors]
    except NotInvertibleError:
        if point < 0:
            raise
        return LongMismatch(0, (), 0.0, math.inf)
    allowed = [
        np.asarray(a + b, object)
        for a, b in zip(movements(expected, of_source), movements(got, of_target), strict=True)
    ]
    return first_difference(expected, got, allowed)


def _differ_at_point(source: Graph, target: Graph, primes: Sequence[int], point: str) -> FieldMismatch | None:
    undefined: FieldMismatch | None = None
    for attempt in range(_ATTEMPTS):
        seed = seed_of(f"{point}/{attempt}")
        arithmetic = Arithmetic.at(primes, seed)
        leaves = draw_leaves([source, target], arithmetic, seed)
        try:
            expected = evaluate(source, leaves, arithmetic)
        except NotInvertibleError:
            continue
        try:
            found = _compare(expected, evaluate(target, leaves, arithmetic), primes[0])
            certain = not arithmetic.functions[0].used
            return found if found is None else dataclasses.replace(found, is_certain=certain)
        except OutOfRangeError:
            return FieldMismatch(0, (), 0, None, primes[0])
        except NotInvertibleError:
            undefined = FieldMismatch(0, (), 0, None, primes[0])
    if undefined is not None:
        return undefined
    raise NotInvertibleError(f"a divisor is zero modulo {primes[0]} at all of {_ATTEMPTS} random points")


def _differ_at_single_numbers(source: Graph, target: Graph, primes: Sequence[int], seed: int) -> FieldMismatch | None:
    """Returns the first difference where all inputs are zero but for one element; divisions by zero say nothing."""
    number = seed_of(f"{seed}/single")
    arithmetic = Arithmetic.at(primes, number)
    leaves = draw_leaves([source, target], arithmetic, number, single=True)
    try:
        expected, got = (evaluate(graph, leaves, arithmetic) for graph in (source, target))
        return _compare(expected, got, primes[0])
    except NotInvertibleError:
        return None


def _compare(source: Sequence[FieldTensor], target: Sequence[FieldTensor], prime: int) -> FieldMismatch | None:
    for output, (expected, got) in enumerate(zip(source, target, strict=True)):
        if expected.dims != got.dims:
            return FieldMismatch(output, (), expected.parts[0].size, got.parts[0].size, prime)
        a, b = expected.parts[0], got.parts[0]
        differing = np.argwhere(a != b)
        if len(differing):  # the index of a scalar's only element is empty
            index = tuple(int(i) for i in differing[0])
            return FieldMismatch(output, index, int(a[index]), int(b[index]), prime)
    return None
