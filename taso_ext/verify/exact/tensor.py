"""Tensors of exact numbers: a residue for the value, one for the exponent, and the real number that decides branches.

A tensor's parts are arrays of equal shape. The first holds residues modulo p, the number itself; the last real numbers
(real_field.py). Graphs with exponentials have one more between them, residues modulo q (prime_field.py): it takes part
in sums and products like the first, and is what `exp` reads. This residue of exp's own result is a random function of
the first, so that exp(exp(x)) is a function of x like any other, but has no laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.keyed_functions import KeyedFunctions
from taso_ext.verify.exact.literals import recognise
from taso_ext.verify.exact.prime_field import Array, PrimeField
from taso_ext.verify.exact.real_field import RealField, RealFunctions

Axes = tuple[int, ...]
Part = npt.NDArray[Any]
"""int64 residues, or float64 in the last part."""
Field = Any
"""A PrimeField for parts of residues, a RealField for the last."""


@dataclass(frozen=True)
class Arithmetic:
    """What the tensors of one evaluation have in common.

    Attributes:
      fields: of the parts.
      functions: random functions into the prime fields.
      real: functions of real numbers.
    """

    fields: tuple[Field, ...]
    functions: tuple[KeyedFunctions, ...]
    real: RealFunctions

    @staticmethod
    def at(primes: Sequence[int], seed: int) -> Arithmetic:
        """The arithmetic whose random functions, and whose π and e, are those of `seed`."""
        functions = tuple(KeyedFunctions(prime, seed) for prime in primes)
        fields = (*(PrimeField(prime) for prime in primes), RealField())
        return Arithmetic(fields, functions, RealFunctions(functions[0]))

    def constant(self, number: float) -> FieldTensor:
        """The literal that `number` stands for; infinities and NaN are symbols without laws but exp(−∞) = 0."""
        real = np.asarray(float(number))
        if not np.isfinite(number):
            return FieldTensor(self, (*(np.asarray(f.symbol(f"literal {number}")) for f in self.functions), real))
        literal, parts = recognise(float(number)), []
        for functions in self.functions:
            field = PrimeField(functions.prime)
            pi = field.mul(np.asarray(functions.symbol("pi")), functions.symbol("pi"))  # a square: π is positive
            power = field.inverse(pi) if literal.pi_power < 0 else field.power(pi, literal.pi_power)
            size = field.mul(power, field.constant(literal.fraction))
            for _ in range(literal.roots):
                size = field.sqrt(size)
            parts.append(field.reduce(literal.sign * size))
        return FieldTensor(self, (*parts, real))

    def constants(self, numbers: npt.NDArray[np.floating]) -> FieldTensor:
        """`constant` of every element."""
        different, places = np.unique(numbers, return_inverse=True)
        parts = zip(*(self.constant(number).parts for number in different.tolist()), strict=True)
        return FieldTensor(self, tuple(np.stack(part)[places].reshape(numbers.shape) for part in parts))

    def integers(self, numbers: npt.ArrayLike) -> FieldTensor:
        """Exact integers or truth values in every part."""
        whole = np.asarray(numbers).astype(np.int64)
        return FieldTensor(self, tuple(field.reduce(whole) for field in self.fields))

    def hashed(self, images: Sequence[Array]) -> FieldTensor:
        """A tensor of random residues; its real numbers follow from them."""
        return FieldTensor(self, (*images, self.real.between(images[0])))


@dataclass(frozen=True)
class FieldTensor:
    """
    Attributes:
      parts: residues, and last the real numbers, [*dims] each.
    """

    arithmetic: Arithmetic
    parts: tuple[Part, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def rank(self) -> int:
        return self.parts[0].ndim

    @property
    def real(self) -> npt.NDArray[np.float64]:
        return self.parts[-1]

    def truth(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.parts[0] != 0)

    def moved(self, function: Callable[[Part], Part]) -> FieldTensor:
        """A rearrangement of the elements."""
        return FieldTensor(self.arithmetic, tuple(np.asarray(function(part)) for part in self.parts))

    def each(self, function: Callable[..., Part], *others: FieldTensor) -> FieldTensor:
        """function(field, part, *parts of the others) in each field."""
        return each(self.arithmetic, function, [self, *others])

    def __add__(self, other: FieldTensor) -> FieldTensor:
        return self.each(lambda field, a, b: field.add(a, b), other)

    def __sub__(self, other: FieldTensor) -> FieldTensor:
        return self.each(lambda field, a, b: field.sub(a, b), other)

    def __mul__(self, other: FieldTensor) -> FieldTensor:
        return self.each(lambda field, a, b: field.mul(a, b), other)

    def __truediv__(self, other: FieldTensor) -> FieldTensor:
        return self.each(lambda field, a, b: field.div(a, b), other)

    def __matmul__(self, other: FieldTensor) -> FieldTensor:
        return self.each(lambda field, a, b: field.matmul(a, b), other)

    def __neg__(self) -> FieldTensor:
        return self.each(lambda field, part: field.reduce(-part))

    def inverse(self) -> FieldTensor:
        return self.each(lambda field, part: field.inverse(part))

    def sum(self, axes: Axes, *, keepdims: bool = True) -> FieldTensor:
        return self.each(lambda field, part: field.sum(part, axes, keepdims=keepdims))

    def mean(self, axes: Axes, *, keepdims: bool = True) -> FieldTensor:
        return self.each(lambda field, part: field.mean(part, axes, keepdims=keepdims))

    def reshape(self, dims: Sequence[int]) -> FieldTensor:
        return self.moved(lambda part: part.reshape(tuple(dims)))

    def transpose(self, perm: Sequence[int]) -> FieldTensor:
        return self.moved(lambda part: part.transpose(tuple(perm)))

    def sign(self) -> Array:
        """1, −1 or 0 for each element: of the real number, where the exact one is not 0."""
        sign = np.where(
            np.isnan(self.real), 1.0, np.sign(self.real)
        )  # undefined: any branch, but the same on both sides
        return np.asarray(np.where(self.parts[0] == 0, 0, sign).astype(np.int64))

    def times_sign(self, sign: Array) -> FieldTensor:
        return self.each(lambda field, part: field.mul(part, field.reduce(sign)))

    def absolute(self) -> FieldTensor:
        return self.times_sign(self.sign())

    def sqrt(self) -> FieldTensor:
        return self.each(lambda field, part: field.sqrt(part))

    def power(self, exponent: int) -> FieldTensor:
        """xⁿ for n ≥ 0."""
        return self.each(lambda field, part: field.power(part, exponent))

    def exp(self) -> FieldTensor:
        """gˣ, where g is a random square and x the residue modulo q; needs the field of exponents. exp(−∞) is 0."""
        functions, (_, exponents, real) = self.arithmetic.functions, self.parts
        field = PrimeField(functions[0].prime)
        root = functions[0].symbol("e")
        value = field.power(field.mul(np.asarray(root), root), exponents)
        value = np.where(np.isneginf(real), 0, value)
        follow = np.where(value == 0, 0, functions[1].pointwise("exp", [value]))
        return FieldTensor(self.arithmetic, (value, follow, self.arithmetic.real.pointwise("exp", [real], [])))

    def keyed(self, key: str, *others: FieldTensor, fixes_zero: bool = False) -> FieldTensor:
        """A random function of corresponding elements, broadcast."""
        tensors = (self, *others)
        residues = [tensor.parts[0] for tensor in tensors]
        images = (f.pointwise(key, residues, fixes_zero=fixes_zero) for f in self.arithmetic.functions)
        real = self.arithmetic.real.pointwise(key, [tensor.real for tensor in tensors], residues)
        return FieldTensor(self.arithmetic, (*images, real))

    def keyed_odd(self, key: str) -> FieldTensor:
        """A random function with f(−x) = −f(x)."""
        sign = self.sign()
        return self.times_sign(sign).keyed(key).times_sign(sign)

    def keyed_even(self, key: str) -> FieldTensor:
        """A random function with f(−x) = f(x)."""
        return self.absolute().keyed(key)

    def chosen(self, other: FieldTensor, chosen: npt.NDArray[np.bool_]) -> FieldTensor:
        """Elements of this tensor where `chosen`, else of the other, broadcast."""
        parts = tuple(np.where(chosen, a, b) for a, b in zip(self.parts, other.parts, strict=True))
        return FieldTensor(self.arithmetic, parts)


def each(arithmetic: Arithmetic, function: Callable[..., Part], tensors: Sequence[FieldTensor | None]) -> FieldTensor:
    """function(field, *parts) in each field; an absent tensor has the part None."""
    parts = []
    for index, field in enumerate(arithmetic.fields):
        operands = [None if tensor is None else tensor.parts[index] for tensor in tensors]
        parts.append(np.asarray(function(field, *operands)))
    return FieldTensor(arithmetic, tuple(parts))
