"""Exact kernels of the operators that only add, multiply and divide, of those that move elements, and of constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.tensor import Call, Field, FieldTensor, Kernel, Part, UnsupportedOperatorError

ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True)
class WindowGeometry:
    """Windows over the trailing (spatial) axes, in ONNX's terms.

    Attributes:
      kernel, strides, dilations: one number per spatial axis.
      pads: the pads at the beginning of all axes, then those at the end.
      outputs: the number of windows per spatial axis. It is given rather than derived, because ceil mode may add
        windows that reach beyond the padded input.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    outputs: Sequence[int]

    def pad(self, x: npt.NDArray[ScalarT], fill: ScalarT | int = 0) -> npt.NDArray[ScalarT]:
        """Returns `x` with `pads` around it, filled with `fill`."""
        spatial = len(self.kernel)
        widths = list(zip(self.pads[:spatial], self.pads[spatial:], strict=True))
        return _surrounded(x, [(0, 0)] * (x.ndim - spatial) + widths, fill)

    def gather(self, padded: npt.NDArray[ScalarT], fill: ScalarT | int = 0) -> npt.NDArray[ScalarT]:
        """Returns all windows of a padded input, [*leading, *outputs, *kernel]; elements beyond its end are `fill`."""
        leading = padded.ndim - len(self.kernel)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        needed = [(o - 1) * s + r for o, s, r in zip(self.outputs, self.strides, reach, strict=True)]
        missing = [(0, max(0, n - have)) for n, have in zip(needed, padded.shape[leading:], strict=True)]
        extended = _surrounded(padded, [(0, 0)] * leading + missing, fill)
        axes = tuple(range(leading, padded.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(extended, reach, axis=axes)
        starts = [slice(0, (o - 1) * s + 1, s) for o, s in zip(self.outputs, self.strides, strict=True)]
        taps = [slice(None, None, d) for d in self.dilations]
        return windows[(slice(None),) * leading + (*starts, *taps)]


def _surrounded(x: npt.NDArray[ScalarT], widths: list[tuple[int, int]], fill: Any) -> npt.NDArray[ScalarT]:
    """Returns `x` with `widths` elements of `fill` before and after it along each axis."""
    return (
        np.pad(x, widths, constant_values=fill) if any(map(any, widths)) else x
    )  # most have none, and padding is slow


def _fold(combine: Callable[[FieldTensor, FieldTensor], FieldTensor]) -> Kernel:
    return lambda call: [reduce(combine, call.operands())]


def _mean(call: Call) -> list[FieldTensor]:
    operands = call.operands()
    total = reduce(FieldTensor.__add__, operands)
    return [total / call.arithmetic.constant(len(operands))]


def _matmul(call: Call) -> list[FieldTensor]:
    return [product(call.operand(0), call.operand(1))]


def product(a: FieldTensor, b: FieldTensor) -> FieldTensor:
    """Computes MatMul: a left operand of rank 1 is a row, a right operand of rank 1 is a column."""
    row, column = a.rank == 1, b.rank == 1
    left = a.reshape((1, *a.dims)) if row else a
    result = left @ (b.reshape((*b.dims, 1)) if column else b)
    dims = [*result.dims]
    if column:
        dims.pop()
    if row:
        dims.pop(-1 if column else -2)
    return result.reshape(dims)


def _gemm(call: Call) -> list[FieldTensor]:
    a, b = (
        tensor.transpose((1, 0)) if call.attributes.get(name, 0) else tensor
        for tensor, name in ((call.operand(0), "transA"), (call.operand(1), "transB"))
    )
    result, addend = (a @ b) * call.number("alpha", 1.0), call.optional(2)
    return [result if addend is None else result + addend * call.number("beta", 1.0)]


def _fused_matmul(call: Call) -> list[FieldTensor]:
    """Computes com.microsoft.FusedMatMul: a scaled batched product of optionally transposed operands."""
    sides = []
    for tensor, side in ((call.operand(0), "A"), (call.operand(1), "B")):
        call.require(f"transBatch{side}", 0)
        swapped = call.attributes.get(f"trans{side}", 0) and tensor.rank > 1
        sides.append(tensor.moved(lambda part: np.swapaxes(part, -1, -2)) if swapped else tensor)
    return [product(*sides) * call.number("alpha", 1.0)]


def _conv(call: Call) -> list[FieldTensor]:
    return [convolution(call)]


def convolution(call: Call) -> FieldTensor:
    """Computes Conv of the first two or three operands."""
    geometry, groups = geometry_of(call), call.attributes.get("group", 1)

    def part(field: Field, x: Part, weight: Part, bias: Part | None) -> Part:
        batch, filters = x.shape[0], weight.shape[0]
        places = math.prod(geometry.outputs)
        windows = geometry.gather(geometry.pad(x))  # [batch, channels, *outputs, *kernel]
        windows = windows.reshape(batch, groups, -1, places, math.prod(geometry.kernel))
        columns = windows.transpose(0, 1, 3, 2, 4).reshape(batch, groups, places, -1)
        kernels = weight.reshape(groups, filters // groups, -1).transpose(0, 2, 1)
        result = field.matmul(columns, kernels)  # [batch, groups, places, filters / groups]
        result = result.transpose(0, 1, 3, 2).reshape(batch, filters, *geometry.outputs)
        return result if bias is None else field.add(result, bias.reshape(-1, *[1] * len(geometry.kernel)))

    return call.each(part, call.operand(0), call.operand(1), call.optional(2))


def _conv_transpose(call: Call) -> list[FieldTensor]:
    """Computes ConvTranspose: each input element adds its multiple of the kernel to the output, `strides` apart."""
    call.require("auto_pad", "NOTSET")
    weight, groups = call.operand(1), call.attributes.get("group", 1)
    spatial = weight.rank - 2
    strides, dilations = (call.attributes.get(name) or [1] * spatial for name in ("strides", "dilations"))
    pads, outputs = call.attributes.get("pads") or [0] * 2 * spatial, call.output_dims[0][2:]

    def part(field: Field, x: Part, weight: Part, bias: Part | None) -> Part:
        batch, inputs, kernel = x.shape[0], x.shape[2:], weight.shape[2:]
        columns = x.reshape(batch, groups, x.shape[1] // groups, -1).transpose(0, 1, 3, 2)
        taps = field.matmul(columns, weight.reshape(groups, x.shape[1] // groups, -1))
        taps = taps.reshape(batch, groups, *inputs, *weight.shape[1:])
        extents = zip(outputs, pads, kernel, dilations, inputs, strides, strict=False)
        reach = [out + begin + (k - 1) * d + (i - 1) * s for out, begin, k, d, i, s in extents]
        result = np.zeros((batch, groups, weight.shape[1], *reach), x.dtype)
        for place in np.ndindex(*inputs):
            begins = [i * s for i, s in zip(place, strides, strict=True)]
            steps = zip(begins, kernel, dilations, strict=True)
            where = (slice(None),) * 3 + tuple(slice(b, b + (k - 1) * d + 1, d) for b, k, d in steps)
            result[where] = field.add(result[where], taps[(slice(None), slice(None), *place)])
        kept = tuple(slice(b, b + out) for b, out in zip(pads, outputs, strict=False))
        result = result[(slice(None),) * 3 + kept].reshape(batch, groups * weight.shape[1], *outputs)
        return result if bias is None else field.add(result, bias.reshape(-1, *[1] * spatial))

    return [call.each(part, call.operand(0), weight, call.optional(2))]


def _average_pool(call: Call) -> list[FieldTensor]:
    geometry, x = geometry_of(call), call.operand(0)
    axes = tuple(range(-len(geometry.kernel), 0))
    inside = np.ones(x.dims, np.int64)
    # Padding counts in the divisor if asked; what ceil mode reads beyond the padding never does.
    counted = geometry.pad(inside, fill=1 if call.attributes.get("count_include_pad", 0) else 0)
    counts = geometry.gather(counted).sum(axis=axes)
    return [
        x.each(
            lambda field, part: field.div(field.sum(geometry.gather(geometry.pad(part)), axes), field.reduce(counts))
        )
    ]


def geometry_of(call: Call) -> WindowGeometry:
    """Returns the windows of a convolution or pool in normal form.

    If a convolution has no attribute `kernel_shape`, its weight has the shape of the kernel.
    """
    call.require("auto_pad", "NOTSET", "")
    outputs = call.output_dims[0][2:]
    spatial = len(outputs)
    kernel = call.attributes.get("kernel_shape") or list(call.operand(1).dims[2:])
    strides, dilations = (call.attributes.get(name) or [1] * spatial for name in ("strides", "dilations"))
    return WindowGeometry(kernel, strides, dilations, call.attributes.get("pads") or [0] * 2 * spatial, outputs)


def _global_pool(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    return [x.mean(tuple(range(2, x.rank)))]


def reduction(fold: Callable[[FieldTensor, tuple[int, ...]], FieldTensor]) -> Kernel:
    """Returns the kernel of a reduction; `fold` keeps the reduced axes with extent one."""
    return lambda call: [fold(call.operand(0), reduced_axes(call)).reshape(call.output_dims[0])]


def reduced_axes(call: Call) -> tuple[int, ...]:
    """Returns the reduced axes, counted from the front; all axes if none are given."""
    rank = call.operand(0).rank
    return tuple(axis % rank for axis in call.attributes.get("axes", range(rank)))


def _pad(call: Call) -> list[FieldTensor]:
    x, pads = call.operand(0), call.attributes["pads"]
    call.require("mode", "constant")
    fill = call.number("value", 0.0)
    widths = list(zip(pads[: x.rank], pads[x.rank :], strict=True))

    def part(field: Field, values: Part, value: Part) -> Part:
        return _surrounded(values, widths, value)

    return [x.each(part, fill)]


def _einsum(call: Call) -> list[FieldTensor]:
    """Computes Einsum: multiplies all operands over every letter, then sums over the letters that the result lacks.

    An ellipsis and a diagonal are not supported.
    """
    equation = call.attributes["equation"].replace(" ", "")
    if "." in equation:
        raise UnsupportedOperatorError(f"Einsum {equation!r} is not evaluated, because it has an ellipsis")
    terms, arrow, result = equation.partition("->")
    if not arrow:
        result = "".join(sorted(letter for letter in set(terms) - {","} if terms.count(letter) == 1))
    letters = sorted(set(terms) - {","})
    factors = []
    for operand, term in zip(call.operands(), terms.split(","), strict=True):
        if len(set(term)) < len(term):
            raise UnsupportedOperatorError(f"Einsum {equation!r} takes a diagonal, which is not evaluated")
        order = [term.index(letter) for letter in letters if letter in term]
        extents = iter([operand.dims[axis] for axis in order])
        factors.append(operand.transpose(order).reshape([next(extents) if letter in term else 1 for letter in letters]))
    whole = reduce(FieldTensor.__mul__, factors)
    whole = whole.sum(tuple(i for i, letter in enumerate(letters) if letter not in result), keepdims=False)
    kept = [letter for letter in letters if letter in result]
    return [whole.transpose([kept.index(letter) for letter in result])]


LINEAR_KERNELS: dict[str, Kernel] = {
    "Add": _fold(FieldTensor.__add__),
    "Sum": _fold(FieldTensor.__add__),
    "Sub": _fold(FieldTensor.__sub__),
    "Mul": _fold(FieldTensor.__mul__),
    "Div": _fold(FieldTensor.__truediv__),
    "Mean": _mean,
    "Neg": lambda call: [-call.operand(0)],
    "Reciprocal": lambda call: [call.operand(0).inverse()],
    "MatMul": _matmul,
    "Gemm": _gemm,
    "com.microsoft::FusedMatMul": _fused_matmul,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "ReduceSum": reduction(FieldTensor.sum),
    "ReduceMean": reduction(FieldTensor.mean),
    "ReduceProd": reduction(lambda x, axes: x.each(lambda field, part: field.prod(part, axes, keepdims=True))),
    "ReduceSumSquare": reduction(lambda x, axes: (x * x).sum(axes)),
    "Pad": _pad,
}


def _concat(call: Call) -> list[FieldTensor]:
    return [concatenated(call.operands(), call.attributes["axis"])]


def concatenated(tensors: list[FieldTensor], axis: int) -> FieldTensor:
    """Returns the tensors joined along `axis`."""
    parts = zip(*(tensor.parts for tensor in tensors), strict=True)
    return FieldTensor(tensors[0].arithmetic, tuple(np.concatenate(part, axis=axis) for part in parts))


def _split(call: Call) -> list[FieldTensor]:
    axis, x = call.attributes["axis"], call.operand(0)
    sizes = call.attributes.get("split") or [dims[axis] for dims in call.output_dims]
    ends = np.cumsum(sizes)

    def piece(begin: int, end: int) -> FieldTensor:
        return x.moved(lambda part: np.take(part, range(begin, end), axis=axis))

    return [piece(int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True)]


def _slice(call: Call) -> list[FieldTensor]:
    x, attributes = call.operand(0), call.attributes
    index: list[slice] = [slice(None)] * x.rank
    for axis, start, end, step in zip(*(attributes[name] for name in ("axes", "starts", "ends", "steps")), strict=True):
        index[axis] = slice(start, end, step)
    return [x.moved(lambda part: part[tuple(index)])]


def _reshape(call: Call) -> list[FieldTensor]:
    return [call.operand(0).reshape(call.output_dims[0])]


def _expand(call: Call) -> list[FieldTensor]:
    return [call.operand(0).moved(lambda part: np.broadcast_to(part, call.output_dims[0]).copy())]


def _tile(call: Call) -> list[FieldTensor]:
    x = call.operand(0)
    repeats = [out // have for out, have in zip(call.output_dims[0], x.dims, strict=True)]
    return [x.moved(lambda part: np.tile(part, repeats))]


def _depth_to_space(call: Call) -> list[FieldTensor]:
    x, block = call.operand(0), call.attributes["blocksize"]
    batch, channels, height, width = x.dims
    depth = channels // block**2
    if call.attributes.get("mode", "DCR") == "DCR":
        blocks = x.reshape((batch, block, block, depth, height, width)).transpose((0, 3, 4, 1, 5, 2))
    else:
        blocks = x.reshape((batch, depth, block, block, height, width)).transpose((0, 1, 4, 2, 5, 3))
    return [blocks.reshape(call.output_dims[0])]


def _space_to_depth(call: Call) -> list[FieldTensor]:
    x, block = call.operand(0), call.attributes["blocksize"]
    batch, channels, height, width = x.dims
    blocks = x.reshape((batch, channels, height // block, block, width // block, block))
    return [blocks.transpose((0, 3, 5, 1, 2, 4)).reshape(call.output_dims[0])]


def _constant(call: Call) -> list[FieldTensor]:
    """Returns `values` in row-major order, in the shape of the result."""
    values = call.attributes["values"]
    return [_literals(call, values if isinstance(values, list) else [values])]


def _constant_of_shape(call: Call) -> list[FieldTensor]:
    value = call.attributes.get("value", 0.0)
    if isinstance(value, bytes):
        raise UnsupportedOperatorError("ConstantOfShape with a value that the engine does not look into")
    return [_literals(call, [value])]


def _literals(call: Call, values: list[float]) -> FieldTensor:
    dims = call.output_dims[0]
    numbers = np.broadcast_to(np.asarray(values, np.float64), (math.prod(dims),))
    return call.arithmetic.constants(numbers.reshape(dims))


def _eye_like(call: Call) -> list[FieldTensor]:
    rows, columns = call.output_dims[0]
    return [call.arithmetic.integers(np.eye(rows, columns, call.attributes.get("k", 0), dtype=np.int64))]


LAYOUT_KERNELS: dict[str, Kernel] = {
    "Identity": lambda call: [call.operand(0)],
    "Dropout": lambda call: [call.operand(0)],
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Transpose": lambda call: [call.operand(0).transpose(call.attributes["perm"])],
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze"], _reshape),
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
}
