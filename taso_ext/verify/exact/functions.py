"""Kernels of pointwise functions and of maxima: exact if signs, roots and exponentials suffice, random otherwise.

Random functions have only the properties that the tables here declare;
tests/taso_ext/verify/exact/test_function_laws.py tests these properties against the real functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.linear import geometry_of, reduced_axes
from taso_ext.verify.exact.tensor import Call, FieldTensor, Kernel, UnsupportedOperatorError

ODD = frozenset(["Tanh", "Erf", "Sin", "Tan", "Asin", "Atan", "Sinh", "Asinh", "Atanh"])
"""Functions with f(−x) = −f(x), hence f(0) = 0."""
EVEN = frozenset(["Cos", "Cosh"])
"""Functions with f(−x) = f(x)."""
ROUNDINGS = frozenset(["Floor", "Ceil", "Round"])
"""Functions with f(f(x)) = f(x) and f(0) = 0."""
FREE = frozenset(["Log", "Acos", "Acosh", "Mod", "Pow", "BitShift"])
"""Pointwise functions without a declared property."""
EXPONENTIALS = frozenset(
    [
        *("Exp", "Sigmoid", "Softplus", "Softmax", "LogSoftmax", "Elu", "Selu", "Celu", "Mish", "Swish"),
        *("ReduceLogSumExp", "Attention", "com.microsoft::QuickGelu"),
    ]
)
"""Operators whose kernels call `exp`: graphs with one of them carry a second residue."""
EXTREMA = frozenset(["MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin"])
"""Operators that choose one of many elements."""
COMPARISONS = frozenset(
    [
        *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink", "HardSigmoid", "HardSwish"),
        *("Abs", "Sign", "Clip", "Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where", "Softsign"),
        *("ReduceL1", "Sqrt", "ReduceL2"),
    ]
)
"""Operators that decide by a sign: each random point shows only one side of a decision."""


def _exact(function: Callable[[FieldTensor], FieldTensor]) -> Kernel:
    return lambda call: [function(call.operand(0))]


def sigmoid(x: FieldTensor) -> FieldTensor:
    """Returns 1 / (1 + e⁻ˣ)."""
    one = x.arithmetic.constant(1)
    return one / (one + (-x).exp())


def softplus(x: FieldTensor) -> FieldTensor:
    """Returns log(1 + eˣ)."""
    return (x.arithmetic.constant(1) + x.exp()).keyed("Log")


def relu(x: FieldTensor) -> FieldTensor:
    return x.chosen(x.arithmetic.constant(0), x.sign() > 0)


def greater(a: FieldTensor, b: FieldTensor) -> FieldTensor:
    """Returns the larger of two, by the sign of a − b."""
    return a.chosen(b, (a - b).sign() > 0)


def smaller(a: FieldTensor, b: FieldTensor) -> FieldTensor:
    return -greater(-a, -b)


def clip(x: FieldTensor, low: FieldTensor | None, high: FieldTensor | None) -> FieldTensor:
    """Returns min(max(x, low), high); a bound of None does not apply."""
    if low is not None:
        x = greater(x, low)
    return x if high is None else smaller(x, high)


def _clip(call: Call) -> list[FieldTensor]:
    bounds = [
        call.number(name, 0.0) if name in call.attributes else call.optional(position)
        for position, name in ((1, "min"), (2, "max"))
    ]
    return [clip(call.operand(0), *bounds)]


def hard_sigmoid(x: FieldTensor, alpha: FieldTensor, beta: FieldTensor) -> FieldTensor:
    """Returns max(0, min(1, αx + β))."""
    return greater(smaller(alpha * x + beta, x.arithmetic.constant(1)), x.arithmetic.constant(0))


def _hard_swish(x: FieldTensor) -> FieldTensor:
    constant = x.arithmetic.constant
    return x * hard_sigmoid(x, constant(1 / 6), constant(0.5))


def _leaky(x: FieldTensor, slope: FieldTensor) -> FieldTensor:
    return x.chosen(slope * x, x.sign() >= 0)


def _elu(x: FieldTensor, alpha: FieldTensor) -> FieldTensor:
    return x.chosen(alpha * (x.exp() - x.arithmetic.constant(1)), x.sign() >= 0)


def _selu(call: Call) -> list[FieldTensor]:
    return [call.number("gamma", 1.0507009873554805) * _elu(call.operand(0), call.number("alpha", 1.6732632423543772))]


def _celu(call: Call) -> list[FieldTensor]:
    """Computes max(0, x) + min(0, α·(exp(x/α) − 1)), also for negative α."""
    x, alpha, one = call.operand(0), call.number("alpha", 1.0), call.arithmetic.constant(1)
    return [x.chosen(alpha * ((x / alpha).exp() - one), x.sign() >= 0)]


def _thresholded(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [x.chosen(call.arithmetic.constant(0), (x - call.number("alpha", 1.0)).sign() > 0)]


def _shrink(call: Call) -> list[FieldTensor]:
    x, zero = call.operand(0), call.arithmetic.constant(0)
    bias, bound = call.number("bias", 0.0), call.number("lambd", 0.5)
    lowered = (x - bias).chosen(zero, (x - bound).sign() > 0)
    return [(x + bias).chosen(lowered, (x + bound).sign() < 0)]


def gelu(x: FieldTensor) -> FieldTensor:
    """Returns x/2 · (1 + erf(x/√2))."""
    constant = x.arithmetic.constant
    return constant(0.5) * x * (constant(1) + (x / constant(2).sqrt()).keyed_odd("Erf"))


def gelu_tanh(x: FieldTensor) -> FieldTensor:
    """Returns x/2 · (1 + tanh(√(2/π)·(x + 0.044715 x³)))."""
    constant = x.arithmetic.constant
    inner = constant((2 / np.pi) ** 0.5) * (x + constant(0.044715) * x * x * x)
    return constant(0.5) * x * (constant(1) + inner.keyed_odd("Tanh"))


def _gelu(call: Call) -> list[FieldTensor]:
    call.require("approximate", "none", "tanh")
    return [(gelu_tanh if call.attributes.get("approximate") == "tanh" else gelu)(call.operand(0))]


def _with_bias(function: Callable[[FieldTensor], FieldTensor]) -> Kernel:
    def kernel(call: Call) -> list[FieldTensor]:
        bias = call.optional(1)
        return [function(call.operand(0) if bias is None else call.operand(0) + bias)]

    return kernel


def _swish(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [x * sigmoid(call.number("alpha", 1.0) * x)]


def _quick_gelu(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [x * sigmoid(call.number("alpha", 1.702) * x)]


def _power(call: Call) -> list[FieldTensor]:
    """Computes a power, exactly if the exponent is a constant multiple of 1/2 from −8 to 8."""
    return [power(call.operand(0), call.operand(1), call.literals.get(1))]


def power(x: FieldTensor, exponent: FieldTensor, literal: float | None) -> FieldTensor:
    """Returns the power; `literal` is the number that the exponent is throughout, or None."""
    if literal is None or abs(literal) > 8 or (2 * literal) % 1:
        return x.keyed("Pow", exponent)
    size = int(2 * abs(literal))
    found = x.power(size // 2) if size % 2 == 0 else x.sqrt().power(size)
    found = found + (exponent - exponent)  # the exponent may broadcast x
    return x.arithmetic.constant(1) / found if literal < 0 else found


def _comparison(decide: Callable[[FieldTensor], npt.NDArray[np.bool_]]) -> Kernel:
    return lambda call: [call.arithmetic.integers(decide(call.operand(0) - call.operand(1)))]


def _logical(decide: Callable[..., npt.NDArray[np.bool_]]) -> Kernel:
    return lambda call: [call.arithmetic.integers(decide(*(operand.truth() for operand in call.operands())))]


def _where(call: Call) -> list[FieldTensor]:
    condition, a, b = call.operands()
    return [a.chosen(b, condition.truth())]


def _cast(call: Call) -> list[FieldTensor]:
    """Computes a cast.

    A cast to floats changes nothing, because real arithmetic has one kind of float. Other casts are random functions.
    """
    if call.attributes.get("to") in _FLOATS:
        return [call.operand(0)]
    return [call.operand(0).keyed(call.key(), fixes_zero=True)]


_FLOATS = (1, 10, 11, 16)  # TensorProto's FLOAT, FLOAT16, DOUBLE, BFLOAT16


def extremum(name: str, rows: FieldTensor, present: npt.NDArray[np.bool_]) -> FieldTensor:
    """Returns the greatest (`name` is "max") or least of the `present` elements along the last axis."""
    order = rows.arithmetic.order(rows)
    score = np.where(present, order if name == "max" else -order, -np.inf)
    best = np.where(present, score, -np.inf).argmax(-1)[..., None]
    return rows.moved(lambda part: np.take_along_axis(part, best, -1)[..., 0])


def _folded_extremum(name: str) -> Kernel:
    pair = greater if name == "max" else smaller
    return lambda call: [reduce(pair, call.operands())]


def _max_pool(call: Call) -> list[FieldTensor]:
    if len(call.output_dims) > 1:
        raise UnsupportedOperatorError("MaxPool with indices is no function of its windows' sets")
    geometry, x = geometry_of(call), call.operand(0)
    present = geometry.gather(geometry.pad(np.ones(x.dims, np.bool_), fill=False), fill=False)
    places = present.shape[: -len(geometry.kernel)]
    windows = x.moved(lambda part: geometry.gather(geometry.pad(part)).reshape(*places, -1))
    return [extremum("max", windows, present.reshape(*places, -1))]


def _reduced_extremum(name: str) -> Kernel:
    def kernel(call: Call) -> list[FieldTensor]:
        return [extremum_along(name, call.operand(0), reduced_axes(call)).reshape(call.output_dims[0])]

    return kernel


def extremum_along(name: str, x: FieldTensor, axes: tuple[int, ...]) -> FieldTensor:
    """Returns the maximum or minimum over `axes`, without these axes."""
    kept = [axis for axis in range(x.rank) if axis not in axes]
    rows = x.transpose((*kept, *axes)).reshape((*(x.dims[axis] for axis in kept), -1))
    return extremum(name, rows, np.ones(rows.dims, np.bool_))


def _place_of_extremum(name: str) -> Kernel:
    def kernel(call: Call) -> list[FieldTensor]:
        x = call.operand(0)
        axis = call.attributes.get("axis", 0) % x.rank
        best = extremum_along(name, x, (axis,)).moved(lambda part: np.expand_dims(part, axis))
        tied = np.asarray(x.parts[0] == best.parts[0])
        if call.attributes.get("select_last_index", 0):
            places = x.dims[axis] - 1 - np.flip(tied, axis).argmax(axis)
        else:
            places = tied.argmax(axis)
        return [call.arithmetic.integers(places.reshape(call.output_dims[0]))]

    return kernel


def _global_max_pool(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [extremum_along("max", x, tuple(range(2, x.rank))).reshape(call.output_dims[0])]


FUNCTION_KERNELS: dict[str, Kernel] = {
    "Abs": _exact(FieldTensor.absolute),
    "Sign": lambda call: [call.arithmetic.integers(call.operand(0).sign())],
    "Sqrt": _exact(FieldTensor.sqrt),
    "Exp": _exact(FieldTensor.exp),
    "Pow": _power,
    "Sigmoid": _exact(sigmoid),
    "Softplus": _exact(softplus),
    "Softsign": _exact(lambda x: x / (x.arithmetic.constant(1) + x.absolute())),
    "Mish": _exact(lambda x: x * softplus(x).keyed_odd("Tanh")),
    "Swish": _swish,
    "Relu": _exact(relu),
    "LeakyRelu": lambda call: [_leaky(call.operand(0), call.number("alpha", 0.01))],
    "PRelu": lambda call: [_leaky(call.operand(0), call.operand(1))],
    "Elu": lambda call: [_elu(call.operand(0), call.number("alpha", 1.0))],
    "Selu": _selu,
    "Celu": _celu,
    "ThresholdedRelu": _thresholded,
    "Shrink": _shrink,
    "HardSigmoid": lambda call: [hard_sigmoid(call.operand(0), call.number("alpha", 0.2), call.number("beta", 0.5))],
    "HardSwish": _exact(_hard_swish),
    "Gelu": _gelu,
    "com.microsoft::Gelu": _exact(gelu),
    "com.microsoft::BiasGelu": _with_bias(gelu),
    "com.microsoft::FastGelu": _with_bias(gelu_tanh),
    "com.microsoft::QuickGelu": _quick_gelu,
    "Clip": _clip,
    "Max": _folded_extremum("max"),
    "Min": _folded_extremum("min"),
    "MaxPool": _max_pool,
    "GlobalMaxPool": _global_max_pool,
    "ReduceMax": _reduced_extremum("max"),
    "ReduceMin": _reduced_extremum("min"),
    "ArgMax": _place_of_extremum("max"),
    "ArgMin": _place_of_extremum("min"),
    "Less": _comparison(lambda difference: difference.sign() < 0),
    "LessOrEqual": _comparison(lambda difference: difference.sign() <= 0),
    "Greater": _comparison(lambda difference: difference.sign() > 0),
    "GreaterOrEqual": _comparison(lambda difference: difference.sign() >= 0),
    "Equal": _comparison(lambda difference: difference.sign() == 0),
    "Not": _logical(np.logical_not),
    "And": _logical(np.logical_and),
    "Or": _logical(np.logical_or),
    "Xor": _logical(np.logical_xor),
    "IsNaN": _logical(np.zeros_like),  # real numbers are neither
    "IsInf": _logical(np.zeros_like),
    "Where": _where,
    "Cast": _cast,
    "CastLike": lambda call: [call.operand(0)],
    **dict.fromkeys(ODD, lambda call: [call.operand(0).keyed_odd(call.op_type)]),
    **dict.fromkeys(EVEN, lambda call: [call.operand(0).keyed_even(call.op_type)]),
    **dict.fromkeys(ROUNDINGS, lambda call: [call.arithmetic.rounded(call.op_type, call.operand(0))]),
    "Log": lambda call: [call.operand(0).keyed("Log")],
    **dict.fromkeys(FREE - {"Log", "Pow"}, lambda call: [call.operand(0).keyed(call.key(), *call.operands()[1:])]),
}
