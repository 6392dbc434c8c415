"""Convolutions and pooling operators, with channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.baselines.tensorflow.values import Inputs, Laid, Node, Operator, channels_last, plain, required

Pads = list[tuple[int, int]]
"""Elements of padding before and after, for each spatial axis."""


@dataclass(frozen=True)
class Window:
    """How a kernel moves over two spatial axes; if there is only one, the second axis has size 1.

    Attributes:
      kernel, strides, dilations: sizes by spatial axis.
      pads: all padding, by spatial axis.
      counted: the padding that the node asks for; the rest of `pads` only completes the last window.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: Pads
    counted: Pads

    @property
    def extent(self) -> list[int]:
        """The elements that the kernel covers on each spatial axis, with its gaps."""
        return _extents(self.kernel, self.dilations)

    @property
    def padded(self) -> bool:
        return any(any(pair) for pair in self.pads)

    def around(self) -> list[list[int]]:
        """Returns the pads of all four axes, in TensorFlow's form."""
        return [[0, 0], *(list(pair) for pair in self.pads), [0, 0]]

    def is_same(self, space: Sequence[int]) -> bool:
        """Returns whether the pads are those that TensorFlow calls SAME."""
        totals = _same_totals(space, self.strides, self.extent)
        return all(pair == (total // 2, total - total // 2) for pair, total in zip(self.pads, totals, strict=True))


def _extents(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]


def _same_totals(space: Sequence[int], strides: Sequence[int], extents: Sequence[int]) -> list[int]:
    """Returns the sum of the two pads of each spatial axis under SAME: as many windows as the stride goes into it."""
    sizes = zip(space, strides, extents, strict=True)
    return [max((-(-size // stride) - 1) * stride + extent - size, 0) for size, stride, extent in sizes]


def _window(node: Node, kernel: Sequence[int], space: Sequence[int]) -> Window:
    """Returns the window of a node, in whatever form its pads are given."""
    flat = len(kernel) == 1

    def pair(values: Sequence[int]) -> tuple[int, int]:
        return (values[0], 1) if flat else (values[0], values[1])

    strides = node.attribute("strides", [1] * len(kernel))
    dilations = node.attribute("dilations", [1] * len(kernel))
    extent = _extents(kernel, dilations)
    counted = _pads(node, space, strides, extent)
    pads = [_until_the_end(*each) for each in zip(counted, space, strides, extent, strict=True)]
    rest = [(0, 0)] * flat
    pads = pads if node.attribute("ceil_mode", 0) else counted
    return Window(pair(kernel), pair(strides), pair(dilations), [*pads, *rest], [*counted, *rest])


def _pads(node: Node, space: Sequence[int], strides: Sequence[int], extent: Sequence[int]) -> Pads:
    count = len(extent)
    auto = node.attribute("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        small = [(total // 2, total - total // 2) for total in _same_totals(space, strides, extent)]
        return small if auto == "SAME_UPPER" else [(after, before) for before, after in small]
    given = node.attribute("pads", [0] * 2 * count) if auto == "NOTSET" else [0] * 2 * count
    return [(given[i], given[count + i]) for i in range(count)]


def _until_the_end(pads: tuple[int, int], size: int, stride: int, extent: int) -> tuple[int, int]:
    """Returns pads that complete the last window; a window that begins behind the input does not count."""
    before, after = pads
    windows = -(-(size + before + after - extent) // stride) + 1
    if (windows - 1) * stride >= size + before:
        windows -= 1
    return before, max((windows - 1) * stride + extent - size - before, after)


def _spatial(node: Node, x: Laid) -> Any:
    """Returns a value with channels last and two spatial axes; a single spatial axis gets a second one of size 1."""
    if x.rank not in (3, 4):
        raise node.unsupported(f"{x.rank - 2} axes of space")
    data = x.laid(channels_last(x.rank))
    return tf.expand_dims(data, 2) if x.rank == 3 else data


def _result(data: Any, rank: int) -> list[Laid]:
    return [Laid(tf.squeeze(data, 2) if rank == 3 else data, channels_last(rank))]


def _conv(node: Node, inputs: Inputs) -> list[Laid]:
    x, weight = required(inputs, 2)
    data = _spatial(node, x)
    window = _window(node, weight.dims[2:], x.dims[2:])
    kernel = weight.laid((*range(2, weight.rank), 1, 0))  # spatial axes, input channels of a group, output channels
    kernel = tf.expand_dims(kernel, 1) if weight.rank == 3 else kernel
    space = [int(size) for size in data.shape[1:3]]
    padding = "VALID" if not window.padded else "SAME" if window.is_same(space) else window.around()
    groups = node.attribute("group", 1)
    if groups == x.dims[1] > 1 and len(set(window.strides)) == 1 and window.dilations == (1, 1):
        multiplier = weight.dims[0] // groups
        filters = tf.reshape(kernel, [*kernel.shape[:2], groups, multiplier])
        if isinstance(padding, list):  # with a bias fused into it, TensorFlow 2.21 aborts the process
            data, padding = tf.pad(data, padding), "VALID"
        found = tf.nn.depthwise_conv2d(data, filters, [1, *window.strides, 1], padding)
    else:
        found = tf.nn.conv2d(data, kernel, window.strides, padding, dilations=window.dilations)
    bias = inputs[2] if len(inputs) > 2 else None
    return _result(found if bias is None else tf.nn.bias_add(found, bias.plain()), x.rank)


def _conv_transpose(node: Node, inputs: Inputs) -> list[Laid]:
    x, weight = required(inputs, 2)
    given = {name: node.attribute(name, default) for name, default in (("group", 1), ("auto_pad", "NOTSET"))}
    dilated = any(step != 1 for step in node.attribute("dilations", []))
    if x.rank != 4 or given != {"group": 1, "auto_pad": "NOTSET"} or node.attribute("output_shape", None) or dilated:
        raise node.unsupported("groups, dilations, automatic pads, or another number of axes than two")
    strides, pads = node.attribute("strides", [1, 1]), node.attribute("pads", [0] * 4)
    extra = node.attribute("output_padding", [0, 0])
    axes = zip(x.dims[2:], strides, weight.dims[2:], extra, strict=True)
    sizes = [(size - 1) * stride + extent + more for size, stride, extent, more in axes]
    kernel, data = weight.laid((2, 3, 1, 0)), x.laid(channels_last(4))
    whole = tf.nn.conv2d_transpose(data, kernel, [x.dims[0], *sizes, weight.dims[1]], strides, "VALID")
    found = whole[:, pads[0] : sizes[0] - pads[2], pads[1] : sizes[1] - pads[3]]
    bias = inputs[2] if len(inputs) > 2 else None
    return _result(found if bias is None else tf.nn.bias_add(found, bias.plain()), x.rank)


def _max_pool(node: Node, inputs: Inputs) -> list[Laid]:
    if len(node.proto.output) > 1:
        raise node.unsupported("the indices")
    (x,) = required(inputs)
    data = _spatial(node, x)
    window = _pool_window(node, x)
    if not window.padded or window.is_same(data.shape[1:3]):
        padding = "SAME" if window.padded else "VALID"
        return _result(tf.nn.max_pool2d(data, window.kernel, window.strides, padding), x.rank)
    lowest = tf.as_dtype(data.dtype).min if tf.as_dtype(data.dtype).is_integer else -np.inf
    padded = tf.pad(data, window.around(), constant_values=tf.cast(lowest, data.dtype))  # XLA cannot pad pools
    return _result(tf.nn.max_pool2d(padded, window.kernel, window.strides, "VALID"), x.rank)


def _average_pool(node: Node, inputs: Inputs) -> list[Laid]:
    (x,) = required(inputs)
    data = _spatial(node, x)
    window = _pool_window(node, x)
    if not window.padded:
        return _result(tf.nn.avg_pool2d(data, window.kernel, window.strides, "VALID"), x.rank)
    if window.is_same(data.shape[1:3]) and not node.attribute("count_include_pad", 0):
        return _result(tf.nn.avg_pool2d(data, window.kernel, window.strides, "SAME"), x.rank)
    padded = tf.pad(data, window.around())
    means = tf.nn.avg_pool2d(padded, window.kernel, window.strides, "VALID")
    counted = _counted(node, window, [int(size) for size in data.shape[1:3]])
    return _result(means if (counted == 1).all() else means * tf.cast(1 / counted, means.dtype), x.rank)


def _counted(node: Node, window: Window, space: Sequence[int]) -> np.ndarray:
    """Returns the fraction of each window's elements that ONNX counts in the divisor: [1, rows, columns, 1]."""
    counted = window.counted if node.attribute("count_include_pad", 0) else [(0, 0)] * 2
    rest = [(all_[0] - own[0], all_[1] - own[1]) for all_, own in zip(window.pads, counted, strict=True)]
    ones = np.pad(np.pad(np.ones(space), counted, constant_values=1), rest)
    views = np.lib.stride_tricks.sliding_window_view(ones, window.kernel)
    counts: np.ndarray = views[:: window.strides[0], :: window.strides[1]].mean(axis=(2, 3))
    return counts[np.newaxis, :, :, np.newaxis]


def _pool_window(node: Node, x: Laid) -> Window:
    window = _window(node, node.attribute("kernel_shape"), x.dims[2:])
    if window.dilations != (1, 1):
        raise node.unsupported("dilations")
    return window


def _global_pool(function: Callable[..., Any]) -> Operator:
    def build(node: Node, inputs: Inputs) -> list[Laid]:
        (x,) = required(inputs)
        return [Laid(function(x.laid(x.order), axis=x.places(plain(x.rank)[2:]), keepdims=True), x.order)]

    return build


WINDOWS: dict[str, Operator] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_pool(tf.reduce_mean),
    "GlobalMaxPool": _global_pool(tf.reduce_max),
    "MaxPool": _max_pool,
}
