"""The work of a kernel: its operations, the bytes that it moves, and the extents that its loops run over.

ONNX Runtime's own operators have no shape inference. Each family of operators therefore has a function here that finds
its results from the operands. A kernel of an unknown operator counts as one pass over its largest operand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environment.costs.measured.benchmark import input_bytes, is_view, weight_bytes
from environment.costs.measured.kernel import Kernel, Operand

FAMILIES = (
    "product",
    "convolution",
    "attention",
    "pointwise",
    "function",
    "normalisation",
    "reduction",
    "pooling",
    "movement",
    "view",
    "other",
)
"""Families of operators whose kernels do alike."""

_FAMILY: Mapping[str, str] = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulNBits", "Einsum"), "product"),
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose", "NhwcFusedConv"), "convolution"),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), "attention"),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Relu", "LeakyRelu", "Clip", "Neg", "Abs", "Min", "Max", "Where", "Cast", "Sqrt"),
        "pointwise",
    ),
    **dict.fromkeys(
        ("Exp", "Log", "Erf", "Tanh", "Sigmoid", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Pow", "Softplus"),
        "function",
    ),
    **dict.fromkeys(
        (
            "Softmax",
            "LogSoftmax",
            "LayerNormalization",
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "RMSNormalization",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LRN",
        ),
        "normalisation",
    ),
    **dict.fromkeys(
        (
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL2",
            "ReduceSumSquare",
            "ArgMax",
            "CumSum",
        ),
        "reduction",
    ),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), "pooling"),
    **dict.fromkeys(
        (
            "Transpose",
            "Concat",
            "Split",
            "Slice",
            "Gather",
            "GatherND",
            "Expand",
            "Tile",
            "Pad",
            "ReorderInput",
            "ReorderOutput",
            "DepthToSpace",
            "SpaceToDepth",
            "Resize",
        ),
        "movement",
    ),
}


@dataclass(frozen=True)
class Counts:
    """What the extents of a kernel say of its work.

    Attributes:
      flops: operations.
      results: elements of the results.
      rows, columns, depth, batch: extents of the loops. A product is `batch` products [rows, depth] × [depth,
        columns]; a convolution counts as one for each group. Other kernels have `batch` results of `depth` terms each.
      run: elements that lie side by side both where they are read and where they are written.
    """

    flops: float = 0.0
    results: float = 0.0
    rows: float = 1.0
    columns: float = 1.0
    depth: float = 1.0
    batch: float = 1.0
    run: float = 1.0


@dataclass(frozen=True)
class Work(Counts):
    """What one run of a kernel does.

    Attributes:
      family: one of `FAMILIES`.
      read_bytes, weight_bytes, written_bytes: bytes of computed operands, of weights and of results.
    """

    family: str = "view"
    read_bytes: float = 0.0
    weight_bytes: float = 0.0
    written_bytes: float = 0.0


def work(kernel: Kernel) -> Work:
    """Returns the work of a kernel."""
    operands = [each for each in kernel.operands if each is not None]
    if is_view(kernel) or not operands:
        return Work(family="view")
    family = _FAMILY.get(kernel.op_type, "other")
    attributes = json.loads(kernel.attributes)
    counted = _COUNTS[family](kernel, attributes)
    itemsize = operands[0].nbytes / max(math.prod(operands[0].dims), 1)
    if not kernel.domain and kernel.op_type == "Cast":
        itemsize = 4.0
    return Work(
        **vars(counted),
        family=family,
        read_bytes=input_bytes(kernel),
        weight_bytes=weight_bytes(kernel),
        written_bytes=counted.results * itemsize,
    )


def _dims(kernel: Kernel, place: int) -> tuple[int, ...]:
    operand = kernel.operands[place] if place < len(kernel.operands) else None
    return operand.dims if operand is not None else ()


def _product(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    first, second = _dims(kernel, 0) or (1,), _dims(kernel, 1) or (1,)
    first = first if len(first) > 1 else (1, *first)
    second = second if len(second) > 1 else (*second, 1)
    if attributes.get("transBatchA"):  # FusedMatMul reads what a Transpose would bring to the front where it is
        first = (*first[1:-1], first[0], first[-1])
    if attributes.get("transBatchB"):
        second = (*second[1:-1], second[0], second[-1])
    rows, depth = first[-2:] if not attributes.get("transA") else first[-2:][::-1]
    columns = second[-2] if attributes.get("transB") else second[-1]
    lead = _broadcast([first[:-2], second[:-2]])
    batch = math.prod(lead)
    if math.prod(second[:-2]) == 1:  # one matrix for all rows: the runtime multiplies once
        rows, batch = rows * batch, 1
    return Counts(2.0 * batch * rows * columns * depth, batch * rows * columns, rows, columns, depth, batch)


def _convolution(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    data, weight = _dims(kernel, 0), _dims(kernel, 1)
    groups = int(attributes.get("group", 1))
    window = attributes.get("kernel_shape") or list(weight[2:])
    positions = math.prod(_positions(data[2:], window, attributes))
    out, depth = weight[0], weight[1] * math.prod(window)
    results = data[0] * out * positions
    return Counts(2.0 * results * depth, results, out // max(groups, 1), positions, depth, data[0] * groups)


def _pooling(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    data = _dims(kernel, 0)
    window = attributes.get("kernel_shape") or list(data[2:])
    positions = math.prod(_positions(data[2:], window, attributes)) if "kernel_shape" in attributes else 1
    results = math.prod(data[:2]) * positions
    return Counts(results * math.prod(window), results, depth=math.prod(window), batch=results)


def _positions(extents: Sequence[int], window: Sequence[int], attributes: Mapping[str, Any]) -> list[int]:
    """Returns the extents of what a sliding window computes."""
    count = len(extents)
    strides = attributes.get("strides") or [1] * count
    if attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return [-(-extent // stride) for extent, stride in zip(extents, strides, strict=True)]
    dilations, pads = attributes.get("dilations") or [1] * count, attributes.get("pads") or [0] * (2 * count)
    return [
        max((extents[axis] + pads[axis] + pads[axis + count] - dilations[axis] * (window[axis] - 1) - 1), 0)
        // strides[axis]
        + 1
        for axis in range(count)
    ]


def _attention(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    query, key = _dims(kernel, 0), _dims(kernel, 1) or _dims(kernel, 0)
    length, other = (query[-2], key[-2]) if len(query) > 1 else (1, 1)
    results = math.prod(query)
    batch = results / max(length * query[-1], 1) * max(int(attributes.get("num_heads", 1)), 1)
    return Counts(4.0 * results * other, results, length, other, query[-1], batch)


def _pointwise(kernel: Kernel, _: Mapping[str, Any]) -> Counts:
    shapes = [each.dims for each in kernel.operands if each is not None]
    results = math.prod(_broadcast(shapes))
    largest = max(shapes, key=math.prod)
    same = min((_common_tail(largest, shape) for shape in shapes if math.prod(shape) > 1), default=results)
    return Counts(results * max(len(shapes) - 1, 1), results, depth=len(shapes), batch=results, run=same)


def _normalisation(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    data = _dims(kernel, 0)
    axis = int(attributes.get("axis", -1))
    depth = math.prod(data[axis:]) if kernel.op_type != "Softmax" and data else (data[axis] if data else 1)
    results = math.prod(data)
    run = math.prod(data[axis:][1:]) if data else 1
    return Counts(5.0 * results, results, depth=depth, batch=results / max(depth, 1), run=run)


def _reduction(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    data, given = _dims(kernel, 0), _literal(kernel, 1)
    listed = [attributes["axis"]] if "axis" in attributes else range(len(data))
    axes = given if given is not None else attributes.get("axes") or listed
    reduced = {int(axis) % max(len(data), 1) for axis in axes}
    depth = math.prod(data[axis] for axis in reduced if axis < len(data))
    whole = math.prod(data)
    last = max(reduced, default=len(data) - 1)
    return Counts(
        whole, whole / max(depth, 1), depth=depth, batch=whole / max(depth, 1), run=math.prod(data[last + 1 :])
    )


def _movement(kernel: Kernel, attributes: Mapping[str, Any]) -> Counts:
    data = _dims(kernel, 0)
    results: float = math.prod(data)
    run = float(results)
    parts = sum(each is not None for each in kernel.operands)
    if kernel.op_type == "Transpose":
        run, parts = _unmoved(data, attributes.get("perm") or list(range(len(data)))[::-1]), 1
    elif kernel.op_type == "Concat":
        axis = int(attributes.get("axis", 0)) % max(len(data), 1)
        results = sum(math.prod(each.dims) for each in kernel.operands if each is not None)
        run = results / max(parts * math.prod(data[:axis]), 1)
    elif kernel.op_type == "Split":
        axis, parts = int(attributes.get("axis", 0)) % max(len(data), 1), len(kernel.results)
        run = results / max(parts * math.prod(data[:axis]), 1)
    elif kernel.op_type == "Slice":
        results, run = _sliced(kernel, data)
    elif kernel.op_type in ("Expand", "Tile"):
        counts = _literal(kernel, 1) or ()
        results = (
            math.prod(_broadcast([data, [int(each) for each in counts]]))
            if kernel.op_type == "Expand"
            else (results * math.prod(int(each) for each in counts))
        )
        run = _common_tail(data, [int(each) for each in counts])
    elif kernel.op_type == "Gather":
        axis = int(attributes.get("axis", 0)) % max(len(data), 1)
        run = math.prod(data[axis + 1 :])
        results = math.prod(data[:axis]) * math.prod(_dims(kernel, 1)) * run
    elif kernel.op_type == "Pad":
        pads = [int(each) for each in _literal(kernel, 1) or ()]
        half = len(pads) // 2
        results = math.prod(max(dim + pads[i] + pads[i + half], 0) for i, dim in enumerate(data)) if half else results
        run = data[-1] if data else 1
    elif kernel.op_type in ("ReorderInput", "ReorderOutput"):
        run = data[-1] if attributes.get("channels_last") else 1
    return Counts(0.0, results, rows=parts, batch=results / max(run, 1), run=run)


def _unmoved(dims: Sequence[int], perm: Sequence[int]) -> float:
    """Returns how many elements stay side by side if axes are permuted."""
    run = 1
    for place, axis in reversed(list(enumerate(perm))):
        if place != axis and dims[axis] != 1:
            break
        run *= dims[axis]
    return float(run)


def _sliced(kernel: Kernel, data: Sequence[int]) -> tuple[float, float]:
    """Returns the number of elements of a slice and how many of them lie side by side."""
    starts, ends = _literal(kernel, 1), _literal(kernel, 2)
    if starts is None or ends is None:
        return math.prod(data), data[-1] if data else 1
    axes = _literal(kernel, 3) or tuple(map(float, range(len(starts))))
    steps = _literal(kernel, 4) or (1.0,) * len(starts)
    extents, first = list(data), len(data)
    stepped = 1
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        place = int(axis) % max(len(data), 1)
        extents[place] = len(range(*slice(int(start), int(end), int(step) or 1).indices(data[place])))
        if extents[place] != data[place] or step != 1:
            first = place if first == len(data) else max(first, place)
            stepped = max(stepped, abs(int(step)))
    kept = math.prod(extents[first:]) if first < len(data) else math.prod(extents)
    return math.prod(extents), kept / max(extents[first], 1) if stepped > 1 and first < len(data) else kept


def _other(kernel: Kernel, _: Mapping[str, Any]) -> Counts:
    results = max((math.prod(each.dims) for each in kernel.operands if each is not None), default=1)
    return Counts(results, results, batch=results, run=results)


def _literal(kernel: Kernel, place: int) -> tuple[float, ...] | None:
    operand: Operand | None = kernel.operands[place] if place < len(kernel.operands) else None
    return operand.values if operand is not None else None


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Returns the shape that shapes broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def _common_tail(whole: Sequence[int], part: Sequence[int]) -> float:
    """Returns the number of last elements that two shapes have in common."""
    run = 1
    for one, other in zip(reversed(whole), reversed(part), strict=False):
        if one != other:
            break
        run *= one
    return float(run)


_COUNTS: Mapping[str, Callable[[Kernel, Mapping[str, Any]], Counts]] = {
    "product": _product,
    "convolution": _convolution,
    "attention": _attention,
    "pointwise": _pointwise,
    "function": _pointwise,
    "normalisation": _normalisation,
    "reduction": _reduction,
    "pooling": _pooling,
    "movement": _movement,
    "other": _other,
}
