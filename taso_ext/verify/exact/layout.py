"""Kernels of the operators that only move elements, and of constants."""

from __future__ import annotations

import numpy as np

from taso_ext.verify.exact.operator_call import Call, Kernel, UnsupportedOperatorError
from taso_ext.verify.exact.tensor import FieldTensor


def _concat(call: Call) -> list[FieldTensor]:
    return [concatenated(call.operands(), call.attributes["axis"])]


def concatenated(tensors: list[FieldTensor], axis: int) -> FieldTensor:
    """The tensors joined."""
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
    """`values` in row-major order, in the shape of the result."""
    values = call.attributes["values"]
    return [_literals(call, values if isinstance(values, list) else [values])]


def _constant_of_shape(call: Call) -> list[FieldTensor]:
    value = call.attributes.get("value", 0.0)
    if isinstance(value, bytes):
        raise UnsupportedOperatorError("ConstantOfShape with a value that the engine does not look into")
    return [_literals(call, [value])]


def _literals(call: Call, values: list[float]) -> FieldTensor:
    dims = call.output_dims[0]
    numbers = np.broadcast_to(np.asarray(values, np.float64), (int(np.prod(dims)),))
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
