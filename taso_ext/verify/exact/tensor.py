"""Tensors of exact numbers, literals (real constants as exact numbers), and one operator application as kernels see it.

The parts of a tensor are arrays of equal shape. The first part holds residues modulo p, which are the number itself.
The last part holds real numbers. In graphs with exponentials, one more part between them holds residues modulo q
(fields.py says why). It takes part in sums and products like the first part, and `exp` reads it. In the result of `exp`
itself, this residue is a random function of the first, so exp(exp(x)) is a function of x like any other, but has no
laws.

A literal is a real constant as an exact number: √2, 1/√d, 2/π and 0.044715 instead of the floats to which exporters
round them. A float stands for the simplest number within two units in the last place of float32 (`TOLERANCE`), so both
sides of a rule may write a constant with any number of digits, and products such as √2·√2 = 2 hold exactly. Simple
numbers are fractions, square roots of fractions, both with π or 1/π as a factor, and fourth roots; any other number is
the float itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.fields import Array, KeyedFunctions, PrimeField, RealField, RealFunctions

TOLERANCE = 2.0**-22
"""The relative tolerance: two units in the last place of float32."""

# For a number rounded to float32, small denominators are tried before decimals and large ones after them, because
# fractions with large denominators lie so densely that one of them always fits.
_SMALL_DENOMINATOR, _LOOSE_DENOMINATOR = 32, 500
_LARGEST = 10**6  # most numerator times denominator of a rounded number: beyond it some integer always fits
_TIGHT, _TIGHT_DENOMINATOR = 4e-15, 200_000  # a number computed in float64; fractions this simple are far apart
SHORT = 1024
"""The greatest denominator and size of a binary fraction that is certain to be meant: a rounded multiple of π or a
rounded root is hardly ever one, and products of two are exact in float32."""
_DIGITS = 5  # a decimal of at most this many significant digits is taken literally


@dataclass(frozen=True)
class Literal:
    """The number sign · (fraction · π^pi_power)^(1/2^roots), with fraction ≥ 0."""

    sign: int
    fraction: Fraction
    pi_power: int = 0
    roots: int = 0


@lru_cache(maxsize=4096)
def recognise(number: float) -> Literal:
    """Returns the exact number that a finite float stands for."""
    size = abs(number)
    if size == 0:
        return Literal(1, Fraction(0))
    sign = -1 if number < 0 else 1
    if is_short(number):
        return Literal(sign, Fraction(size))
    literal = (
        _simple(size, TOLERANCE, _SMALL_DENOMINATOR)
        or _decimal(size)
        or _simple(size, _TIGHT, _TIGHT_DENOMINATOR)
        or _simple(size, TOLERANCE, _LOOSE_DENOMINATOR)
    )
    if literal is None:
        return Literal(sign, Fraction(size))
    return Literal(sign, literal.fraction, literal.pi_power, literal.roots)


def is_short(number: float) -> bool:
    """Returns whether a finite float is a binary fraction within `SHORT`."""
    return abs(number) <= SHORT and Fraction(number).denominator <= SHORT


def _simple(size: float, tolerance: float, denominator: int) -> Literal | None:
    """Returns the form near `size` with the simplest fraction, or None. Attention's scale needs fourth roots."""
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
    """Returns a fraction near `rational` with a small denominator (below 1: a small numerator), or None."""
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


Axes = tuple[int, ...]
Part = npt.NDArray[Any]
"""int64 residues; float64 numbers in the last part."""
Field = Any
"""A PrimeField for parts of residues, a RealField for the last."""


@dataclass(frozen=True)
class Arithmetic:
    """The fields and functions that all tensors of one evaluation share.

    Attributes:
      fields: the field of each part.
      functions: random functions into the prime fields.
      real: functions of real numbers.
    """

    fields: tuple[Field, ...]
    functions: tuple[KeyedFunctions, ...]
    real: RealFunctions

    @staticmethod
    def at(primes: Sequence[int], seed: int) -> Arithmetic:
        """Returns the arithmetic modulo `primes` with the random functions, the π and the e of `seed`."""
        functions = tuple(KeyedFunctions(prime, seed) for prime in primes)
        fields = (*(PrimeField(prime) for prime in primes), RealField())
        return Arithmetic(fields, functions, RealFunctions(functions[0]))

    def constant(self, number: float) -> FieldTensor:
        """Returns the literal of `number`; infinities and NaN are symbols, for which exp(−∞) = 0 is the only law."""
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

    def attribute(self, number: float) -> FieldTensor:
        """Returns a real attribute of an operator as a scalar."""
        return self.constant(number)

    def constants(self, numbers: npt.NDArray[np.floating]) -> FieldTensor:
        """Returns the tensor of `constant` of every element."""
        different, places = np.unique(numbers, return_inverse=True)
        parts = zip(*(self.constant(number).parts for number in different.tolist()), strict=True)
        return FieldTensor(self, tuple(np.stack(part)[places.ravel()].reshape(numbers.shape) for part in parts))

    def integers(self, numbers: npt.ArrayLike) -> FieldTensor:
        """Returns exact integers or truth values in every part."""
        whole = np.asarray(numbers).astype(np.int64)
        return FieldTensor(self, tuple(field.reduce(whole) for field in self.fields))

    def hashed(self, images: Sequence[Array]) -> FieldTensor:
        """Returns a tensor of the random residues `images`; its real numbers follow from them."""
        return FieldTensor(self, (*images, self.real.between(images[0])))

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...]) -> FieldTensor:
        """Returns random numbers: squares if the real number is positive, and negatives of squares otherwise.

        So squares stand for positive numbers, and √x² is |x|.
        """
        *residues, real = (field.random(generator, dims) for field in self.fields)
        parts = []
        for field, part in zip(self.fields, residues, strict=False):
            squares = field.mul(part, part)
            parts.append(np.asarray(np.where(real > 0, squares, field.reduce(-squares))))
        return FieldTensor(self, (*parts, real))

    def sign(self, x: FieldTensor) -> Array:
        """Returns 1, −1 or 0 for each element: 0 if the residue is 0, else the sign of the real number."""
        sign = np.where(np.isnan(x.real), 1.0, np.sign(x.real))  # undefined: any branch, but the same on both sides
        return np.asarray(np.where(x.parts[0] == 0, 0, sign).astype(np.int64))

    def order(self, x: FieldTensor) -> npt.NDArray[np.float64]:
        """Returns numbers in the order of the elements; 0 if it is undefined: any place, but the same on both sides."""
        return np.nan_to_num(x.real, nan=0.0)

    def exp(self, x: FieldTensor) -> FieldTensor:
        """Returns gˣ, where g is a random square and x the residue modulo q; exp(−∞) is 0. Needs the part modulo q."""
        functions, (_, exponents, real) = self.functions, x.parts
        field = PrimeField(functions[0].prime)
        root = functions[0].symbol("e")
        value = field.power(field.mul(np.asarray(root), root), exponents)
        value = np.where(np.isneginf(real), 0, value)
        follow = np.where(value == 0, 0, functions[1].pointwise("exp", [value]))
        return FieldTensor(self, (value, follow, self.real.pointwise("exp", [real], [])))

    def keyed(self, key: str, operands: Sequence[FieldTensor], *, fixes_zero: bool) -> FieldTensor:
        """Returns the random function `key` of corresponding elements, broadcast; f(0) = 0 if `fixes_zero`."""
        residues = [tensor.parts[0] for tensor in operands]
        images = (f.pointwise(key, residues, fixes_zero=fixes_zero) for f in self.functions)
        real = self.real.pointwise(key, [tensor.real for tensor in operands], residues)
        return FieldTensor(self, (*images, real))

    def rounded(self, key: str, x: FieldTensor) -> FieldTensor:
        """Returns a random function whose results end in 16 zero bits; it keeps numbers that already end so."""
        step, image = 2**16, self.keyed(key, [x], fixes_zero=True)
        image = FieldTensor(self, (*(part // step * step for part in image.parts[:-1]), image.real))
        return x.chosen(image, x.parts[0] % step == 0)


@dataclass(frozen=True)
class FieldTensor:
    """A tensor of exact numbers.

    Attributes:
      parts: the residues, and last the real numbers, [*dims] each.
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
        """Returns a rearrangement of the elements: `function` of every part."""
        return FieldTensor(self.arithmetic, tuple(np.asarray(function(part)) for part in self.parts))

    def each(self, function: Callable[..., Part], *others: FieldTensor) -> FieldTensor:
        """Applies function(field, part, *parts of the others) in each field."""
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
        """Returns 1, −1 or 0 for each element."""
        return self.arithmetic.sign(self)

    def times_sign(self, sign: Array) -> FieldTensor:
        return self.each(lambda field, part: field.mul(part, field.reduce(sign)))

    def absolute(self) -> FieldTensor:
        return self.times_sign(self.sign())

    def sqrt(self) -> FieldTensor:
        """Returns √x. An element that is positive as a real number and no square in the field has a random root."""
        root = self.each(lambda field, part: field.sqrt(part))
        if ((root * root).parts[0] != self.parts[0]).any():
            self.arithmetic.functions[0].used.add("Sqrt")
        return root

    def power(self, exponent: int) -> FieldTensor:
        """Returns xⁿ for n ≥ 0."""
        return self.each(lambda field, part: field.power(part, exponent))

    def exp(self) -> FieldTensor:
        """Returns eˣ."""
        return self.arithmetic.exp(self)

    def keyed(self, key: str, *others: FieldTensor, fixes_zero: bool = False) -> FieldTensor:
        """Returns the function `key` of corresponding elements, broadcast; f(0) = 0 if `fixes_zero`."""
        return self.arithmetic.keyed(key, (self, *others), fixes_zero=fixes_zero)

    def keyed_odd(self, key: str) -> FieldTensor:
        """Returns f of every element, where f is a random function with f(−x) = −f(x)."""
        sign = self.sign()
        return self.times_sign(sign).keyed(key).times_sign(sign)

    def keyed_even(self, key: str) -> FieldTensor:
        """Returns f of every element, where f is a random function with f(−x) = f(x)."""
        return self.absolute().keyed(key)

    def chosen(self, other: FieldTensor, chosen: npt.NDArray[np.bool_]) -> FieldTensor:
        """Returns the elements of this tensor where `chosen` is true and those of `other` elsewhere, broadcast."""
        parts = tuple(np.where(chosen, a, b) for a, b in zip(self.parts, other.parts, strict=True))
        return FieldTensor(self.arithmetic, parts)


def each(arithmetic: Arithmetic, function: Callable[..., Part], tensors: Sequence[FieldTensor | None]) -> FieldTensor:
    """Applies function(field, *parts) in each field; the part of an absent tensor is None."""
    parts = []
    for index, field in enumerate(arithmetic.fields):
        operands = [None if tensor is None else tensor.parts[index] for tensor in tensors]
        parts.append(np.asarray(function(field, *operands)))
    return FieldTensor(arithmetic, tuple(parts))


class UnsupportedOperatorError(ValueError):
    """The operator is not a function of its inputs (random), or it has a form that the evaluator does not know."""


@dataclass(frozen=True)
class Call:
    """One operator application.

    Attributes:
      op_type: the operator of the node, after its domain if that is not ONNX's own.
      attributes: the attributes of the node.
      inputs: the operands; None for an absent optional one.
      output_dims: the shape of each output, as inferred by the engine.
      literals: by input position, the number that all elements of a constant operand have.
      arithmetic: the fields and random functions of this evaluation.
    """

    op_type: str
    attributes: dict[str, Any]
    inputs: list[FieldTensor | None]
    output_dims: list[tuple[int, ...]]
    literals: dict[int, float]
    arithmetic: Arithmetic

    def operand(self, index: int) -> FieldTensor:
        """Returns the input at `index`, which must be present."""
        value = self.optional(index)
        if value is None:
            raise UnsupportedOperatorError(f"{self.op_type} needs its input {index}, which is absent")
        return value

    def optional(self, index: int) -> FieldTensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def operands(self) -> list[FieldTensor]:
        return [self.operand(index) for index in range(len(self.inputs))]

    def each(self, function: Callable[..., Array], *tensors: FieldTensor | None) -> FieldTensor:
        """Applies function(field, *parts) in each field."""
        return each(self.arithmetic, function, tensors)

    def number(self, name: str, default: float) -> FieldTensor:
        """Returns a real attribute as the literal that it stands for."""
        return self.arithmetic.attribute(float(self.attributes.get(name, default)))

    def key(self) -> str:
        """Returns a key of the random function: the operator and its attributes."""
        return f"{self.op_type}{sorted(self.attributes.items())}"

    def require(self, name: str, *accepted: object) -> None:
        """Raises UnsupportedOperatorError unless an attribute has an accepted value; a missing one has the first."""
        value = self.attributes.get(name, accepted[0])
        if value not in accepted:
            raise UnsupportedOperatorError(
                f"{self.op_type} with {name}={value!r} is not evaluated; {name}={accepted[0]!r} is"
            )


Kernel = Callable[[Call], list[FieldTensor]]
