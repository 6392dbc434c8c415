"""Convolutions and pools with strides, pads, dilations and groups, and the same functions in TensorFlow.

TensorFlow's convolutions on a CPU have their channels last and no groups or uneven pads. So the cases pad beforehand,
split channels into groups, and lay out what they give to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.environment.gradients.case import Case


def distinct(*dims: int, seed: int = 0) -> np.ndarray:
    """Returns numbers from -1 to 1, no two of which are closer than the step of finite differences allows."""
    count = int(np.prod(dims))
    return np.random.default_rng(seed).permutation(np.linspace(-1, 1, count)).reshape(dims).astype(np.float32)


def _last(x: Any) -> Any:
    """Moves channels behind the spatial axes."""
    return tf.transpose(x, [0, *range(2, len(x.shape)), 1])


def _first(x: Any) -> Any:
    return tf.transpose(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])


def _padded(x: Any, pads: Sequence[int], value: float = 0.0) -> Any:
    half = len(pads) // 2
    return tf.pad(x, [[0, 0], [0, 0], *zip(pads[:half], pads[half:], strict=True)], constant_values=value)


def conv(strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int) -> Callable[..., Any]:
    def function(x: Any, w: Any, b: Any = None) -> Any:
        axes = list(range(2, len(w.shape)))
        parts = zip(tf.split(_padded(x, pads), groups, 1), tf.split(w, groups, 0), strict=True)
        found = [
            tf.nn.convolution(_last(each), tf.transpose(kernel, [*axes, 1, 0]), strides, "VALID", dilations=dilations)
            for each, kernel in parts
        ]
        y = _first(tf.concat(found, -1))
        return y if b is None else y + tf.reshape(b, [1, -1, *[1] * len(axes)])

    return function


def _conv_case(
    dims: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    bias: bool = False,
) -> Case:
    x, w = distinct(*dims), distinct(*kernel, seed=1)
    operands = [x, w, distinct(kernel[0], seed=2)] if bias else [x, w]
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": groups}
    shape = "x".join(map(str, kernel))
    name = f"Conv-{shape}-on-{dims[2:]}-strides={strides}-pads={pads}-dilations={dilations}-groups={groups}-{bias}"
    return Case(name, "Conv", operands, conv(strides, pads, dilations, groups), attributes)


CONVOLUTIONS = [
    # TensorFlow has no convolutions with both strides and dilations; the finite differences check those as well.
    _conv_case((2, 4, 7, 8), (6, 4 // groups, 3, 2), strides=strides, pads=pads, dilations=dilations, groups=groups)
    for strides, dilations in (([1, 1], [1, 1]), ([2, 3], [1, 1]), ([1, 1], [2, 3]))
    for pads in ([0, 0, 0, 0], [1, 0, 2, 1])
    for groups in (1, 2)
] + [
    _conv_case((2, 4, 6, 6), (4, 1, 3, 3), strides=[1, 1], pads=[1] * 4, dilations=[1, 1], groups=4, bias=True),
    _conv_case((1, 3, 5, 5), (4, 3, 1, 1), strides=[1, 1], pads=[0] * 4, dilations=[1, 1], bias=True),
    _conv_case((1, 3, 8, 8), (4, 3, 1, 1), strides=[3, 3], pads=[0] * 4, dilations=[1, 1]),
    _conv_case((2, 3, 9), (4, 3, 3), strides=[2], pads=[1, 1], dilations=[1], bias=True),
    Case(
        "Conv-volume",
        "Conv",
        [distinct(1, 2, 4, 5, 6), distinct(3, 2, 2, 3, 2, seed=1)],
        lambda x, w: volume_conv(x, w),
        {"strides": [2] * 3, "pads": [0, 1, 0, 0, 1, 1]},
    ),
]

STRIDED_AND_DILATED = [
    Case(
        f"Conv-strides={strides}-dilations={dilations}-pads={pads}-groups={groups}",
        "Conv",
        [distinct(2, 4, 9, 10), distinct(6, 4 // groups, 3, 2, seed=1)],
        lambda x, w, s=strides, d=dilations, p=pads, g=groups: conv([1, 1], p, d, g)(x, w)[:, :, :: s[0], :: s[1]],
        {"strides": strides, "pads": pads, "dilations": dilations, "group": groups},
    )
    for strides, dilations, pads, groups in (
        ([2, 3], [2, 1], [0, 0, 0, 0], 1),
        ([3, 2], [2, 3], [1, 2, 0, 1], 2),
        ([4, 4], [1, 2], [1, 1, 1, 1], 1),
    )
]

AUTO_PADDED = [
    Case(
        f"Conv-{kind}-{strides}",
        "Conv",
        [distinct(1, 2, 6, 7), distinct(3, 2, 3, 2, seed=1)],
        lambda x, w, p=pads, s=strides: conv(s, p, [1, 1], 1)(x, w),
        {"auto_pad": kind, "strides": strides},
    )
    for kind, strides, pads in (
        ("SAME_UPPER", [2, 1], [0, 0, 1, 1]),
        ("SAME_LOWER", [2, 1], [1, 1, 0, 0]),
        ("VALID", [2, 2], [0, 0, 0, 0]),
    )
]


def transposed(strides: Sequence[int], pads: Sequence[int], extra: Sequence[int], groups: int) -> Callable[..., Any]:
    def function(x: Any, w: Any, b: Any = None) -> Any:
        found = []
        for each, kernel in zip(tf.split(x, groups, 1), tf.split(w, groups, 0), strict=True):
            sizes = [
                (size - 1) * stride + window + more
                for size, stride, window, more in zip(x.shape[2:], strides, w.shape[2:], extra, strict=True)
            ]
            whole = tf.nn.conv2d_transpose(
                _last(each), tf.transpose(kernel, [2, 3, 1, 0]), [x.shape[0], *sizes, w.shape[1]], strides, "VALID"
            )
            found.append(whole[:, pads[0] : sizes[0] - pads[2], pads[1] : sizes[1] - pads[3]])
        y = _first(tf.concat(found, -1))
        return y if b is None else y + b[:, None, None]

    return function


TRANSPOSED = [
    Case(
        f"ConvTranspose-strides={strides}-pads={pads}-padding={extra}-groups={groups}",
        "ConvTranspose",
        [distinct(2, 4, 3, 4), distinct(4, 3, 3, 2, seed=1), distinct(3 * groups, seed=2)],
        transposed(strides, pads, extra, groups),
        {"strides": strides, "pads": pads, "output_padding": extra, "group": groups},
    )
    for strides, pads, extra, groups in (
        ([1, 1], [0, 0, 0, 0], [0, 0], 1),
        ([2, 2], [0, 0, 0, 0], [0, 0], 1),
        ([2, 3], [1, 0, 0, 1], [1, 2], 1),
        ([2, 3], [1, 1, 1, 0], [0, 1], 2),
    )
]


def windows(
    x: Any, kernel: Sequence[int], strides: Sequence[int], counts: Sequence[int], dilations: Sequence[int]
) -> Any:
    """Returns the elements of each window of a padded map [batch, channels, *counts, elements], by slices."""
    found = []
    for places in itertools.product(*map(range, kernel)):
        starts = [place * dilation for place, dilation in zip(places, dilations, strict=True)]
        axes = zip(starts, counts, strides, strict=True)
        cuts = [slice(start, start + (count - 1) * stride + 1, stride) for start, count, stride in axes]
        found.append(x[(slice(None), slice(None), *cuts)])
    return tf.stack(found, -1)


def volume_conv(x: Any, w: Any) -> Any:
    """A three-dimensional convolution of stride 2 with pads; TensorFlow has no gradient of its own for it on a CPU."""
    padded, kernel = _padded(x, [0, 1, 0, 0, 1, 1]), w.shape[2:]
    counts = [(size - window) // 2 + 1 for size, window in zip(padded.shape[2:], kernel, strict=True)]
    read = windows(padded, kernel, [2] * 3, counts, [1] * 3)
    return tf.einsum("nc...e,oce->no...", read, tf.reshape(w, [*w.shape[:2], -1]))


def _pooled(
    dims: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any]
) -> tuple[list[int], list[int], list[int]]:
    """Returns the strides, the pads with which all windows fit, and the number of windows of a pool."""
    strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
    dilations, ceil = attributes.get("dilations", [1, 1]), attributes.get("ceil_mode", 0)
    counts, behind = [], []
    for axis in range(2):
        covered = (kernel[axis] - 1) * dilations[axis] + 1
        room = dims[2 + axis] + pads[axis] + pads[2 + axis] - covered
        count = -(-room // strides[axis]) + 1 if ceil else room // strides[axis] + 1
        if ceil and (count - 1) * strides[axis] >= dims[2 + axis] + pads[axis]:
            count -= 1
        counts.append(count)
        behind.append(max((count - 1) * strides[axis] + covered - dims[2 + axis] - pads[axis], 0))
    return strides, [*pads[:2], *behind], counts


def max_pool(dims: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any]) -> Callable[[Any], Any]:
    strides, pads, counts = _pooled(dims, kernel, attributes)
    dilations = attributes.get("dilations", [1, 1])

    def function(x: Any) -> Any:
        return tf.reduce_max(windows(_padded(x, pads, -1e9), kernel, strides, counts, dilations), -1)

    return function


def average_pool(dims: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any]) -> Callable[[Any], Any]:
    strides, pads, counts = _pooled(dims, kernel, attributes)
    given = attributes.get("pads", [0] * 4)

    def function(x: Any) -> Any:
        ones = tf.ones_like(x)
        if attributes.get("count_include_pad"):
            ones = _padded(ones, given, 1.0)
            ones = _padded(ones, [0, 0, max(pads[2] - given[2], 0), max(pads[3] - given[3], 0)])
        else:
            ones = _padded(ones, pads)
        total, members = (
            tf.reduce_sum(windows(each, kernel, strides, counts, [1, 1]), -1) for each in (_padded(x, pads), ones)
        )
        return total / members

    return function


POOLS = [
    Case(
        f"{op_type}-{kernel}-{attributes}",
        op_type,
        [distinct(2, 3, 6, 7) if op_type == "AveragePool" else distinct(1, 1, 6, 7)],
        make((0, 0, 6, 7), kernel, attributes),
        {"kernel_shape": kernel, **attributes},
    )
    for op_type, make, own in (
        ("MaxPool", max_pool, [{"dilations": [2, 1]}, {"storage_order": 1, "strides": [2, 2]}]),
        (
            "AveragePool",
            average_pool,
            [
                {"pads": [1, 1, 1, 1], "count_include_pad": 1},
                {"pads": [1, 0, 1, 1], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
            ],
        ),
    )
    for kernel, attributes in (
        ([2, 2], {"strides": [2, 2]}),
        ([3, 2], {"strides": [1, 1], "pads": [1, 0, 1, 1]}),
        ([2, 3], {"strides": [3, 2]}),
        ([3, 3], {"strides": [2, 2], "ceil_mode": 1}),
        *(([3, 2], each) for each in own),
    )
]
GLOBAL = [
    Case("GlobalAveragePool", "GlobalAveragePool", [distinct(2, 3, 4, 5)], lambda x: tf.reduce_mean(x, [2, 3], True)),
    Case("GlobalMaxPool", "GlobalMaxPool", [distinct(2, 3, 4)], lambda x: tf.reduce_max(x, 2, True)),
]
SPATIAL = [*CONVOLUTIONS, *STRIDED_AND_DILATED, *AUTO_PADDED, *TRANSPOSED, *POOLS, *GLOBAL]
