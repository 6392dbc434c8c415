"""The features of a kernel, from which its time is predicted.

A time is predicted as a ratio to the time of the reference kernel, and that as a ratio to a simple formula, `estimate`.
What is learned is only by how much the formula is wrong, which differs less between kernels of all sizes.
"""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt

from environment.costs.learned.work import FAMILIES, Work, work
from environment.costs.measured.benchmark import REFERENCE_KERNEL
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.kernel_prices import split_key

_REFERENCE_FLOPS = work(REFERENCE_KERNEL).flops
_FLOPS_PER_BYTE = 16.0
"""Operations in the time in which a byte is moved: about that of one core that multiplies matrices."""
_LAUNCH_FLOPS = 1e5
"""Operations in the time that a kernel takes to start: about a microsecond."""

_OPERATORS = (
    *("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Conv", "FusedConv", "Attention", "MultiHeadAttention"),
    *("Add", "Sub", "Mul", "Div", "Relu", "Sqrt", "Cast", "Where", "Erf", "Tanh", "Sigmoid", "Gelu", "BiasGelu", "Pow"),
    *("Softmax", "LogSoftmax", "LayerNormalization", "SkipLayerNormalization", "ReduceMean", "ReduceSum"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Transpose", "Concat", "Split", "Slice", "Gather", "Expand"),
    *("Pad", "ReorderInput", "ReorderOutput"),
)
_BLOCKED = "com.microsoft.nchwc"
_BLOCK = 16
"""Channels that are side by side in a blocked layout; ONNX Runtime has 16 with AVX-512 and 8 without."""

NAMES = (
    *("formula", "flops", "read", "weights", "written", "moved", "intensity", "graph weights"),
    *("rows", "columns", "depth", "batch", "run", "window", "stride", "dilation", "padding", "groups"),
    *("rows of block", "depth of block", "columns of block", "one group for each channel"),
    *("blocked", "activation", "bias", "sum", "transposes", "operands", "results", "weight is first", "item bytes"),
    *("last axis", "second axis", "scalar operand", "channels last"),
    *(f"family {name}" for name in FAMILIES),
    *(f"operator {name}" for name in _OPERATORS),
)
"""The meaning of each feature. Sizes are natural logarithms of 1 more than the size."""


def features(keys: list[str]) -> npt.NDArray[np.float32]:
    """Returns the features [n, len(NAMES)] of kernels, given as the signatures of their prices."""
    return np.array([_row(*split_key(key)) for key in keys], np.float32).reshape(-1, len(NAMES))


def estimate(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Returns the logarithm of what the formula says of kernels with these features [n], as ratios to the reference."""
    return rows[:, 0].astype(np.float64)


def family_of(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
    """Returns the number of each kernel's family [n] in `FAMILIES`, given the features."""
    first = NAMES.index(f"family {FAMILIES[0]}")
    found: npt.NDArray[np.intp] = rows[:, first : first + len(FAMILIES)].argmax(axis=1)
    return found


def _row(weights_mb: int, kernel: Kernel) -> list[float]:
    done, attributes = work(kernel), json.loads(kernel.attributes)
    operands = [each for each in kernel.operands if each is not None]
    first = operands[0].dims if operands and done.family != "view" else ()
    moved = done.read_bytes + done.weight_bytes + done.written_bytes
    groups = int(attributes.get("group", 1))
    pads, strides = attributes.get("pads") or [0], attributes.get("strides") or [1]
    is_view = done.family == "view"
    sizes = [
        *(done.flops, done.read_bytes, done.weight_bytes, done.written_bytes, moved, done.flops / max(moved, 1)),
        *(0 if is_view else weights_mb, done.rows, done.columns, done.depth, done.batch, done.run),
        *(math.prod(attributes.get("kernel_shape") or [1]), math.prod(strides)),
        *(math.prod(attributes.get("dilations") or [1]), sum(map(abs, pads)), groups),
    ]
    facts = [
        *(_left(done.rows), _left(done.depth), _left(done.columns)),
        done.family == "convolution" and groups > 1 and done.depth == attributes_window(attributes),
        kernel.domain == _BLOCKED,
        "activation" in attributes,
        done.family in ("convolution", "product") and len(operands) > 2,
        done.family == "convolution" and len(operands) > 3,
        int(attributes.get("transA", 0)) + 2 * int(attributes.get("transB", 0)),
        0 if is_view else len(operands),
        0 if is_view else len(kernel.results),
        bool(operands) and operands[0].is_weight,
        operands[0].nbytes / max(math.prod(operands[0].dims), 1) if operands and not is_view else 0,
        math.log1p(first[-1]) if first else 0,
        math.log1p(first[-2]) if len(first) > 1 else 0,
        any(each.constant and math.prod(each.dims) == 1 for each in operands) and done.family == "pointwise",
        int(attributes.get("channels_last", 0)),
    ]
    return [
        _formula(done, moved),
        *(math.log1p(size) for size in sizes),
        *(float(fact) for fact in facts),
        *(float(done.family == name) for name in FAMILIES),
        *(float(kernel.op_type == name and not is_view) for name in _OPERATORS),
    ]


def attributes_window(attributes: dict[str, list[int]]) -> int:
    """Returns the number of positions in a sliding window."""
    return math.prod(attributes.get("kernel_shape") or [1])


def _left(extent: float) -> float:
    """Returns which part of the last block of an extent is filled, 1 if it is full."""
    return (extent - 1) % _BLOCK / (_BLOCK - 1)


def _formula(done: Work, moved: float) -> float:
    if done.family == "view":
        return math.log(_LAUNCH_FLOPS / _REFERENCE_FLOPS)
    return math.log((done.flops + _FLOPS_PER_BYTE * moved + _LAUNCH_FLOPS) / _REFERENCE_FLOPS)
