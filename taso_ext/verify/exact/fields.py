"""The arithmetic of one element: residues modulo a prime, real numbers beside them, and random functions.

Residues are int64 in [0, p) with p < 2⁶²: the sum of two fits int64, and the engine computes products with 128 bits.
Both primes have the form p = 2q + 1, where q is prime too. Modulo p and q, −1 is not a square, but 2, 3, 5, …, 23 are.
So the field behaves like the real numbers as far as rules need it:

* The squares are the *positive* elements. Products and quotients of positive elements are positive, and so are all
  rationals made of the primes up to 23. Exactly one of x and −x is positive, unless x = 0. Every x has a sign, which is
  multiplicative (the Legendre symbol).
* √x = x^((p+1)/4) is the positive root of a positive x, and √(xy) = √x·√y.
* exp: exponents are residues modulo q, exp(x) = gˣ is positive, and exp(x + y) = exp(x)·exp(y), for g of order q.

Real numbers decide what is positive and what is greatest, but never whether results agree. Every exact number carries
the real number that it stands for at one random real point. The two are independent: the real number picks a branch (an
argument is negative, the third element is the greatest), and the residues test whether source and target have the same
formula there. A branch that a random point meets holds on a whole region, where equal formulas are equal functions.

Random functions stand for operators without exact arithmetic. A key chooses a function, which then stays fixed. A rule
that holds whatever a nonlinear operator computes also holds for a random function in its place. A rule that does not is
caught, because a random function has no accidental identities. Each kind of function has only the properties that its
name declares: a rule that needs more is rejected, never accepted by luck.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext._core import field_matmul, field_multiply, field_power

Array = npt.NDArray[np.int64]

EXPONENT_PRIMES = (1152921504584008319, 1152921504278816159)
"""The exponents' primes q: the largest two below 2⁶⁰ for which q and 2q + 1 are as said above."""
PRIMES = (2 * EXPONENT_PRIMES[0] + 1, 2 * EXPONENT_PRIMES[1] + 1)
"""The primes p = 2q + 1, of 61 bits."""
SMALL_SQUARES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
"""Primes that are squares modulo all four primes p and q."""

_HALF = 30  # bits of the lower limb in `sum`: 2³² summands of 31 bits fit int64


class NotInvertibleError(ArithmeticError):
    """A division by zero modulo a prime. Other random inputs usually avoid it."""


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo `prime`."""

    prime: int

    def random(self, generator: np.random.Generator, dims: tuple[int, ...]) -> Array:
        return generator.integers(0, self.prime, dims, dtype=np.int64)

    def constant(self, number: float | Fraction) -> int:
        """Returns the field element of a fraction, or of a float taken as the exact fraction that it is."""
        fraction = Fraction(number)
        return fraction.numerator * pow(fraction.denominator, -1, self.prime) % self.prime

    def reduce(self, integers: npt.NDArray[np.integer]) -> Array:
        """Returns residues of any integers, negative ones included."""
        return np.mod(integers, self.prime).astype(np.int64)

    def add(self, a: Array, b: Array) -> Array:
        return (a + b) % self.prime

    def sub(self, a: Array, b: Array) -> Array:
        return (a - b) % self.prime

    def mul(self, a: Array, b: Array | int) -> Array:
        return np.asarray(field_multiply(a, b, self.prime))

    def div(self, a: Array, b: Array) -> Array:
        return self.mul(a, self.inverse(b))

    def inverse(self, a: Array) -> Array:
        """Returns a⁻¹ = a^(p−2), by Fermat.

        Raises:
          NotInvertibleError: if any element is zero.
        """
        if not a.all():
            raise NotInvertibleError(f"division by zero modulo {self.prime}")
        return self.power(a, self.prime - 2)

    def power(self, a: Array | int, exponent: Array | int) -> Array:
        """Returns aⁿ for n ≥ 0, element by element."""
        return np.asarray(field_power(a, exponent, self.prime))

    def sign(self, a: Array) -> Array:
        """Returns 1, −1 or 0, as int64: the Legendre symbol."""
        symbol = self.power(a, self.prime // 2)
        return np.where(symbol == self.prime - 1, -1, symbol)

    def sqrt(self, a: Array) -> Array:
        """Returns the positive root of positive elements, and for the others the root of −a."""
        return self.power(a, (self.prime + 1) // 4)

    def sum(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        high, low = (
            np.asarray(part.sum(axis=axes, keepdims=keepdims, dtype=np.int64)) % self.prime
            for part in (a >> _HALF, a & (2**_HALF - 1))
        )
        return self.add(self.mul(high, 2**_HALF), low)

    def mean(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        count = math.prod([a.shape[axis] for axis in axes])
        return self.mul(self.sum(a, axes, keepdims=keepdims), pow(count, -1, self.prime))

    def prod(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        for axis in axes:
            factors = np.moveaxis(a, axis, 0)
            product = np.ones_like(factors[:1])
            for factor in factors:
                product = self.mul(product, factor)
            a = np.moveaxis(product, 0, axis)
        return a if keepdims else np.squeeze(a, axes)

    def matmul(self, a: Array, b: Array) -> Array:
        """Returns the matrix product of arrays of rank 2 or more, with NumPy's batching."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = math.prod(batch)
        left, right = (np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:]) for x in (a, b))
        return field_matmul(left, right, self.prime).reshape(*batch, a.shape[-2], b.shape[-1])


Reals = npt.NDArray[np.float64]

_QUIET = np.errstate(all="ignore")

_erf = np.vectorize(math.erf, otypes=[np.float64])
KNOWN: dict[str, Any] = {
    "Erf": _erf,
    "Log": np.log,
    **{name: getattr(np, name.lower()) for name in ("Tanh", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Floor", "Ceil")},
    **{name: getattr(np, name.lower().replace("a", "arc", 1)) for name in ("Asin", "Acos", "Atan")},
    **{name: getattr(np, name.lower().replace("a", "arc", 1)) for name in ("Asinh", "Acosh", "Atanh")},
    "Round": np.rint,
    "Pow": np.power,
    "exp": np.exp,
}
"""Real functions by the name of the random function that stands for them among residues."""


class RealField:
    """float64 with the interface of `PrimeField`, as far as kernels use it."""

    def random(self, generator: np.random.Generator, dims: tuple[int, ...]) -> Reals:
        """Returns random numbers of both signs whose sizes are between 1/8 and 16."""
        sizes = 2.0 ** generator.uniform(-3.0, 4.0, dims)
        return np.asarray(sizes * generator.choice([-1.0, 1.0], dims))

    def constant(self, number: float | Fraction) -> float:
        return float(number)

    def reduce(self, integers: npt.ArrayLike) -> Reals:
        return np.asarray(integers, np.float64)

    @_QUIET
    def add(self, a: Reals, b: Reals) -> Reals:
        return np.asarray(a + b)

    @_QUIET
    def sub(self, a: Reals, b: Reals) -> Reals:
        return np.asarray(a - b)

    @_QUIET
    def mul(self, a: Reals, b: Reals | float) -> Reals:
        return np.asarray(a * b)

    @_QUIET
    def div(self, a: Reals, b: Reals) -> Reals:
        return np.asarray(np.divide(a, b))

    @_QUIET
    def inverse(self, a: Reals) -> Reals:
        return np.asarray(np.divide(1.0, a))

    @_QUIET
    def power(self, a: Reals, exponent: int) -> Reals:
        return np.asarray(np.power(a, float(exponent)))

    @_QUIET
    def sqrt(self, a: Reals) -> Reals:
        return np.asarray(np.sqrt(a))

    @_QUIET
    def sum(self, a: Reals, axes: tuple[int, ...], *, keepdims: bool = False) -> Reals:
        return np.asarray(a.sum(axis=axes, keepdims=keepdims))

    @_QUIET
    def mean(self, a: Reals, axes: tuple[int, ...], *, keepdims: bool = False) -> Reals:
        return np.asarray(a.mean(axis=axes, keepdims=keepdims))

    @_QUIET
    def prod(self, a: Reals, axes: tuple[int, ...], *, keepdims: bool = False) -> Reals:
        return np.asarray(a.prod(axis=axes, keepdims=keepdims))

    @_QUIET
    def matmul(self, a: Reals, b: Reals) -> Reals:
        return np.asarray(np.matmul(a, b))


@dataclass(frozen=True)
class RealFunctions:
    """Functions of real numbers: the real function if it is known, otherwise a fixed random function.

    Attributes:
      hashed: random functions of residues, from which the random functions of real numbers are made.
    """

    hashed: KeyedFunctions

    @_QUIET
    def pointwise(self, key: str, operands: Sequence[Reals], residues: Sequence[npt.NDArray[np.int64]]) -> Reals:
        """Returns f(a, b, …), element by element."""
        known = KNOWN.get(key)
        if known is not None:
            return np.asarray(known(*operands))
        return self.between(self.hashed.pointwise(key, residues))

    def between(self, residues: npt.NDArray[np.int64]) -> Reals:
        """Returns real numbers from −1 to 1 that depend on the residues only."""
        return np.asarray(2.0 * (residues / self.hashed.prime) - 1.0)


Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # constants of splitmix64, Steele et al. 2014, "Fast splittable PRNGs"
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_MODULO_2_64 = np.errstate(over="ignore")  # NumPy warns when a scalar sum wraps; here wrapping is the arithmetic meant


@dataclass(frozen=True)
class KeyedFunctions:
    """Families of random functions into [0, prime); equal `seed` and `key` give the same function."""

    prime: int
    seed: int
    used: set[str] = field(default_factory=set, compare=False)  # keys

    @_MODULO_2_64
    def pointwise(self, key: str, operands: Sequence[Array], *, fixes_zero: bool = False) -> Array:
        """Returns f(a, b, …), element by element over broadcast operands; f(0) = 0 for one operand if `fixes_zero`."""
        self.used.add(key)
        hashes = self._start(key)
        for operand in operands:
            hashes = _mix(hashes + operand.astype(np.uint64))
        image = self._element(hashes)
        return np.where(operands[0] == 0, 0, image) if fixes_zero else image

    def symbol(self, key: str) -> int:
        """Returns a random element that is not zero."""
        return int(self._start(key)) % (self.prime - 1) + 1

    @_MODULO_2_64
    def opaque(self, key: str, operands: Sequence[Array | None], dims: Sequence[int]) -> Array:
        """Returns an output of shape `dims` whose every element depends on every element of every operand."""
        self.used.add(key)
        digest = self._start(key)
        for operand in operands:
            digest = _mix(digest + (_GOLDEN if operand is None else _digest(operand)))
        positions = np.arange(math.prod(dims), dtype=np.uint64)
        return self._element(_mix(digest + _mix(positions))).reshape(tuple(dims))

    def _start(self, key: str) -> Hashes:
        digest = hashlib.sha256(f"{self.seed}/{self.prime}/{key}".encode()).digest()
        return np.array([int.from_bytes(digest[:8], "little")], np.uint64)[0]

    def _element(self, hashes: Hashes) -> Array:
        return (hashes % np.uint64(self.prime)).astype(np.int64)


def _mix(hashes: Hashes) -> Hashes:
    """Returns the hashes after the finaliser of splitmix64, in which every input bit reaches every output bit."""
    hashes = hashes + _GOLDEN
    hashes = (hashes ^ (hashes >> _SHIFTS[0])) * _MULTIPLIERS[0]
    hashes = (hashes ^ (hashes >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return hashes ^ (hashes >> _SHIFTS[2])


def _digest(operand: Array) -> Hashes:
    """Returns one hash of a whole tensor: of its shape, its elements and their positions."""
    content = np.concatenate([np.array([operand.ndim, *operand.shape], np.int64), operand.ravel()]).astype(np.uint64)
    positions = np.arange(content.size, dtype=np.uint64)
    return _mix(_mix(content) ^ _mix(~positions)).sum(dtype=np.uint64)
