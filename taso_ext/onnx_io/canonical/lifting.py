"""The conversion into normal form; here, of operators that only move elements and of those that slide a window."""

from __future__ import annotations

import math
from functools import cache

import onnx

from taso_ext.onnx_io.canonical import algebra
from taso_ext.onnx_io.canonical.form import Attribute, Lifter, NormalForm, RawNode, axes_of, axis_of
from taso_ext.onnx_io.checked_model import UNKNOWN

# Operators that only move or rename elements


def _transpose(node: RawNode) -> NormalForm | None:
    perm = node.integers("perm")
    if perm is None:
        if node.dims is None:
            return None
        perm = list(reversed(range(len(node.dims))))
    return NormalForm("Transpose", {"perm": perm}, (0,)) if perm else None


def _reshaped(node: RawNode, shape: list[int] | None) -> NormalForm | None:
    """Returns a Reshape to static dims, or None if they do not fit or hold a 0.

    Empty tensors stay raw, because in a shape input, 0 usually means 'copy the dimension'.
    """
    if shape is None or node.dims is None or math.prod(shape) != math.prod(node.dims) or 0 in shape:
        return None
    return NormalForm("Reshape", {"shape": shape}, (0,))


def _reshape(node: RawNode) -> NormalForm | None:
    target = node.integers_at(1)
    if target is None or node.dims is None or 0 in node.dims:
        return None
    if node.integer("allowzero", 0) == 0:
        if any(size == 0 and axis >= len(node.dims) for axis, size in enumerate(target)):
            return None
        target = [node.dims[axis] if size == 0 else size for axis, size in enumerate(target)]
    if target.count(-1) == 1:
        rest = math.prod(size for size in target if size != -1)
        target = [math.prod(node.dims) // rest if size == -1 and rest > 0 else size for size in target]
    return _reshaped(node, target) if all(size > 0 for size in target) else None


def _flatten(node: RawNode) -> NormalForm | None:
    if node.dims is None:
        return None
    rank, axis = len(node.dims), node.integer("axis", 1)
    axis = axis + rank if axis < 0 else axis
    return _reshaped(node, [math.prod(node.dims[:axis]), math.prod(node.dims[axis:])]) if 0 <= axis <= rank else None


def _axes(node: RawNode) -> list[int] | None:
    """Returns the axes of Squeeze and Unsqueeze: an attribute before opset 13, an input from then on; [] if absent.

    The result is None if the axes input is not constant or is empty: some take an empty one for 'none', others for
    'all'.
    """
    if node.opset < 13:
        return node.integers("axes") or []
    return (node.integers_at(1) or None) if node.given(1) else []


def _squeeze(node: RawNode) -> NormalForm | None:
    given = _axes(node)
    if node.dims is None or given is None:
        return None
    axes = axes_of(given, len(node.dims)) if given else [i for i, size in enumerate(node.dims) if size == 1]
    if axes is None or any(node.dims[axis] != 1 for axis in axes):
        return None
    return _reshaped(node, [size for axis, size in enumerate(node.dims) if axis not in axes])


def _unsqueeze(node: RawNode) -> NormalForm | None:
    given = _axes(node)
    if node.dims is None or not given:
        return None
    axes = axes_of(given, len(node.dims) + len(given))
    if axes is None:
        return None
    shape = list(node.dims)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return _reshaped(node, shape)


def _concat(node: RawNode) -> NormalForm | None:
    if node.dims is None or any(kind.dims is None for kind in node.inputs):
        return None
    axis = axis_of(node.integer("axis", 0), len(node.dims))
    return None if axis is None else NormalForm("Concat", {"axis": axis}, tuple(range(len(node.inputs))))


def _split(node: RawNode) -> NormalForm | None:
    if node.dims is None:
        return None
    axis = axis_of(node.integer("axis", 0), len(node.dims))
    if axis is None:
        return None
    given = node.given(1) if node.opset >= 13 else "split" in node.attributes
    sizes = node.integers("split") if node.opset < 13 else node.integers_at(1)
    if not given:
        sizes = _equal_parts(node.dims[axis], len(node.outputs), uneven=node.opset >= 18)
    if sizes is None or len(sizes) != len(node.outputs) or sum(sizes) != node.dims[axis] or min(sizes) < 1:
        return None
    return NormalForm("Split", {"axis": axis, "split": sizes}, (0,))


def _equal_parts(size: int, parts: int, uneven: bool) -> list[int] | None:
    """Returns the sizes of equal parts, or None if there are none.

    Args:
      uneven: whether the last part may be smaller, as from opset 18 on.
    """
    if size % parts and not uneven:
        return None
    each = math.ceil(size / parts)
    return [each] * (parts - 1) + [size - each * (parts - 1)]


def _slice(node: RawNode) -> NormalForm | None:
    """Lifts slices with positive steps; starts and ends that are negative or INT_MAX become positions in the tensor."""
    if node.opset < 10:
        starts, ends, axes = (node.integers(name) for name in ("starts", "ends", "axes"))
        steps = None
    else:
        starts, ends, axes, steps = (node.integers_at(position) for position in (1, 2, 3, 4))
        if (axes is None and node.given(3)) or (steps is None and node.given(4)):
            return None
    if starts is None or ends is None or node.dims is None or not len(starts) == len(ends) <= len(node.dims):
        return None
    axes = axes_of(list(range(len(starts))) if axes is None else axes, len(node.dims))
    steps = [1] * len(starts) if steps is None else steps
    if axes is None or not len(axes) == len(starts) == len(steps) or any(step < 1 for step in steps):
        return None
    cuts = sorted(
        (axis, _clamped(start, node.dims[axis]), _clamped(end, node.dims[axis]), step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    )
    if not cuts or any(start >= end for _, start, end, _ in cuts):
        return None
    axes, first, last, steps = (list(column) for column in zip(*cuts, strict=True))
    return NormalForm("Slice", {"starts": first, "ends": last, "axes": axes, "steps": steps}, (0,))


def _clamped(position: int, size: int) -> int:
    return min(max(position + size if position < 0 else position, 0), size)


def _pad(node: RawNode) -> NormalForm | None:
    """Lifts padding with a constant value if the pads are known in advance and not negative."""
    if node.dims is None or node.attributes.get("mode", "constant") != "constant":
        return None
    rank = len(node.dims)
    value: Attribute | None
    if node.opset < 11:
        pads, value = node.integers("pads"), node.attributes.get("value", 0.0)
    else:
        pads, value = node.integers_at(1), _pad_value(node)
    if node.given(3) and pads is not None:
        pads = _all_axes_pads(pads, node.integers_at(3), rank)
    if pads is None or len(pads) != 2 * rank or min(pads, default=-1) < 0 or not isinstance(value, (int, float)):
        return None
    return NormalForm("Pad", {"pads": pads, "mode": "constant", "value": float(value)}, (0,))


def _pad_value(node: RawNode) -> float | None:
    """Returns the padding value, or None if it is no known number that a float attribute holds exactly."""
    if not node.given(2):
        return 0.0
    value = node.constants.get(2)
    if value is None or value.size != 1 or value.dtype.kind not in "fiub":
        return None
    number = float(value.reshape(()))
    return number if value.dtype.type(number) == value.reshape(()) else None


def _all_axes_pads(pads: list[int], axes: list[int] | None, rank: int) -> list[int] | None:
    """Returns pads of all axes, given those of some axes (opset 18); None if axes and pads do not fit together."""
    found = None if axes is None else axes_of(axes, rank)
    if found is None or len(pads) != 2 * len(found):
        return None
    full = [0] * (2 * rank)
    for i, axis in enumerate(found):
        full[axis], full[axis + rank] = pads[i], pads[i + len(found)]
    return full


def _expand(node: RawNode) -> NormalForm | None:
    """Lifts Expand to the shape of the result, because the given shape may hold 1 where the input is larger."""
    given = node.integers_at(1)
    if given is None or node.dims is None or 0 in node.dims or any(size < 1 for size in given):
        return None
    rank = max(len(given), len(node.dims))
    pairs = zip([1] * (rank - len(given)) + given, (1,) * (rank - len(node.dims)) + node.dims, strict=True)
    return NormalForm("Expand", {"shape": [max(pair) for pair in pairs]}, (0,))


# Operators that slide a window, whose automatic padding becomes explicit


Window = dict[str, Attribute]


def _conv(node: RawNode) -> NormalForm | None:
    weight = node.inputs[1].dims
    if node.dims is None or weight is None or len(weight) != len(node.dims):
        return None
    window = _window(node, list(weight[2:]))
    if window is None or window["kernel_shape"] != list(weight[2:]):
        return None
    return NormalForm("Conv", window | {"group": node.integer("group", 1)}, (0, 1, 2) if node.given(2) else (0, 1))


def _max_pool(node: RawNode) -> NormalForm | None:
    window = _pool_window(node)
    return None if window is None else NormalForm("MaxPool", window, (0,))


def _average_pool(node: RawNode) -> NormalForm | None:
    window = _pool_window(node)
    if window is None:
        return None
    return NormalForm(
        "AveragePool", window | {"count_include_pad": int(node.integer("count_include_pad", 0) != 0)}, (0,)
    )


def _pool_window(node: RawNode) -> Window | None:
    kernel = node.integers("kernel_shape")
    if node.dims is None or kernel is None or len(node.outputs) != 1:
        return None
    window = _window(node, kernel)
    return None if window is None else window | {"ceil_mode": int(node.integer("ceil_mode", 0) != 0)}


def _window(node: RawNode, kernel: list[int]) -> Window | None:
    """Returns all of kernel_shape, strides, pads and dilations; None if they do not fit the input or are unusual."""
    assert node.dims is not None
    sizes = node.dims[2:]
    ones = [1] * len(sizes)
    kernel = node.integers("kernel_shape") or kernel
    strides, dilations = node.integers("strides") or ones, node.integers("dilations") or ones
    if not sizes or not len(sizes) == len(kernel) == len(strides) == len(dilations):
        return None
    if min(*kernel, *strides, *dilations, *sizes) < 1:
        return None
    pads = _pads(node, list(sizes), kernel, strides, dilations)
    if pads is None or len(pads) != 2 * len(sizes) or min(pads) < 0:
        return None
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def _pads(
    node: RawNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int] | None:
    """Returns explicit pads, or None if automatic ones are combined with dilations, ceil_mode or pads.

    Runtimes differ in how they read such combinations.
    """
    mode = node.attributes.get("auto_pad", "NOTSET")
    given = node.integers("pads") or [0] * (2 * len(sizes))
    if mode in ("NOTSET", ""):
        return given
    if any(given) or node.integer("ceil_mode", 0):
        return None
    if mode == "VALID":
        return given
    if mode not in ("SAME_UPPER", "SAME_LOWER") or any(step != 1 for step in dilations):
        return None
    begin, end = [], []
    for size, width, stride in zip(sizes, kernel, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + width - size, 0)
        small = total // 2
        begin.append(small if mode == "SAME_UPPER" else total - small)
        end.append(total - begin[-1])
    return begin + end


_LIFTERS: dict[str, Lifter] = algebra.LIFTERS | {
    "Expand": _expand,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
}


_NEWEST_OPSET = 24
"""The newest opset whose attributes the conversions above know."""


@cache
def _known_attributes(op_type: str) -> frozenset[str]:
    schemas = (schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == op_type)
    known = (schema for schema in schemas if not schema.domain and schema.since_version <= _NEWEST_OPSET)
    return frozenset(name for schema in known for name in schema.attributes)


def lift(node: RawNode) -> NormalForm | None:
    """Returns the normal form of a node, or None if it has none or cannot be converted with certainty.

    A node with an attribute that a newer opset added, such as the windows of Attention, is not converted.
    """
    lifter = _LIFTERS.get(node.op_type)
    if lifter is None or UNKNOWN in node.outputs or not _known_attributes(node.op_type).issuperset(node.attributes):
        return None
    return lifter(node)


def has_normal_form(op_type: str) -> bool:
    """Returns whether an operator has a normal form, so that a node of it that is not lifted is marked as raw."""
    return op_type in _LIFTERS
