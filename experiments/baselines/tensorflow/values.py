"""What operators of TensorFlow are built from: values with their axes in an order of our choosing, and the ONNX node.

TensorFlow convolves on CPUs with channels last, ONNX knows channels first only. So a value remembers in which order its
axes lie, and is transposed where an operator needs another order, instead of before and after each convolution.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import helper

from taso_ext.errors import ModelError

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


Inputs = Sequence[Laid | None]
"""None stands for an optional input that is left out."""


class Node:
    """An operator with its attributes."""

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self._attributes = {each.name: helper.get_attribute_value(each) for each in proto.attribute}

    def __str__(self) -> str:
        name = self.proto.name or self.proto.output[0]
        return f"the operator {self.proto.op_type} (node '{name}')"

    def attribute(self, name: str, default: Any = None) -> Any:
        """Its value; texts as such."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def unsupported(self, what: str) -> ModelError:
        """An error that says what of this operator TensorFlow cannot be given."""
        return ModelError(
            f"TensorFlow as a baseline knows the operators of the zoo, but not {what} of {self}. Leave TensorFlow out "
            f"for this model, or extend experiments/baselines."
        )

    def constant(self, inputs: Inputs, index: int, attribute: str = "", default: Any = None) -> np.ndarray | None:
        """A parameter that TensorFlow has to know beforehand.

        Args:
          index: of the input that holds it.
          attribute: that held it in older opsets.
        Raises:
          ModelError: it is computed from the inputs of the model.
        """
        value = inputs[index] if index < len(inputs) else None
        if value is None:
            found = self.attribute(attribute, default)
            return None if found is None else np.asarray(found)
        if not value.is_constant:
            raise self.unsupported(f"a computed {attribute or f'input {index}'}")
        return value.array

    def axes(self, inputs: Inputs, index: int, rank: int) -> list[int]:
        """The axes of an input or attribute, from 0 on; all of them where none are given."""
        found = self.constant(inputs, index, "axes")
        if found is None or not found.size:
            return list(range(rank))
        return sorted(int(axis) % rank for axis in found.reshape(-1))


Operator = Callable[[Node, Inputs], Sequence[Laid]]
"""Builds an operator: its inputs in ONNX's order, its outputs likewise."""


def required(inputs: Inputs, count: int = 1) -> list[Laid]:
    """The first inputs, which a valid model has."""
    return [value for value in inputs[:count] if value is not None]
