"""ONNX operators over a prime field: exact where they are (multi)linear or rational, keyed random functions elsewhere.

Every operator is read in the engine's normal form: attributes complete, axes non-negative, shapes static.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taso_ext.verify.keyed_functions import KeyedFunctions
from taso_ext.verify.prime_field import Array, PrimeField
from taso_ext.verify.windows import WindowGeometry


class UnsupportedOperatorError(ValueError):
    """The operator is no function of its inputs (random) or needs a form that the evaluator does not know."""


@dataclass(frozen=True)
class Call:
    """One operator application.

    Attributes:
      op_type, attributes: of the node; `domain` is prefixed to `op_type` when it is not ONNX's own.
      inputs: operands; None for an absent optional one.
      output_dims: shape of each output, as inferred by the engine.
      field, functions: the arithmetic and the random functions of this evaluation.
    """

    op_type: str
    attributes: dict[str, Any]
    inputs: list[Array | None]
    output_dims: list[tuple[int, ...]]
    field: PrimeField
    functions: KeyedFunctions

    def operand(self, index: int) -> Array:
        """The input at `index`, which must be present."""
        value = self.inputs[index]
        if value is None:
            raise UnsupportedOperatorError(f"{self.op_type} needs its input {index}, which is absent")
        return value

    def optional(self, index: int) -> Array | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def operands(self) -> list[Array]:
        return [self.operand(index) for index in range(len(self.inputs))]

    def key(self, *ignored: str) -> str:
        """Names the random function: the operator and those attributes that change what it computes."""
        kept = {name: value for name, value in self.attributes.items() if name not in ignored}
        return f"{self.op_type}{sorted(kept.items())}"


Kernel = Callable[[Call], list[Array]]

# Elementwise functions with f(0) = 0, which therefore commute with zero padding.
ZERO_FIXING = frozenset(
    [
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "HardSwish",
        "Mish",
        "Softsign",
        "Tanh",
        "Erf",
        "Gelu",
        "Sqrt",
        "Abs",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Sin",
        "Sinh",
        "Asin",
        "Asinh",
        "Atan",
        "Tan",
        "Atanh",
    ]
)
# Other elementwise operators: known to act on each element of the broadcast operands alone.
POINTWISE = frozenset(
    [
        "Pow",
        "PRelu",
        "Sigmoid",
        "HardSigmoid",
        "Softplus",
        "Exp",
        "Log",
        "Cos",
        "Cosh",
        "Acos",
        "Acosh",
        "Clip",
        "Cast",
        "Not",
        "And",
        "Or",
        "Xor",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Where",
        "Mod",
        "IsInf",
        "IsNaN",
    ]
)
RANDOM = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"]
)


def evaluate_call(call: Call) -> list[Array]:
    """Outputs of one operator; operators without an entry below become opaque functions of all their inputs.

    Raises:
      UnsupportedOperatorError: for random operators and unusual forms.
      NotInvertibleError: if a divisor is zero in this field.
    """
    if call.op_type in RANDOM:
        raise UnsupportedOperatorError(f"{call.op_type} is random: equality of graphs that contain it is not defined")
    kernel = KERNELS.get(call.op_type)
    if kernel is not None:
        return kernel(call)
    if call.op_type in ZERO_FIXING or call.op_type in POINTWISE:
        return [_pointwise(call)]
    return [
        call.functions.opaque(f"{call.key()}/{port}", call.inputs, dims) for port, dims in enumerate(call.output_dims)
    ]


def _pointwise(call: Call) -> Array:
    present = [value for value in call.inputs if value is not None]
    presence = "".join("01"[value is not None] for value in call.inputs)  # Clip(x, , high) is not Clip(x, low)
    fixes_zero = call.op_type in ZERO_FIXING
    return call.functions.pointwise(f"{call.key()}{presence}", present, fixes_zero=fixes_zero)


def _fold(combine: Callable[[PrimeField, Array, Array], Array]) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        first, *rest = call.operands()
        for operand in rest:
            first = combine(call.field, first, operand)
        return [first]

    return kernel


def _neg(call: Call) -> list[Array]:
    return [call.field.reduce(-call.operand(0))]


def _matmul(call: Call) -> list[Array]:
    return [call.field.matmul(call.operand(0), call.operand(1))]


def _gemm(call: Call) -> list[Array]:
    field, attributes, addend = call.field, call.attributes, call.optional(2)
    a, b = call.operand(0), call.operand(1)
    product = field.matmul(a.T if attributes["transA"] else a, b.T if attributes["transB"] else b)
    result = field.mul(product, field.constant(attributes["alpha"]))
    if addend is None:
        return [result]
    return [field.add(result, field.mul(addend, field.constant(attributes["beta"])))]


def _conv(call: Call) -> list[Array]:
    field, bias = call.field, call.optional(2)
    x, weight, groups = call.operand(0), call.operand(1), call.attributes["group"]
    batch, filters = x.shape[0], weight.shape[0]
    geometry = _geometry(call)
    spatial, places = len(geometry.kernel), int(np.prod(geometry.outputs))
    windows = geometry.gather(geometry.pad(x))  # [batch, channels, *outputs, *kernel]
    windows = windows.reshape(batch, groups, -1, places, int(np.prod(geometry.kernel)))
    columns = windows.transpose(0, 1, 3, 2, 4).reshape(batch, groups, places, -1)
    kernels = weight.reshape(groups, filters // groups, -1).transpose(0, 2, 1)
    result = field.matmul(columns, kernels)  # [batch, groups, places, filters / groups]
    result = result.transpose(0, 1, 3, 2).reshape(batch, filters, *geometry.outputs)
    if bias is None:
        return [result]
    return [field.add(result, bias.reshape(-1, *[1] * spatial))]


def _average_pool(call: Call) -> list[Array]:
    geometry, x = _geometry(call), call.operand(0)
    axes = tuple(range(-len(geometry.kernel), 0))
    inside = np.ones(x.shape, np.int64)
    # Padding counts in the divisor if asked; what ceil mode reads beyond the padding never does.
    counted = geometry.pad(inside, fill=1 if call.attributes.get("count_include_pad", 0) else 0)
    counts = geometry.gather(counted).sum(axis=axes)
    return [call.field.div(call.field.sum(geometry.gather(geometry.pad(x)), axes), counts)]


def _max_pool(call: Call) -> list[Array]:
    if len(call.output_dims) > 1:
        raise UnsupportedOperatorError("MaxPool with indices is no function of its windows' sets")
    geometry, x = _geometry(call), call.operand(0)
    present = geometry.gather(geometry.pad(np.ones(x.shape, np.bool_), fill=False), fill=False)
    windows, places = geometry.gather(geometry.pad(x)), present.shape[: -len(geometry.kernel)]
    rows = (windows.reshape(*places, -1), present.reshape(*places, -1))
    return [call.functions.set_function("max", *rows)]


def _geometry(call: Call) -> WindowGeometry:
    attributes, kernel = call.attributes, call.attributes["kernel_shape"]
    dilations = attributes.get("dilations", [1] * len(kernel))  # AveragePool has none before opset 19
    outputs = call.output_dims[0][2:]
    return WindowGeometry(kernel, attributes["strides"], dilations, attributes["pads"], outputs)


def _global_pool(call: Call) -> list[Array]:
    x = call.operand(0)
    return [call.field.mean(x, tuple(range(2, x.ndim)), keepdims=True)]


def _extremum(name: str) -> Kernel:
    def kernel(call: Call) -> list[Array]:
        rows = np.stack(np.broadcast_arrays(*call.operands()), axis=-1)
        return [call.functions.set_function(name, rows, np.ones(rows.shape, np.bool_))]

    return kernel


def _reduce(fold: Callable[[Call, Array, tuple[int, ...]], Array]) -> Kernel:
    """Reductions; `fold` returns the reduced axes with extent one."""

    def kernel(call: Call) -> list[Array]:
        return [fold(call, call.operand(0), tuple(call.attributes["axes"])).reshape(call.output_dims[0])]

    return kernel


def _reduce_extremum(name: str) -> Kernel:
    def fold(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
        rows = _rows(x, axes)
        return call.functions.set_function(name, rows, np.ones(rows.shape, np.bool_))

    return _reduce(fold)


def _reduce_l2(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    squares = call.field.sum(call.field.mul(x, x), axes)
    return call.functions.pointwise("Sqrt[]1", [squares], fixes_zero=True)


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` with `axes` moved behind the others and flattened into one."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*[x.shape[axis] for axis in kept], -1)


def _softmax(call: Call) -> list[Array]:
    axis = call.attributes["axis"]
    rows = np.moveaxis(call.operand(0), axis, -1)
    return [np.moveaxis(call.functions.row_equivariant(call.key("axis"), rows), -1, axis)]


def _layer_norm(call: Call) -> list[Array]:
    """The normalised row is a random function; scale and bias act on it exactly."""
    if len(call.output_dims) > 1:
        raise UnsupportedOperatorError("LayerNormalization with mean and deviation outputs is not evaluated")
    x, bias = call.operand(0), call.optional(2)
    rows = x.reshape(*x.shape[: call.attributes["axis"]], -1)
    normal = call.functions.row_equivariant(call.key("axis"), rows).reshape(x.shape)
    scaled = call.field.mul(normal, call.operand(1))
    return [scaled if bias is None else call.field.add(scaled, bias)]


def _batch_norm(call: Call) -> list[Array]:
    field, (x, scale, bias, mean, variance) = call.field, call.operands()
    shifted = field.add(variance, np.asarray(field.constant(call.attributes["epsilon"])))
    deviation = call.functions.pointwise("Sqrt[]1", [shifted], fixes_zero=True)
    factor = field.div(scale, deviation)
    per_channel = (-1, *[1] * (x.ndim - 2))
    centred = field.sub(x, mean.reshape(per_channel))
    return [field.add(field.mul(centred, factor.reshape(per_channel)), bias.reshape(per_channel))]


def _concat(call: Call) -> list[Array]:
    return [np.concatenate(call.operands(), axis=call.attributes["axis"])]


def _split(call: Call) -> list[Array]:
    cuts = np.cumsum(call.attributes["split"])[:-1]
    return list(np.split(call.operand(0), cuts, axis=call.attributes["axis"]))


def _slice(call: Call) -> list[Array]:
    x, attributes = call.operand(0), call.attributes
    index: list[slice] = [slice(None)] * x.ndim
    bounds: Sequence[Sequence[int]] = [attributes[name] for name in ("axes", "starts", "ends", "steps")]
    for axis, start, end, step in zip(*bounds, strict=True):
        index[axis] = slice(start, end, step)
    return [x[tuple(index)]]


def _pad(call: Call) -> list[Array]:
    x, pads = call.operand(0), call.attributes["pads"]
    if call.attributes.get("mode", "constant") != "constant":
        raise UnsupportedOperatorError(f"Pad in mode {call.attributes['mode']!r} is not evaluated; constant mode is")
    fill = call.field.constant(call.attributes.get("value", 0.0))
    return [np.pad(x, list(zip(pads[: x.ndim], pads[x.ndim :], strict=True)), constant_values=fill)]


KERNELS: dict[str, Kernel] = {
    "Identity": lambda call: [call.operand(0)],
    "Add": _fold(PrimeField.add),
    "Sum": _fold(PrimeField.add),
    "Sub": _fold(PrimeField.sub),
    "Mul": _fold(PrimeField.mul),
    "Div": _fold(PrimeField.div),
    "Neg": _neg,
    "Reciprocal": lambda call: [call.field.inverse(call.operand(0))],
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "MaxPool": _max_pool,
    "Max": _extremum("max"),
    "Min": _extremum("min"),
    "ReduceSum": _reduce(lambda call, x, axes: call.field.sum(x, axes)),
    "ReduceMean": _reduce(lambda call, x, axes: call.field.mean(x, axes)),
    "ReduceProd": _reduce(lambda call, x, axes: call.field.prod(x, axes)),
    "ReduceL2": _reduce(_reduce_l2),
    "ReduceMax": _reduce_extremum("max"),
    "ReduceMin": _reduce_extremum("min"),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Transpose": lambda call: [call.operand(0).transpose(call.attributes["perm"])],
    "Reshape": lambda call: [call.operand(0).reshape(call.output_dims[0])],
    "Pad": _pad,
}
