"""Values with their axes in an order of our own choosing.

TensorFlow convolves on CPUs with channels last, ONNX knows channels first only. So a value remembers in which order its
axes lie, and is turned round where an operator needs another order, instead of before and after each convolution.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

Order = tuple[int, ...]
"""The ONNX axis that lies at each place."""

LARGEST_EMBEDDED = 1 << 16
"""Bytes up to which a constant becomes part of the function, where both compilers can fold it. Larger ones are handed
to the function as tensors: as constants, BERT-Base's took 7.5 GB to optimise instead of 2.4, and were no faster."""


def plain(rank: int) -> Order:
    """As ONNX has it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Batch, space, channels."""
    return (0, *range(2, rank), 1)


class Laid:
    """An ONNX value: a constant array, or a tensor of the function that is being built.

    Attributes:
      data: with its axes in `order`.
      order: the ONNX axis that each axis of `data` is.
      embedded: whether a large constant becomes part of the function all the same.
    """

    def __init__(self, data: np.ndarray | tf.Tensor, order: Order | None = None, *, embedded: bool = False) -> None:
        self.data, self.embedded = data, embedded
        self.order = plain(len(data.shape)) if order is None else order
        self._tensors: dict[Order, tf.Tensor] = {}

    @property
    def is_constant(self) -> bool:
        return isinstance(self.data, np.ndarray)

    @property
    def rank(self) -> int:
        return len(self.order)

    @property
    def dims(self) -> list[int]:
        """Of the ONNX value."""
        return [int(self.data.shape[self.order.index(axis)]) for axis in range(self.rank)]

    @property
    def array(self) -> np.ndarray:
        """Of a constant, as ONNX has it."""
        return np.transpose(self.data, np.argsort(self.order))

    def place(self, axis: int) -> int:
        """Where an ONNX axis lies, which may count from the end."""
        return self.order.index(axis % self.rank)

    def places(self, axes: Sequence[int]) -> list[int]:
        return [self.place(axis) for axis in axes]

    def plain(self) -> np.ndarray | tf.Tensor:
        """In ONNX's order."""
        return self.laid(plain(self.rank))

    def laid(self, order: Order) -> np.ndarray | tf.Tensor:
        """In a given order; of a constant that is used several times the function gets one copy."""
        if tf.executing_eagerly():
            return turned(self.data, self.order, order)
        if order not in self._tensors:
            data = turned(self.data, self.order, order)
            with tf.init_scope() if self._is_handed_over else contextlib.nullcontext():
                self._tensors[order] = tf.convert_to_tensor(data)
        return self._tensors[order]

    @property
    def _is_handed_over(self) -> bool:
        return self.is_constant and not self.embedded and self.data.nbytes > LARGEST_EMBEDDED


def turned(data: np.ndarray | tf.Tensor, order: Order, wanted: Order) -> np.ndarray | tf.Tensor:
    """`data` with its axes in another order."""
    if order == wanted:
        return data
    permutation = [order.index(axis) for axis in wanted]
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(np.transpose(data, permutation))
    moved = [place for place in permutation if data.shape[place] != 1]
    if moved == sorted(moved):  # only axes of one element move: no data do
        return tf.reshape(data, [data.shape[place] for place in permutation])
    return tf.transpose(data, permutation)


def common_order(values: Sequence[Laid]) -> Order:
    """The order in which values meet: that of the largest that is not a constant, if possible one of our choosing."""
    rank = max(value.rank for value in values)
    orders = [value.order for value in values if value.rank == rank and not value.is_constant]
    return next((order for order in orders if order != plain(rank)), plain(rank))


def aligned(values: Sequence[Laid]) -> tuple[list[np.ndarray | tf.Tensor], Order]:
    """Values that are broadcast to one another, in one order; smaller ones get the axes that they lack."""
    order = common_order(values)
    return [_broadcastable(value, order) for value in values], order


def _broadcastable(value: Laid, order: Order) -> np.ndarray | tf.Tensor:
    if value.rank == len(order):
        return value.laid(order)
    if order == plain(len(order)) or not value.rank:
        return value.plain()
    dims = [1] * (len(order) - value.rank) + value.dims
    whole = value.array.reshape(dims) if value.is_constant else tf.reshape(value.plain(), dims)
    return turned(whole, plain(len(order)), order)
