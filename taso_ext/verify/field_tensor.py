"""Tensors of exact numbers: one residue for values, one for exponents, and where maxima are compared, ranks.

A tensor's parts are arrays of equal shape. The first holds residues modulo p, the number itself. Graphs with
exponentials have a second one modulo q (prime_field.py): it takes part in sums and products like the first, and is what
`exp` reads. The second residue of exp's own result is a random function of the first, so that exp(exp(x)) is a function
of x like any other, but has no laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext.verify.keyed_functions import KeyedFunctions
from taso_ext.verify.literals import recognise
from taso_ext.verify.prime_field import Array, PrimeField

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Arithmetic:
    """What the tensors of one evaluation have in common.

    Attributes:
      fields: of the values, and of the exponents where there are any.
      functions: random functions into these fields.
      ordered: whether a maximum is the greatest element in a random total order, which declared monotone functions
        keep. Otherwise max(a, b) = (a + b + |a − b|)/2, which can be shifted and scaled but not regrouped.
    """

    fields: tuple[PrimeField, ...]
    functions: tuple[KeyedFunctions, ...]
    ordered: bool

    @staticmethod
    def at(primes: Sequence[int], seed: int, *, ordered: bool) -> Arithmetic:
        """The arithmetic whose random functions, and whose π and e, are those of `seed`."""
        functions = tuple(KeyedFunctions(prime, seed) for prime in primes)
        return Arithmetic(tuple(PrimeField(prime) for prime in primes), functions, ordered)

    def constant(self, number: float) -> FieldTensor:
        """The literal that `number` stands for; infinities and NaN are symbols without laws."""
        if not np.isfinite(number):
            return FieldTensor(self, tuple(np.asarray(f.symbol(f"literal {number}")) for f in self.functions))
        literal, parts = recognise(float(number)), []
        for field, functions in zip(self.fields, self.functions, strict=True):
            pi = field.mul(np.asarray(functions.symbol("pi")), functions.symbol("pi"))  # a square: π is positive
            power = field.inverse(pi) if literal.pi_power < 0 else field.power(pi, literal.pi_power)
            size = field.mul(power, field.constant(literal.fraction))
            for _ in range(literal.roots):
                size = field.sqrt(size)
            parts.append(field.reduce(literal.sign * size))
        return FieldTensor(self, tuple(parts))

    def constants(self, numbers: npt.NDArray[np.floating]) -> FieldTensor:
        """`constant` of every element."""
        different, places = np.unique(numbers, return_inverse=True)
        parts = zip(*(self.constant(number).parts for number in different.tolist()), strict=True)
        return FieldTensor(self, tuple(np.stack(part)[places].reshape(numbers.shape) for part in parts))

    def integers(self, numbers: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> FieldTensor:
        """Exact integers or truth values in every part."""
        return FieldTensor(self, tuple(field.reduce(np.asarray(numbers).astype(np.int64)) for field in self.fields))


@dataclass(frozen=True)
class FieldTensor:
    """
    Attributes:
      parts: residues [*dims], one array for each field.
      ranks: two int64 arrays [*dims], where the tensor came through monotone functions: a key of these functions, and
        where the element stood before them. None means its place in the order is that of its value.
    """

    arithmetic: Arithmetic
    parts: tuple[Array, ...]
    ranks: tuple[Array, Array] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def rank(self) -> int:
        return self.parts[0].ndim

    def truth(self) -> npt.NDArray[np.bool_]:
        return self.parts[0] != 0

    def moved(self, function: Callable[[Array], Array]) -> FieldTensor:
        """A rearrangement of the elements."""
        ranks = None if self.ranks is None else (function(self.ranks[0]), function(self.ranks[1]))
        return FieldTensor(self.arithmetic, tuple(function(part) for part in self.parts), ranks)

    def ranked(self) -> tuple[Array, Array]:
        """`ranks`, or those of a tensor that came through no monotone function."""
        if self.ranks is not None:
            return self.ranks
        return np.zeros(self.dims, np.int64), self.arithmetic.functions[0].order(self.parts[0])

    def after(self, before: FieldTensor, key: str) -> FieldTensor:
        """This tensor as the image of `before` under the monotone function named `key`."""
        paths, places = before.ranked()
        path = self.arithmetic.functions[0].pointwise(f"path {key}", [paths])
        return FieldTensor(self.arithmetic, self.parts, (path, places))

    def each(self, function: Callable[..., Array], *others: FieldTensor) -> FieldTensor:
        """function(field, part, *parts of the others) in each field."""
        return each(self.arithmetic, function, [self, *others])

    def __add__(self, other: FieldTensor) -> FieldTensor:
        return self.each(PrimeField.add, other)

    def __sub__(self, other: FieldTensor) -> FieldTensor:
        return self.each(PrimeField.sub, other)

    def __mul__(self, other: FieldTensor) -> FieldTensor:
        return self.each(PrimeField.mul, other)

    def __truediv__(self, other: FieldTensor) -> FieldTensor:
        return self.each(PrimeField.div, other)

    def __matmul__(self, other: FieldTensor) -> FieldTensor:
        return self.each(PrimeField.matmul, other)

    def __neg__(self) -> FieldTensor:
        return self.each(lambda field, part: field.reduce(-part))

    def sum(self, axes: Axes, *, keepdims: bool = True) -> FieldTensor:
        return self.each(lambda field, part: field.sum(part, axes, keepdims=keepdims))

    def mean(self, axes: Axes, *, keepdims: bool = True) -> FieldTensor:
        return self.each(lambda field, part: field.mean(part, axes, keepdims=keepdims))

    def reshape(self, dims: Sequence[int]) -> FieldTensor:
        return self.moved(lambda part: part.reshape(tuple(dims)))

    def transpose(self, perm: Sequence[int]) -> FieldTensor:
        return self.moved(lambda part: part.transpose(tuple(perm)))

    def sign(self) -> Array:
        """1, −1 or 0 for each element; positive is what is a square modulo p."""
        return self.arithmetic.fields[0].sign(self.parts[0])

    def times_sign(self, sign: Array) -> FieldTensor:
        return self.each(lambda field, part: field.reduce(part * sign))

    def absolute(self) -> FieldTensor:
        return self.times_sign(self.sign())

    def sqrt(self) -> FieldTensor:
        return self.each(PrimeField.sqrt)

    def power(self, exponent: int) -> FieldTensor:
        """xⁿ for n ≥ 0."""
        return self.each(lambda field, part: field.power(part, exponent))

    def exp(self) -> FieldTensor:
        """gˣ, where g is a random square and x the residue modulo q; needs the field of exponents."""
        arithmetic, exponents = self.arithmetic, self.parts[1]
        root = arithmetic.functions[0].symbol("e")
        value = arithmetic.fields[0].power(arithmetic.fields[0].mul(np.asarray(root), root), exponents)
        return FieldTensor(arithmetic, (value, arithmetic.functions[1].pointwise("exp", [value])))

    def keyed(self, key: str, *others: FieldTensor, fixes_zero: bool = False) -> FieldTensor:
        """A random function of corresponding elements, broadcast."""
        operands = [tensor.parts[0] for tensor in (self, *others)]
        images = (f.pointwise(key, operands, fixes_zero=fixes_zero) for f in self.arithmetic.functions)
        return FieldTensor(self.arithmetic, tuple(images))

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


def each(arithmetic: Arithmetic, function: Callable[..., Array], tensors: Sequence[FieldTensor | None]) -> FieldTensor:
    """function(field, *parts) in each field; an absent tensor has the part None."""
    parts = []
    for index, field in enumerate(arithmetic.fields):
        operands = [None if tensor is None else tensor.parts[index] for tensor in tensors]
        parts.append(np.asarray(function(field, *operands)))
    return FieldTensor(arithmetic, tuple(parts))
