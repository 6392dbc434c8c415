"""Gradients of convolutions and pools, in any number of spatial dimensions.

A window reads its input at positions p = o · stride + k · dilation - pad, where o is the number of the window and k a
position in it. A convolution, its gradient by the input and its gradient by the kernel are sums of products over the
same triples (p, o, k). So each of them is a convolution, plain or transposed.
Source: Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning", chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from onnx import helper

from environment.gradients.operation import Operation
from environment.gradients.rule import Forward, Gradients, Rule


@dataclass(frozen=True)
class Windows:
    """How windows lie on the spatial axes of their input, which may be padded; each attribute has a number an axis.

    Attributes:
      extents: size of the input.
      counts: number of windows.
      kernel: size of a window, in elements.
      strides, dilations: steps between windows, and between the elements of a window.
      before: padding in front of the input.
    """

    extents: Sequence[int]
    counts: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]

    @classmethod
    def of(cls, op: Operation, extents: Sequence[int], counts: Sequence[int], kernel: Sequence[int]) -> Windows:
        """Returns the windows of a node, from the spatial sizes of its tensors and its attributes."""
        ones = [1] * len(extents)
        strides, dilations = op.attribute("strides") or ones, op.attribute("dilations") or ones
        kind = op.attribute("auto_pad")
        if kind == "NOTSET":
            before = (op.attribute("pads") or [0] * len(extents))[: len(extents)]
        else:
            unpadded = cls(extents, counts, kernel, strides, dilations, [0] * len(extents))
            missing = [max(covered - extent, 0) for covered, extent in zip(unpadded.covered, extents, strict=True)]
            up, low = [each // 2 for each in missing], [each - each // 2 for each in missing]
            before = {"SAME_UPPER": up, "SAME_LOWER": low, "VALID": [0] * len(extents)}[kind]
        return cls(extents, counts, kernel, strides, dilations, before)

    @property
    def covered(self) -> list[int]:
        """The size from the first element of the first window to the last element of the last one."""
        axes = zip(self.counts, self.strides, self.kernel, self.dilations, strict=True)
        return [(count - 1) * stride + (size - 1) * dilation + 1 for count, stride, size, dilation in axes]

    @property
    def overhang(self) -> list[int]:
        """How far the last window reaches behind the input; negative if it does not reach its end."""
        axes = zip(self.covered, self.before, self.extents, strict=True)
        return [covered - before - extent for covered, before, extent in axes]

    @property
    def pads(self) -> list[int]:
        """The padding with which all windows fit, in ONNX's order."""
        return [*self.before, *(max(each, 0) for each in self.overhang)]

    @property
    def unread(self) -> list[int]:
        """The number of elements at the end of the input that no window reads."""
        return [max(-each, 0) for each in self.overhang]

    def over_input(self) -> dict[str, list[int]]:
        """Returns the attributes of a ConvTranspose that maps the windows to their input."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.strides),
            "dilations": list(self.dilations),
            "pads": self.pads,
            "output_padding": self.unread,
        }


def convolution(op: Operation) -> Gradients:
    """Conv."""
    x, kernel = op.inputs[:2]
    x_dims, w_dims, y_dims = (op.dims(name) for name in (x, kernel, op.y))
    windows, groups = Windows.of(op, x_dims[2:], y_dims[2:], w_dims[2:]), op.attribute("group")
    of_x = op.write("ConvTranspose", op.cotangent, kernel, group=groups, **windows.over_input())
    of_kernel = _of_kernel(op, (x, x_dims), (op.cotangent, y_dims), windows, groups)
    return [of_x, of_kernel, *_of_bias(op, y_dims)]


def transposed_convolution(op: Operation) -> Gradients:
    """ConvTranspose, which is the gradient of a convolution by its input, with the windows on the result.

    Raises:
      ModelError: its padding is not given by `pads`.
    """
    x, kernel = op.inputs[:2]
    x_dims, w_dims, y_dims = (op.dims(name) for name in (x, kernel, op.y))
    if op.attribute("auto_pad") != "NOTSET" or op.attribute("output_shape"):
        raise op.refusal("its padding follows from auto_pad or output_shape")
    windows, groups = Windows.of(op, y_dims[2:], x_dims[2:], w_dims[2:]), op.attribute("group")
    of_x = op.write(
        "Conv",
        op.cotangent,
        kernel,
        group=groups,
        kernel_shape=list(windows.kernel),
        strides=list(windows.strides),
        dilations=list(windows.dilations),
        pads=windows.pads,
    )
    steps = zip(windows.unread, windows.strides, strict=True)
    of_x = _first(op, of_x, x_dims[2:], [unread // stride for unread, stride in steps])
    of_kernel = _of_kernel(op, (op.cotangent, y_dims), (x, x_dims), windows, groups)
    return [of_x, of_kernel, *_of_bias(op, y_dims)]


Tensor = tuple[str, tuple[int, ...]]
"""The name of a value and its shape."""


def _of_kernel(op: Operation, wide: Tensor, narrow: Tensor, windows: Windows, groups: int) -> str:
    """Returns the gradient of a kernel: [channels of `narrow`, channels of `wide` / groups, *window].

    A convolution sums over its input channels. Here the sum runs over the batch, so batch and channels change places.
    The tensor with an element for each window is the kernel, and strides and dilations change places as well.

    Args:
      wide: the tensor that the windows lie on, [batch, channels, *extents].
      narrow: the tensor with an element for each window, [batch, channels, *counts].
    """
    (x, (batch, channels, *extents)), (y, (_, _, *counts)) = wide, narrow
    rank, each = len(extents), channels // groups
    spatial = list(range(2, 2 + rank))
    if groups > 1:  # [batch, group, channel in group, ...] -> [channel in group, group * batch, ...]
        split = op.reshaped(x, [batch, groups, each, *extents])
        turned = op.transposed(split, [2, 1, 0, *(axis + 1 for axis in spatial)])
        x = op.reshaped(turned, [each, groups * batch, *extents])
    else:
        x = op.transposed(x, [1, 0, *spatial])
    found = op.write(
        "Conv",
        x,
        op.transposed(y, [1, 0, *spatial]),
        group=groups,
        kernel_shape=list(counts),
        strides=list(windows.dilations),
        dilations=list(windows.strides),
        pads=windows.pads,
    )
    steps = zip(windows.unread, windows.dilations, strict=True)
    found = _first(op, found, windows.kernel, [unread // dilation for unread, dilation in steps])
    return op.transposed(found, [1, 0, *spatial])


def _first(op: Operation, value: str, sizes: Sequence[int], excess: Sequence[int]) -> str:
    """Returns the first `sizes` elements of each spatial axis of a value that has `excess` elements more."""
    axes = [axis for axis, more in enumerate(excess) if more]
    if not axes:
        return value
    ends = [sizes[axis] for axis in axes]
    spatial = [axis + 2 for axis in axes]
    return op.write("Slice", value, op.integers([0] * len(axes)), op.integers(ends), op.integers(spatial))


def _of_bias(op: Operation, y_dims: Sequence[int]) -> list[str]:
    return [op.total(op.cotangent, [0, *range(2, len(y_dims))])] if op.has(2) else []


def average_pool(op: Operation) -> Gradients:
    """AveragePool: each window spreads its cotangent evenly over the elements that it is the mean of."""
    batch, channels, *extents = op.dims(op.x)
    counts = op.dims(op.y)[2:]
    windows = Windows.of(op, extents, counts, op.attribute("kernel_shape"))
    members = _members(op, windows)
    shares = op.cotangent
    if (members == members.flat[0]).all():
        shares = op.scaled(shares, 1 / float(members.flat[0]))
    else:
        shares = op.write("Mul", shares, op.writer.constant(1 / members[None, None], op.dtype))
    maps = op.reshaped(shares, [batch * channels, 1, *counts])
    ones = op.writer.constant(np.ones([1, 1, *windows.kernel]), op.dtype)
    spread = op.write("ConvTranspose", maps, ones, **windows.over_input())
    return [op.reshaped(spread, [batch, channels, *extents])]


def _members(op: Operation, windows: Windows) -> np.ndarray:
    """Returns how many elements each window is the mean of [*counts]; padding counts by `count_include_pad`."""
    rank = len(windows.extents)
    padded = op.attribute("auto_pad") == "NOTSET" and op.attribute("count_include_pad")
    behind = (op.attribute("pads") or [0] * 2 * rank)[rank:] if padded else [0] * rank
    numbers = []
    for axis in range(rank):
        starts = np.arange(windows.counts[axis])[:, None] * windows.strides[axis] - windows.before[axis]
        places = starts + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        least = -windows.before[axis] if padded else 0
        numbers.append(((places >= least) & (places < windows.extents[axis] + behind[axis])).sum(axis=1))
    return reduce(np.multiply.outer, numbers).astype(np.float64)


def max_pool_forward(op: Operation) -> Forward:
    """MaxPool with its second output, the positions of the maxima: the gradient breaks ties as the pool does."""
    attributes = {each.name: helper.get_attribute_value(each) for each in op.node.attribute} | {"storage_order": 0}
    value, positions = op.write_several("MaxPool", 2, op.x, **attributes)
    return Forward([value, positions], {"positions": positions}, {})


def max_pool(op: Operation) -> Gradients:
    """MaxPool: the cotangent of each window goes to the position of its maximum."""
    dims, count = op.dims(op.x), math.prod(op.dims(op.y))
    positions, values = op.reshaped(op.saved["positions"], [count]), op.reshaped(op.cotangent, [count])
    empty = op.filled(0, [math.prod(dims)])
    return [op.reshaped(op.write("ScatterElements", empty, positions, values, axis=0, reduction="add"), dims)]


def global_average_pool(op: Operation) -> Gradients:
    dims = op.dims(op.x)
    return [op.expanded(op.scaled(op.cotangent, 1 / math.prod(dims[2:])), dims)]


def global_max_pool(op: Operation) -> Gradients:
    """GlobalMaxPool; equal elements share the gradient evenly."""
    axes = list(range(2, len(op.dims(op.x))))
    kind = helper.np_dtype_to_tensor_dtype(op.dtype)
    equal = op.write("Cast", op.write("Equal", op.x, op.y), to=kind)
    return [op.write("Mul", equal, op.write("Div", op.cotangent, op.total(equal, axes, keep=True)))]


RULES = {
    "Conv": Rule(convolution),
    "ConvTranspose": Rule(transposed_convolution),
    "AveragePool": Rule(average_pool),
    "MaxPool": Rule(max_pool, forward=max_pool_forward),
    "GlobalAveragePool": Rule(global_average_pool),
    "GlobalMaxPool": Rule(global_max_pool),
}
