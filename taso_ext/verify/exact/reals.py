"""Equality of two graphs as real functions, by evaluation at random real points with many digits.

A prime field has no logarithm, no tangent and no rounding. There, random functions stand for these, so identities such
as tanh x = 2·sigmoid(2x) − 1 or log(x·y) = log x + log y fail although they are true. This second judge hears such
rules: it evaluates both graphs in floating point with `DIGITS` decimal digits. Two analytic functions that differ
hardly ever agree at a random point to `AGREEING` digits; functions with branches are compared at as many points as the
prime fields need (points.py). Half of the points are small numbers, where no function saturates. A few more
points are small integers, at which functions may be defined that elsewhere are not: (−2)² is 4, and 2·log(−2) is not.

* Functions are real: a logarithm or root of a negative number is undefined (NaN). Where the source is undefined,
  nothing is compared. Where it is defined, the target has to be defined.
* Constants are the literals of tensor.py. A constant other than a short binary fraction is uncertain by `TOLERANCE`,
  because a rule that computes it (α·β) rounds it. An attribute of the target that the source does not have is always
  uncertain: 1 − β is 1 for a small β. A difference may be as large as the one that such errors make in the source and
  in the target together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.fields import Array, KeyedFunctions, NotInvertibleError, RealField, RealFunctions
from taso_ext.verify.exact.tensor import (
    TOLERANCE,
    Arithmetic,
    FieldTensor,
    UnsupportedOperatorError,
    is_short,
    recognise,
)

DIGITS = 60
AGREEING = 25
"""Results agree if their difference is below 10^−AGREEING of the largest result; the other digits absorb rounding."""
_NOTHING = 35  # numbers below 10^−_NOTHING are nothing but rounding, because those drawn are far larger

Long = npt.NDArray[np.object_]
"""Numbers of `DIGITS` digits."""

context = mpmath.mp.clone()
context.dps = DIGITS
_NAN = context.nan


def _long(function: Callable[..., Any], arity: int = 1) -> Callable[..., Long]:
    """Returns a function of arrays that is undefined wherever `function` has no real result."""

    def real(*operands: Any) -> Any:
        if any(context.isnan(each) for each in operands):
            return _NAN
        try:
            result = function(*operands)
        except (ZeroDivisionError, ValueError):
            return _NAN
        return _NAN if isinstance(result, context.mpc) else result

    pointwise = np.frompyfunc(real, arity, 1)
    return lambda *arrays: np.asarray(pointwise(*arrays), object)


def _power(base: Any, exponent: Any) -> Any:
    return context.one if exponent == 0 else context.power(base, exponent)


def _to_integer(x: Any) -> Any:
    return context.floor(x) if x >= 0 else context.ceil(x)


_exp, _sqrt = _long(context.exp), _long(context.sqrt)
_INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)  # TensorProto's UINT8, INT8, UINT16, INT16, INT32, INT64, UINT32, UINT64
KNOWN: dict[str, Callable[..., Long]] = {
    "Log": _long(context.ln),
    "Pow": _long(_power, 2),
    "Round": _long(context.nint),  # a half goes to the even neighbour, as in ONNX
    **{name: _long(getattr(context, name.lower())) for name in ("Erf", "Floor", "Ceil", "Sinh", "Cosh", "Tanh")},
    **{name: _long(getattr(context, name.lower())) for name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan")},
    **{name: _long(getattr(context, name.lower())) for name in ("Asinh", "Acosh", "Atanh")},
    "Mod[('fmod', 0)]": _long(lambda x, y: x - y * context.floor(x / y), 2),
    "Mod[('fmod', 1)]": _long(lambda x, y: x - y * _to_integer(x / y), 2),
    **{f"Cast[('to', {to})]": _long(_to_integer) for to in _INTEGERS},
    "Cast[('to', 9)]": _long(lambda x: context.mpf(x != 0)),
}
"""Real functions by the key of the random function that stands for them in prime fields."""


class LongField:
    """Real numbers of `DIGITS` digits with the interface of `PrimeField`."""

    def constant(self, number: float | Fraction) -> Any:
        fraction = Fraction(number)
        return context.mpf(fraction.numerator) / fraction.denominator

    def reduce(self, integers: npt.ArrayLike) -> Long:
        return np.asarray(np.frompyfunc(context.convert, 1, 1)(np.asarray(integers, object)), object)

    def add(self, a: Long, b: Long) -> Long:
        return np.asarray(a + b)

    def sub(self, a: Long, b: Long) -> Long:
        return np.asarray(a - b)

    def mul(self, a: Long, b: Long) -> Long:
        return np.asarray(a * b)

    def div(self, a: Long, b: Long) -> Long:
        return self.mul(a, self.inverse(b))

    def inverse(self, a: Long) -> Long:
        """Returns 1 / a.

        Raises:
          NotInvertibleError: if an element is zero, or so near to it that nothing but rounding is left.
        """
        if np.any(np.asarray(abs(a) < context.mpf(10) ** -_NOTHING, bool)):
            raise NotInvertibleError("division by zero")
        return np.asarray(context.one / a)

    def power(self, a: Long, exponent: int) -> Long:
        return np.asarray(a**exponent)

    def sqrt(self, a: Long) -> Long:
        return _sqrt(a)

    def sum(self, a: Long, axes: tuple[int, ...], *, keepdims: bool = False) -> Long:
        return np.asarray(a.sum(axis=axes, keepdims=keepdims), object)

    def mean(self, a: Long, axes: tuple[int, ...], *, keepdims: bool = False) -> Long:
        count = math.prod(a.shape[axis] for axis in axes)
        return np.asarray(self.sum(a, axes, keepdims=keepdims) / context.mpf(count), object)

    def prod(self, a: Long, axes: tuple[int, ...], *, keepdims: bool = False) -> Long:
        return np.asarray(a.prod(axis=axes, keepdims=keepdims), object)

    def matmul(self, a: Long, b: Long) -> Long:
        return np.asarray(np.matmul(a, b), object)


@dataclass(frozen=True)
class LongArithmetic(Arithmetic):
    """The arithmetic of one evaluation in real numbers.

    Attributes:
      largest: the numbers drawn are from 1/8 to this in size; 0 for small integers, which may be equal or zero.
      errors: the seed of errors of uncertain constants, or None for no errors.
      written: whether constants are the floats that they are written as, instead of the literals that these stand for.
      given: the attributes that no rule has computed, or None if all are such ones.
      uncertain: the uncertain constants that were met.
    """

    largest: float = 2.0
    errors: int | None = None
    written: bool = False
    given: frozenset[float] | None = None
    uncertain: set[float] = field(default_factory=set)

    @staticmethod
    def of(
        point: int, errors: int | None = None, *, written: bool = False, given: frozenset[float] | None = None
    ) -> LongArithmetic:
        """Returns the arithmetic of a point. Numbers are small at every second one, and integers at negative ones."""
        unused, largest = KeyedFunctions(2, 0), 0.0 if point < 0 else 16.0 if point % 2 else 2.0
        fields = LongField(), RealField()
        return LongArithmetic(fields, (unused,), RealFunctions(unused), largest, errors, written, given)

    def constant(self, number: float) -> FieldTensor:
        return self._literal(number, not is_short(number))

    def attribute(self, number: float) -> FieldTensor:
        computed = self.given is not None and number not in self.given
        return self._literal(number, number != 0 and (computed or not is_short(number)))

    def _literal(self, number: float, uncertain: bool) -> FieldTensor:
        real = np.asarray(float(number))
        if not np.isfinite(number):
            return FieldTensor(self, (np.asarray(context.mpf(float(number)), object), real))
        if self.written:
            return FieldTensor(self, (np.asarray(context.mpf(float(number)), object), real))
        literal = recognise(float(number))
        size = LongField().constant(literal.fraction) * context.pi**literal.pi_power
        for _ in range(literal.roots):
            size = context.sqrt(size)
        if uncertain:
            self.uncertain.add(number)
            if self.errors is not None:
                generator = np.random.default_rng([self.errors, *np.float64(number).tobytes()])
                size *= 1 + context.mpf(TOLERANCE * generator.choice([-1, 1]))
        return FieldTensor(self, (np.asarray(literal.sign * size, object), real))

    def floats(self, numbers: npt.NDArray[np.floating]) -> FieldTensor:
        """Returns floats as the real numbers that they are."""
        real = numbers.astype(np.float64)
        return FieldTensor(self, (LongField().reduce(real), real))

    def hashed(self, images: Sequence[Array]) -> FieldTensor:
        raise UnsupportedOperatorError("an operator without a definition has no value in real numbers")

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...]) -> FieldTensor:
        """Returns random numbers of both signs."""
        if self.largest:
            sizes = 2.0 ** generator.uniform(-3.0, math.log2(self.largest), dims)
            real = np.asarray(sizes * generator.choice([-1.0, 1.0], dims))
        else:
            real = generator.integers(-3, 4, dims).astype(np.float64)
        return FieldTensor(self, (LongField().reduce(real), real))

    def sign(self, x: FieldTensor) -> Array:
        number, nothing = x.parts[0], context.mpf(10) ** -_NOTHING
        above, below = (np.asarray(each, bool) for each in (number > nothing, number < -nothing))
        undefined = np.asarray(number != number, bool)  # any branch, but the same on both sides
        return np.asarray((above | undefined).astype(np.int64) - below)

    def order(self, x: FieldTensor) -> npt.NDArray[np.float64]:
        """Returns the places of the elements among all; float64 would take results near a limit for equal."""
        number = x.parts[0]
        different = sorted({each for each in number.ravel().tolist() if not context.isnan(each)})
        places = {each: float(place) for place, each in enumerate(different)}
        flat = [places.get(each, 0.0) for each in number.ravel().tolist()]
        return np.asarray(flat, np.float64).reshape(number.shape)

    def exp(self, x: FieldTensor) -> FieldTensor:
        return FieldTensor(self, (_exp(x.parts[0]), self.real.pointwise("exp", [x.real], [])))

    def keyed(self, key: str, operands: Sequence[FieldTensor], *, fixes_zero: bool) -> FieldTensor:
        """Returns the real function `key`.

        Raises:
          UnsupportedOperatorError: if it is not known.
        """
        if key not in KNOWN:
            raise UnsupportedOperatorError(f"{key} has no definition in real numbers")
        number = KNOWN[key](*(operand.parts[0] for operand in operands))
        return FieldTensor(self, (number, number.astype(np.float64)))

    def rounded(self, key: str, x: FieldTensor) -> FieldTensor:
        return self.keyed(key, [x], fixes_zero=True)


@dataclass(frozen=True)
class LongMismatch:
    """The element in which two graphs differ at a real point, and what each graph computes there."""

    output: int
    index: tuple[int, ...]
    source: float
    target: float

    def __str__(self) -> str:
        return (
            f"output {self.output} at {list(self.index)} is {self.source!r} in the source and {self.target!r} in the "
            "target, in real numbers"
        )


def first_difference(
    source: Sequence[FieldTensor], target: Sequence[FieldTensor], allowed: Sequence[Long]
) -> LongMismatch | None:
    """Returns the first difference of results above what is allowed, or None.

    Args:
      allowed: for each output, the differences that errors of constants explain.
    Raises:
      NotInvertibleError: if all elements of the source are undefined.
    """
    compared = False
    for output, (expected, got, margin) in enumerate(zip(source, target, allowed, strict=True)):
        a, b = expected.parts[0], got.parts[0]
        if a.shape != b.shape:
            return LongMismatch(output, (), float(a.size), float(b.size))
        for index in np.ndindex(a.shape):
            x, y = context.convert(a[index]), context.convert(b[index])
            if context.isnan(x):
                continue
            compared = True
            scale = max(abs(x), abs(y)) * context.mpf(10) ** -AGREEING + context.mpf(10) ** -_NOTHING
            if not (x == y or abs(x - y) <= scale + margin[index]):  # a target that is NaN differs
                return LongMismatch(output, tuple(index), float(x), float(y))
    if not compared:
        raise NotInvertibleError("the source is undefined at this point")
    return None


def movements(exact: Sequence[FieldTensor], moved: Sequence[Sequence[FieldTensor]]) -> list[Long]:
    """Returns for each output twice the largest distance between its elements and those of other evaluations."""
    found = []
    for output, tensor in enumerate(exact):
        number = tensor.parts[0]
        distance = LongField().reduce(np.zeros(number.shape))
        for other in moved:
            distance = np.maximum(distance, abs(other[output].parts[0] - number)) if number.size else distance
        found.append(np.asarray(distance * 2, object))
    return found
