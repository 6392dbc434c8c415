"""Gradients of operators that arrange, pick or repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from environment.gradients.operation import Operation
from environment.gradients.rule import Gradients, Rule


def reshape(op: Operation) -> Gradients:
    """Reshape, Flatten, Squeeze and Unsqueeze."""
    return [op.reshaped(op.cotangent, op.dims(op.x))]


def transpose(op: Operation) -> Gradients:
    rank = len(op.dims(op.x))
    order = op.attribute("perm") or list(reversed(range(rank)))
    return [op.transposed(op.cotangent, [order.index(axis) for axis in range(rank)])]


def concat(op: Operation) -> Gradients:
    axis = op.attribute("axis")
    if len(op.inputs) == 1:
        return [op.cotangent]
    return op.parts(op.cotangent, [op.dims(name)[axis] for name in op.inputs], axis)


def split(op: Operation) -> Gradients:
    parts = [op.cotangent_of(port) for port in range(len(op.node.output))]
    return [op.write("Concat", *parts, axis=op.attribute("axis"))]


def expand(op: Operation) -> Gradients:
    return [op.summed_to(op.cotangent, op.dims(op.y), op.dims(op.x))]


def tile(op: Operation) -> Gradients:
    dims, result = op.dims(op.x), op.dims(op.y)
    pairs = [(whole // part, part) for whole, part in zip(result, dims, strict=True)]
    copies = op.reshaped(op.cotangent, [size for pair in pairs for size in pair])
    return [op.total(copies, list(range(0, 2 * len(dims), 2)))]


def pad(op: Operation) -> Gradients:
    """Pad with a constant: the padding is taken away again.

    Raises:
      ModelError: it repeats elements, as the modes `edge` and `reflect` do.
    """
    if op.attribute("mode") != "constant":
        raise op.refusal(f"it pads in the mode '{op.attribute('mode')}'")
    rank, given, axes = len(op.dims(op.x)), op.constant_input(1), op.constant_input(3)
    assert given is not None  # onnx.checker asks for it
    amounts = [0] * 2 * rank
    places = range(rank) if axes is None else [int(axis) % rank for axis in axes.reshape(-1)]
    for number, axis in enumerate(places):
        amounts[axis], amounts[rank + axis] = int(given[number]), int(given[len(given) // 2 + number])
    return [op.write("Pad", op.cotangent, op.integers([-amount for amount in amounts]))]


def slice_(op: Operation) -> Gradients:
    """Slice: zeros take the places of the elements that were left out."""
    value, dims = op.cotangent, list(op.dims(op.y))
    front, behind = [0] * len(dims), [0] * len(dims)
    for axis, (first, step) in _slices(op).items():
        size, count = op.dims(op.x)[axis], dims[axis]
        if step == 1 or count <= 1:
            front[axis], behind[axis] = (first, size - count - first) if count else (0, size)
            continue
        places = op.integers([first + step * number for number in range(count)])
        value = scattered(op, value, places, dims, axis, size)
        dims[axis] = size
    return [op.write("Pad", value, op.integers([*front, *behind])) if any(front + behind) else value]


def _slices(op: Operation) -> dict[int, tuple[int, int]]:
    """Returns the first position and the step of each axis that a Slice cuts."""
    dims = op.dims(op.x)
    starts, axes, steps = (op.constant_input(position) for position in (1, 3, 4))
    assert starts is not None  # onnx.checker asks for it
    found = {}
    for number, start in enumerate(starts.reshape(-1)):
        axis = number if axes is None else int(axes.reshape(-1)[number]) % len(dims)
        step = 1 if steps is None else int(steps.reshape(-1)[number])
        found[axis] = (slice(int(start), None, step).indices(dims[axis])[0], step)
    return found


def gather(op: Operation) -> Gradients:
    """Gather: rows that were read several times take the sum of their gradients; one known row is padded instead."""
    dims, axis = op.dims(op.x), op.attribute("axis") % len(op.dims(op.x))
    count, known = math.prod(op.dims(op.inputs[1])), op.values.constant(op.inputs[1])
    flat = [*dims[:axis], count, *dims[axis + 1 :]]
    rows = op.reshaped(op.cotangent, flat)
    if known is None or count != 1:
        return [scattered(op, rows, op.reshaped(op.inputs[1], [count]), flat, axis, dims[axis])]
    place, around = int(known.reshape(())) % dims[axis], [0] * 2 * len(dims)
    around[axis], around[len(dims) + axis] = place, dims[axis] - place - 1
    return [op.write("Pad", rows, op.integers(around))]


def scattered(op: Operation, value: str, places: str, dims: Sequence[int], axis: int, size: int) -> str:
    """Returns zeros with the slices of a value added at places along an axis.

    ScatterElements adds in the order of its operands; ScatterND may add to one place from several threads at once.

    Args:
      places: the position of each slice, [dims[axis]].
      dims: the shape of the value.
      size: the size of the axis in the result.
    """
    before, after = math.prod(dims[:axis]), math.prod(dims[axis + 1 :])
    shape = [before, dims[axis], after]
    spread = op.expanded(op.reshaped(places, [1, dims[axis], 1]), shape)
    empty = op.filled(0, [before, size, after])
    found = op.write("ScatterElements", empty, spread, op.reshaped(value, shape), axis=1, reduction="add")
    return op.reshaped(found, [*dims[:axis], size, *dims[axis + 1 :]])


def gather_nd(op: Operation) -> Gradients:
    """GatherND: slices that were read several times take the sum of their gradients.

    The positions of a slice become one number, that of the slice among all of them.
    """
    dims, places, batch = op.dims(op.x), op.dims(op.inputs[1]), op.attribute("batch_dims")
    indexed, rest = dims[batch : batch + places[-1]], math.prod(dims[batch + places[-1] :])
    count, of_each = math.prod(places[:batch]), math.prod(places[batch:-1])
    strides = [math.prod(indexed[place + 1 :]) for place in range(len(indexed))]
    counted = op.write("Mod", op.inputs[1], op.integers(indexed))  # from the front, also where they are negative
    number = op.total(op.write("Mul", counted, op.integers(strides)), [len(places) - 1])
    first = op.reshaped(op.integers([math.prod(indexed) * each for each in range(count)]), [count, 1])
    slices = op.reshaped(op.write("Add", op.reshaped(number, [count, of_each]), first), [count * of_each])
    shape = [count * of_each, rest]
    found = scattered(op, op.reshaped(op.cotangent, shape), slices, shape, 0, count * math.prod(indexed))
    return [op.reshaped(found, dims)]


def gather_elements(op: Operation) -> Gradients:
    empty = op.filled(0, op.dims(op.x))
    axis = op.attribute("axis")
    return [op.write("ScatterElements", empty, op.inputs[1], op.cotangent, axis=axis, reduction="add")]


def scatter_elements(op: Operation) -> Gradients:
    """ScatterElements that replaces elements or adds to them.

    Where several updates replace one element, each of them takes its gradient; ONNX leaves open which one stays.

    Raises:
      ModelError: it multiplies or compares.
    """
    reduction, axis = op.attribute("reduction"), op.attribute("axis")
    if reduction not in ("none", "add"):
        raise op.refusal(f"it combines elements by '{reduction}'")
    of_updates = op.write("GatherElements", op.cotangent, op.inputs[1], axis=axis)
    if reduction == "add":
        return [op.cotangent, None, of_updates]
    nothing = op.filled(0, op.dims(op.inputs[2]))
    return [op.write("ScatterElements", op.cotangent, op.inputs[1], nothing, axis=axis), None, of_updates]


def triangle(op: Operation) -> Gradients:
    """Trilu."""
    return [op.write("Trilu", op.cotangent, *op.inputs[1:], upper=op.attribute("upper"))]


RULES = {
    "Reshape": Rule(reshape),
    "Flatten": Rule(reshape),
    "Squeeze": Rule(reshape),
    "Unsqueeze": Rule(reshape),
    "Transpose": Rule(transpose),
    "Concat": Rule(concat),
    "Split": Rule(split),
    "Expand": Rule(expand),
    "Tile": Rule(tile),
    "Pad": Rule(pad),
    "Slice": Rule(slice_),
    "Gather": Rule(gather),
    "GatherElements": Rule(gather_elements),
    "GatherND": Rule(gather_nd),
    "ScatterElements": Rule(scatter_elements),
    "Trilu": Rule(triangle),
}
