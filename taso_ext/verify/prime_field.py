"""Exact arithmetic modulo a prime on NumPy arrays.

Elements are int64 in [0, p) with p < 2³¹, so a product of two fits int64 without overflow; that is why the primes are
this small and why two of them are used (finite_field.py states the resulting error bound).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]

PRIMES = (2**31 - 1, 2**31 - 19)  # the two largest below 2³¹

_HALF = 16  # bits of the lower limb in `matmul`
_MAX_DEPTH = 2**16  # summands for which (2¹⁶)·(2³¹) products still add up within int64


class NotInvertibleError(ArithmeticError):
    """A division met a zero divisor; other random inputs usually avoid it."""


@dataclass(frozen=True)
class PrimeField:
    """The integers modulo `prime`."""

    prime: int

    def random(self, generator: np.random.Generator, dims: tuple[int, ...]) -> Array:
        return generator.integers(0, self.prime, dims, dtype=np.int64)

    def constant(self, number: float) -> int:
        """The field element of a float taken as the exact fraction that it is."""
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
        return a * b % self.prime

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

    def power(self, a: Array, exponent: int) -> Array:
        """aⁿ for n ≥ 0, by repeated squaring."""
        result = np.ones_like(a)
        while exponent:
            if exponent & 1:
                result = self.mul(result, a)
            a, exponent = self.mul(a, a), exponent >> 1
        return result

    def sum(self, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
        return np.asarray(a.sum(axis=axes, keepdims=keepdims, dtype=np.int64)) % self.prime

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
        """Matrix product with NumPy's batching; `a` is cut into two limbs so that no sum overflows.

        Raises:
          ValueError: if the summed dimension exceeds 2¹⁶.
        """
        if a.shape[-1] > _MAX_DEPTH:
            raise ValueError(f"exact products sum at most {_MAX_DEPTH} terms, got {a.shape[-1]}; use smaller tensors")
        high, low = a >> _HALF, a & (2**_HALF - 1)
        return (((high @ b) % self.prime << _HALF) + low @ b) % self.prime
