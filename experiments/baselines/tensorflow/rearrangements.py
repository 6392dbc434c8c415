"""Operators that move data, make constants or return a shape."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from onnx import numpy_helper

from experiments.baselines.tensorflow.values import Inputs, Laid, Node, Operator, common_order, required


def _constant(node: Node, inputs: Inputs) -> list[Laid]:
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if (found := node.attribute(name)) is not None:
            return [Laid(np.asarray(found, dtype))]
    if (found := node.attribute("value_ints")) is not None:
        return [Laid(np.asarray(found, np.int64))]
    if (found := node.attribute("value")) is not None:
        return [Laid(numpy_helper.to_array(found))]
    raise node.unsupported("the kind of value")


def _constant_of_shape(node: Node, inputs: Inputs) -> list[Laid]:
    (shape,) = required(inputs)
    value = node.attribute("value")
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return [Laid(np.full(shape.array, fill[0]))]


def _shape(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    dims = x.dims[slice(node.attribute("start", 0), node.attribute("end", None))]
    return [Laid(np.array(dims, np.int64))]


def _reshape(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    wanted = node.constant(inputs, 1, "shape")
    assert wanted is not None  # every valid model has this input
    dims = wanted.tolist()
    if not node.attribute("allowzero", 0):
        dims = [x.dims[i] if dim == 0 else dim for i, dim in enumerate(dims)]
    return [Laid(tf.reshape(x.plain(), dims))]


def _flatten(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    axis = node.attribute("axis", 1)
    rows = int(np.prod(x.dims[: axis + x.rank if axis < 0 else axis]))
    return [Laid(tf.reshape(x.plain(), [rows, -1]))]


def _squeeze(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    given = node.constant(inputs, 1, "axes")
    axes = [i for i, dim in enumerate(x.dims) if dim == 1] if given is None else [int(a) % x.rank for a in given]
    return [Laid(tf.reshape(x.plain(), [dim for i, dim in enumerate(x.dims) if i not in axes]))]


def _unsqueeze(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    given = node.constant(inputs, 1, "axes")
    assert given is not None  # every valid model has this input
    rank = x.rank + given.size
    axes, dims = {int(axis) % rank for axis in given.reshape(-1)}, iter(x.dims)
    return [Laid(tf.reshape(x.plain(), [1 if axis in axes else next(dims) for axis in range(rank)]))]


def _transpose(node: Node, inputs: Inputs) -> list[Laid]:
    """Builds Transpose with at most one transposition of the data, from the order in which they lie."""
    (x,) = required(inputs)
    permutation = node.attribute("perm", list(range(x.rank))[::-1])
    order = tuple(list(permutation).index(axis) for axis in x.order)
    return [Laid(Laid(x.data, order).plain())]


def _concat(node: Node, inputs: Inputs) -> list[Laid]:
    values = required(inputs, len(inputs))
    order = common_order(values)
    place = order.index(node.attribute("axis") % len(order))
    return [Laid(tf.concat([value.laid(order) for value in values], place), order)]


def _split(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    place, count = x.place(node.attribute("axis", 0)), len(node.proto.output)
    sizes = node.constant(inputs, 1, "split")
    if sizes is None:
        extent = int(x.data.shape[place])
        each = -(-extent // count)
        sizes = np.array([min(each, extent - i * each) for i in range(count)])
    return [Laid(part, x.order) for part in tf.split(x.laid(x.order), sizes.tolist(), place)]


def _slice(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    starts, ends = (node.constant(inputs, index, name) for index, name in ((1, "starts"), (2, "ends")))
    assert starts is not None and ends is not None  # every valid model has these inputs
    axes = node.constant(inputs, 3, "axes", np.arange(starts.size))
    steps = node.constant(inputs, 4, default=np.ones(starts.size, np.int64))
    assert axes is not None and steps is not None
    parts = [slice(None)] * x.rank
    for start, end, axis, step in zip(*(each.tolist() for each in (starts, ends, axes, steps)), strict=True):
        parts[x.place(axis)] = slice(*slice(start, _end(end, step), step).indices(x.dims[axis]))
        if step < 0 and parts[x.place(axis)].stop < 0:  # Python would count a negative end from the last element
            parts[x.place(axis)] = slice(parts[x.place(axis)].start, None, step)
    return [Laid(x.laid(x.order)[tuple(parts)], x.order)]


def _end(end: int, step: int) -> int | None:
    """Returns the end of a Python slice for ONNX's `end`.

    ONNX ends a backward slice after the first element if `end` is a very negative number; Python does so for None.
    """
    return None if step < 0 and end < -(2**31) else end


def _gather(node: Node, inputs: Inputs) -> list[Laid]:
    x, indices = required(inputs, 2)
    axis = node.attribute("axis", 0) % x.rank
    where = indices.plain()
    if indices.is_constant:
        where = indices.array % x.dims[axis]
    else:  # ONNX counts negative indices from the end
        where = tf.where(where < 0, where + tf.cast(x.dims[axis], where.dtype), where)
    return [Laid(tf.gather(x.plain(), where, axis=axis))]


def _scatter_elements(node: Node, inputs: Inputs) -> list[Laid]:
    x, indices, updates = required(inputs, 3)
    if node.attribute("reduction", "none") != "add":
        raise node.unsupported("another reduction than a sum")
    axis, where = node.attribute("axis", 0) % x.rank, indices.plain()
    where = tf.where(where < 0, where + tf.cast(x.dims[axis], where.dtype), where)
    others = tf.meshgrid(*(tf.range(size, dtype=where.dtype) for size in indices.dims), indexing="ij")
    places = tf.stack([where if place == axis else other for place, other in enumerate(others)], -1)
    return [Laid(tf.tensor_scatter_nd_add(x.plain(), places, updates.plain()))]


def _expand(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    shape = node.constant(inputs, 1, "shape")
    assert shape is not None  # every valid model has this input
    return [Laid(tf.broadcast_to(x.plain(), np.broadcast_shapes(tuple(x.dims), tuple(shape.tolist()))))]


def _tile(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    repeats = node.constant(inputs, 1, "repeats")
    assert repeats is not None  # every valid model has this input
    return [Laid(tf.tile(x.laid(x.order), repeats[list(x.order)]), x.order)]


def _pad(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    mode = node.attribute("mode", "constant")
    if mode not in ("constant", "reflect"):
        raise node.unsupported(f"the mode {mode}")
    pads, value = node.constant(inputs, 1, "pads"), node.constant(inputs, 2, "value", 0)
    axes = node.constant(inputs, 3, default=np.arange(x.rank))
    assert pads is not None and value is not None and axes is not None
    around = np.zeros((x.rank, 2), np.int64)
    around[x.places(axes.tolist())] = pads.reshape(2, -1).T
    data = x.laid(x.order)
    if (around < 0).any():  # negative pads cut elements off
        data = data[tuple(slice(max(-before, 0), min(after, 0) or None) for before, after in around.tolist())]
    if (around <= 0).all():
        return [Laid(data, x.order)]
    fill = value.reshape(()).astype(tf.as_dtype(data.dtype).as_numpy_dtype)
    return [Laid(tf.pad(data, np.maximum(around, 0), mode.upper(), fill), x.order)]


REARRANGEMENTS: dict[str, Operator] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Pad": _pad,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
