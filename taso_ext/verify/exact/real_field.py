"""Real numbers beside residues: they decide what is positive and what is greatest, and never whether results agree.

Every exact number carries the real number that it stands for at one random real point. The two are independent: the
real one picks a branch (an argument is negative, the third element is the greatest), and the residues test that source
and target have the same formula there. A branch that a random point meets holds on a whole region, where equal formulas
are equal functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.keyed_functions import KeyedFunctions

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
        """Numbers of both signs, small and large."""
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
    """The functions themselves where they are known, and any fixed real numbers elsewhere.

    Attributes:
      hashed: random functions of residues, from which the others are made.
    """

    hashed: KeyedFunctions

    @_QUIET
    def pointwise(self, key: str, operands: Sequence[Reals], residues: Sequence[npt.NDArray[np.int64]]) -> Reals:
        """f(a, b, …) element by element."""
        known = KNOWN.get(key)
        if known is not None:
            return np.asarray(known(*operands))
        return self.between(self.hashed.pointwise(key, residues))

    def between(self, residues: npt.NDArray[np.int64]) -> Reals:
        """Real numbers in (−1, 1) that depend on nothing but the residues."""
        return np.asarray(2.0 * (residues / self.hashed.prime) - 1.0)
