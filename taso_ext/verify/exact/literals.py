"""Real constants as exact numbers: √2, 1/√d, 2/π and 0.044715 rather than the floats that exporters round them to.

A literal stands for the simplest number within two units in the last place of float32 (`TOLERANCE`), so both sides of a
rule may write it with any number of digits, and products such as √2·√2 = 2 hold exactly. Simple are fractions, square
roots of fractions, both with π or 1/π as a factor, and fourth roots; what is none of these is the float itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

TOLERANCE = 2.0**-22
"""Relative: two units in the last place of float32."""

# Of a number rounded to float32 small denominators go before decimals; large ones lie so densely that some always fits.
_SMALL_DENOMINATOR, _LOOSE_DENOMINATOR = 32, 500
_LARGEST = 10**6  # numerator times denominator of what was rounded: beyond that some integer always fits
_TIGHT, _TIGHT_DENOMINATOR = 4e-15, 200_000  # a number computed in float64; fractions this simple are far apart
_DIGITS = 5  # a decimal of at most this many significant digits is taken at its word


@dataclass(frozen=True)
class Literal:
    """sign · (fraction · π^pi_power)^(1/2^roots), with fraction ≥ 0."""

    sign: int
    fraction: Fraction
    pi_power: int = 0
    roots: int = 0


@lru_cache(maxsize=4096)
def recognise(number: float) -> Literal:
    """The exact number that a finite float stands for."""
    size = abs(number)
    if size == 0:
        return Literal(1, Fraction(0))
    literal = (
        _simple(size, TOLERANCE, _SMALL_DENOMINATOR)
        or _decimal(size)
        or _simple(size, _TIGHT, _TIGHT_DENOMINATOR)
        or _simple(size, TOLERANCE, _LOOSE_DENOMINATOR)
    )
    sign = -1 if number < 0 else 1
    if literal is None:
        return Literal(sign, Fraction(size))
    return Literal(sign, literal.fraction, literal.pi_power, literal.roots)


def _simple(size: float, tolerance: float, denominator: int) -> Literal | None:
    """The form with the simplest fraction of those that lie near; fourth roots are those of attention's scale."""
    found = []
    for roots, pi_power in ((0, 0), (0, 1), (0, -1), (1, 0), (1, 1), (1, -1), (2, 0)):
        rational = size ** (2**roots) / math.pi**pi_power
        fraction = _fraction(rational, tolerance * 2**roots, denominator)
        largest = _LARGEST if tolerance == TOLERANCE else _LARGEST**2
        if fraction is not None and fraction.numerator * fraction.denominator <= largest:
            found.append(Literal(1, fraction, pi_power, roots))
    return min(found, key=_complexity, default=None)


def _complexity(literal: Literal) -> tuple[int, int, int]:
    return literal.fraction.numerator * literal.fraction.denominator, literal.roots, abs(literal.pi_power)


def _fraction(rational: float, tolerance: float, denominator: int) -> Fraction | None:
    """A fraction near `rational` with a small denominator, or a small numerator where it is below 1."""
    if not 1e-12 < rational < 1e12:
        return None
    if rational < 1:
        inverse = _fraction(1 / rational, tolerance, denominator)
        return None if inverse is None else 1 / inverse
    fraction = Fraction(rational).limit_denominator(denominator)
    return fraction if abs(fraction - Fraction(rational)) <= tolerance * rational else None


def _decimal(size: float) -> Literal | None:
    decimal = float(f"{size:.{_DIGITS - 1}e}")
    if abs(decimal - size) > TOLERANCE * size:
        return None
    return Literal(1, Fraction(f"{size:.{_DIGITS - 1}e}"))
