"""Gradients of operators that act on each element by itself; their operands are broadcast, as in NumPy.

An entry returns gradients of the shape of the operator's result. The sum over axes along which an operand was
broadcast is written centrally, in `environment.gradients.backward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx

from environment.gradients.operation import Operation
from environment.gradients.rule import Gradients, Rule


def _unary(derivative: Callable[[Operation], str]) -> Rule:
    """Returns the rule of a function of one operand from what writes its derivative."""
    return Rule(lambda op: [op.write("Mul", op.cotangent, derivative(op))])


def _kept_where(op: Operation, condition: str, value: str | None = None) -> str:
    """Returns the cotangent, or `value`, where a condition holds, and zero elsewhere."""
    return op.write("Where", condition, op.cotangent if value is None else value, op.number(0))


def add(op: Operation) -> Gradients:
    """Add, and Sum of any number of operands."""
    return [op.cotangent] * len(op.inputs)


def subtract(op: Operation) -> Gradients:
    return [op.cotangent, op.write("Neg", op.cotangent)]


def multiply(op: Operation) -> Gradients:
    left, right = op.inputs
    return [op.write("Mul", op.cotangent, right), op.write("Mul", op.cotangent, left)]


def divide(op: Operation) -> Gradients:
    of_left = op.write("Div", op.cotangent, op.inputs[1])
    return [of_left, op.write("Neg", op.write("Mul", of_left, op.y))]


def average(op: Operation) -> Gradients:
    """Mean of any number of operands."""
    return [op.scaled(op.cotangent, 1 / len(op.inputs))] * len(op.inputs)


def power(op: Operation) -> Gradients:
    """Pow; the gradient of the exponent is that of positive bases, and zero where the base is not positive."""
    base, exponent = op.inputs
    fixed = op.values.constant(exponent)
    if fixed is not None and fixed.size == 1:
        number = float(fixed.reshape(()))
        lower = base if number == 2 else op.write("Pow", base, op.number(number - 1))
        return [op.write("Mul", op.cotangent, op.scaled(lower, number)), None]
    if op.values.dtype(exponent) != op.dtype:
        raise op.refusal("its exponent is of another type than its base, and no constant number")
    lower = op.write("Pow", base, op.write("Sub", exponent, op.number(1)))
    of_base = op.write("Mul", op.cotangent, op.write("Mul", exponent, lower))
    positive = op.write("Greater", base, op.number(0))
    logarithm = op.write("Log", op.write("Where", positive, base, op.number(1)))
    return [of_base, op.write("Mul", op.cotangent, op.write("Mul", op.y, logarithm))]


def extremum(op: Operation) -> Gradients:
    """Max and Min of any number of operands; the first of equal operands takes the whole gradient."""
    gradients, taken = [], None
    for operand in op.inputs:
        equal = op.write("Equal", operand, op.y)
        chosen = equal if taken is None else op.write("And", equal, op.write("Not", taken))
        taken = equal if taken is None else op.write("Or", taken, equal)
        gradients.append(_kept_where(op, chosen))
    return gradients


def choose(op: Operation) -> Gradients:
    """Where."""
    return [
        None,
        _kept_where(op, op.x),
        op.write("Where", op.x, op.number(0), op.cotangent),
    ]


def clip(op: Operation) -> Gradients:
    """Clip; as in TensorFlow, an element that equals a bound takes the gradient. The bounds take none."""
    conditions = []
    if op.has(1):
        conditions.append(op.write("GreaterOrEqual", op.x, op.inputs[1]))
    if op.has(2):
        conditions.append(op.write("LessOrEqual", op.x, op.inputs[2]))
    if not conditions:
        return [op.cotangent]
    inside = conditions[0] if len(conditions) == 1 else op.write("And", *conditions)
    return [_kept_where(op, inside)]


def cast(op: Operation) -> Gradients:
    """Cast between types of floats; from integers there is no gradient."""
    if not op.values.is_float(op.x):
        return [None]
    kind = onnx.helper.np_dtype_to_tensor_dtype(op.values.dtype(op.x))
    return [op.write("Cast", op.cotangent, to=kind)]


def identity(op: Operation) -> Gradients:
    return [op.cotangent]


def relu(op: Operation) -> Gradients:
    """Relu; its derivative at zero is zero."""
    return [_kept_where(op, op.write("Greater", op.y, op.number(0)))]


def leaky_relu(op: Operation) -> Gradients:
    """LeakyRelu and, with a slope for each element, PRelu; as in TensorFlow, zero has the slope of negative numbers."""
    positive = op.write("Greater", op.x, op.number(0))
    slope = op.inputs[1] if op.has(1) else op.number(op.attribute("alpha"))
    of_x = op.write("Where", positive, op.cotangent, op.write("Mul", op.cotangent, slope))
    of_slope = op.write("Where", positive, op.number(0), op.write("Mul", op.cotangent, op.x))
    return [of_x, of_slope][: len(op.inputs)]


def elu(op: Operation) -> Gradients:
    positive = op.write("Greater", op.x, op.number(0))
    below = op.write("Add", op.y, op.number(op.attribute("alpha")))
    return [op.write("Where", positive, op.cotangent, op.write("Mul", op.cotangent, below))]


def hard_sigmoid(op: Operation) -> Gradients:
    inside = op.write("And", op.write("Greater", op.y, op.number(0)), op.write("Less", op.y, op.number(1)))
    return [_kept_where(op, inside, op.scaled(op.cotangent, op.attribute("alpha")))]


def hard_swish(op: Operation) -> Gradients:
    """HardSwish, x · min(max(x / 6 + 1 / 2, 0), 1)."""
    slope = op.write("Add", op.scaled(op.x, 1 / 3), op.number(0.5))
    inside = op.write("Where", op.write("Less", op.x, op.number(3)), slope, op.number(1))
    derivative = op.write("Where", op.write("Greater", op.x, op.number(-3)), inside, op.number(0))
    return [op.write("Mul", op.cotangent, derivative)]


def _of_sigmoid(op: Operation) -> str:
    return op.write("Mul", op.y, op.write("Sub", op.number(1), op.y))


def _of_tanh(op: Operation) -> str:
    return op.write("Sub", op.number(1), op.write("Mul", op.y, op.y))


def _of_erf(op: Operation) -> str:
    """Writes 2 / √π · exp(-x²)."""
    exponential = op.write("Exp", op.write("Neg", op.write("Mul", op.x, op.x)))
    return op.scaled(exponential, 2 / math.sqrt(math.pi))


def _of_sqrt(op: Operation) -> str:
    return op.write("Div", op.number(0.5), op.y)


def _of_reciprocal(op: Operation) -> str:
    return op.write("Neg", op.write("Mul", op.y, op.y))


def _of_gelu(op: Operation) -> str:
    """Writes the derivative of Gelu: Φ(x) + x · φ(x), or that of its approximation by tanh."""
    x, one, half = op.x, op.number(1), op.number(0.5)
    if op.attribute("approximate") == "tanh":
        square = op.write("Mul", x, x)
        factor = op.number(math.sqrt(2 / math.pi))
        inner = op.write("Mul", x, op.write("Add", one, op.scaled(square, 0.044715)))
        tanh = op.write("Tanh", op.write("Mul", inner, factor))
        slope = op.write("Mul", factor, op.write("Add", one, op.scaled(square, 3 * 0.044715)))
        steep = op.write("Mul", op.write("Mul", x, slope), op.write("Sub", one, op.write("Mul", tanh, tanh)))
        return op.write("Mul", half, op.write("Add", op.write("Add", one, tanh), steep))
    below = op.write("Mul", half, op.write("Add", one, op.write("Erf", op.scaled(x, math.sqrt(0.5)))))
    density = op.scaled(op.write("Exp", op.scaled(op.write("Mul", x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return op.write("Add", below, op.write("Mul", x, density))


RULES = {
    "Add": Rule(add, broadcasts=True),
    "Sum": Rule(add, broadcasts=True),
    "Sub": Rule(subtract, broadcasts=True),
    "Mul": Rule(multiply, broadcasts=True),
    "Div": Rule(divide, broadcasts=True),
    "Mean": Rule(average, broadcasts=True),
    "Pow": Rule(power, broadcasts=True),
    "Max": Rule(extremum, broadcasts=True),
    "Min": Rule(extremum, broadcasts=True),
    "Where": Rule(choose, broadcasts=True),
    "PRelu": Rule(leaky_relu, broadcasts=True),
    "Clip": Rule(clip),
    "Cast": Rule(cast),
    "Identity": Rule(identity),
    "Relu": Rule(relu),
    "LeakyRelu": Rule(leaky_relu),
    "Elu": Rule(elu),
    "HardSigmoid": Rule(hard_sigmoid),
    "HardSwish": Rule(hard_swish),
    "Neg": Rule(lambda op: [op.write("Neg", op.cotangent)]),
    "Exp": _unary(lambda op: op.y),
    "Log": Rule(lambda op: [op.write("Div", op.cotangent, op.x)]),
    "Sqrt": _unary(_of_sqrt),
    "Reciprocal": _unary(_of_reciprocal),
    "Abs": _unary(lambda op: op.write("Sign", op.x)),
    "Sin": _unary(lambda op: op.write("Cos", op.x)),
    "Cos": _unary(lambda op: op.write("Neg", op.write("Sin", op.x))),
    "Sigmoid": _unary(_of_sigmoid),
    "Tanh": _unary(_of_tanh),
    "Erf": _unary(_of_erf),
    "Softplus": _unary(lambda op: op.write("Sigmoid", op.x)),
    "Gelu": _unary(_of_gelu),
}
