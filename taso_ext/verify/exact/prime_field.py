"""Exact arithmetic modulo a prime on NumPy arrays.

Elements are int64 in [0, p) with p < 2⁶²: sums of two fit int64, products are the engine's (128 bits inside).

The two primes are p = 2q + 1 with q prime too, and −1 is a square modulo neither p nor q while 2, 3, 5, …, 23 are.
This makes the field a picture of the real numbers as far as rules need one:

* *Positive* are the squares: products and quotients of positive elements are positive, so are all rationals made of the
  primes up to 23, and of x and −x exactly one is. Every x has a sign that is multiplicative (the Legendre symbol).
* √x = x^((p+1)/4) is the positive root of a positive x, and √(xy) = √x·√y.
* exp: exponents are residues modulo q, exp(x) = gˣ is positive, and exp(x + y) = exp(x)·exp(y), for g of order q.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from taso_ext._core import field_matmul, field_multiply, field_power

Array = npt.NDArray[np.int64]

EXPONENT_PRIMES = (1152921504584008319, 1152921504278816159)
"""q: the largest below 2⁶⁰ for which q and 2q + 1 are as said above."""
PRIMES = (2 * EXPONENT_PRIMES[0] + 1, 2 * EXPONENT_PRIMES[1] + 1)
"""p: primes of 61 bits."""
SMALL_SQUARES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
"""Primes that are squares modulo all four."""

_HALF = 30  # bits of the lower limb in `sum`: 2³² summands of 31 bits fit int64


class NotInvertibleError(ArithmeticError):
    """A division met a zero divisor; other random inputs usually avoid it."""


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo `prime`."""

    prime: int

    def random(self, generator: np.random.Generator, dims: tuple[int, ...]) -> Array:
        return generator.integers(0, self.prime, dims, dtype=np.int64)

    def constant(self, number: float | Fraction) -> int:
        """The field element of a fraction, or of a float taken as the exact fraction that it is."""
        fraction = Fraction(number)
        return fraction.numerator * pow(fraction.denominator, -1, self.prime) % self.prime

    def reduce(self, integers: npt.NDArray[np.integer]) -> Array:
        """Residues of any integers, negative ones included."""
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
        """a⁻¹ = a^(p−2), by Fermat.

        Raises:
          NotInvertibleError: if any element is zero.
        """
        if not a.all():
            raise NotInvertibleError(f"division by zero modulo {self.prime}")
        return self.power(a, self.prime - 2)

    def power(self, a: Array | int, exponent: Array | int) -> Array:
        """aⁿ for n ≥ 0, element by element."""
        return np.asarray(field_power(a, exponent, self.prime))

    def sign(self, a: Array) -> Array:
        """1, −1 or 0, as int64: the Legendre symbol."""
        symbol = self.power(a, self.prime // 2)
        return np.where(symbol == self.prime - 1, -1, symbol)

    def sqrt(self, a: Array) -> Array:
        """The positive root of positive elements; of the others that of −a."""
        return self.power(a, (self.prime + 1) // 4)

    def sum(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        high, low = (
            np.asarray(part.sum(axis=axes, keepdims=keepdims, dtype=np.int64)) % self.prime
            for part in (a >> _HALF, a & (2**_HALF - 1))
        )
        return self.add(self.mul(high, 2**_HALF), low)

    def mean(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        count = int(np.prod([a.shape[axis] for axis in axes], dtype=np.int64))
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
        """Matrix product with NumPy's batching, of arrays of rank 2 or more."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = int(np.prod(batch, dtype=np.int64))
        left, right = (np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:]) for x in (a, b))
        return field_matmul(left, right, self.prime).reshape(*batch, a.shape[-2], b.shape[-1])
