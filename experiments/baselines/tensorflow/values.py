"""The parts from which TensorFlow operators are built: values with their axes in any order, and ONNX nodes.

On CPUs, TensorFlow convolves with channels last, but ONNX only has channels first. A value therefore remembers the
order of its axes. It is transposed only if an operator needs another order, instead of around each convolution.
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
"""The ONNX axis at each position of the data."""

LARGEST_EMBEDDED = 1 << 16
"""Most bytes of a constant that becomes part of the function, where both compilers can fold it. Larger constants are
captured as tensors: as constants, those of BERT-Base took 7.5 GB to optimise instead of 2.4, and were no faster."""


def plain(rank: int) -> Order:
    """Returns the order of ONNX."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Returns the order batch, space, channels."""
    return (0, *range(2, rank), 1)


class Laid:
    """An ONNX value: a constant array, or a tensor of the function that is being built.

    Attributes:
      data: the array or tensor, with its axes in `order`.
      order: the ONNX axis of each axis of `data`.
      embedded: whether the value becomes part of the function even if it is a large constant.
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
        """The dims of the ONNX value, in ONNX's order."""
        return [int(self.data.shape[self.order.index(axis)]) for axis in range(self.rank)]

    @property
    def array(self) -> np.ndarray:
        """The array of a constant, with its axes in ONNX's order."""
        return np.transpose(self.data, np.argsort(self.order))

    def place(self, axis: int) -> int:
        """Returns the position of an ONNX axis in `data`; a negative axis counts from the end."""
        return self.order.index(axis % self.rank)

    def places(self, axes: Sequence[int]) -> list[int]:
        return [self.place(axis) for axis in axes]

    def plain(self) -> np.ndarray | tf.Tensor:
        """Returns the data in ONNX's order."""
        return self.laid(plain(self.rank))

    def laid(self, order: Order) -> np.ndarray | tf.Tensor:
        """Returns the data in a given order; the function gets one copy for each order, however often it is used."""
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
    """Returns `data`, whose axes lie in `order`, with its axes in the order `wanted`."""
    if order == wanted:
        return data
    permutation = [order.index(axis) for axis in wanted]
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(np.transpose(data, permutation))
    moved = [place for place in permutation if data.shape[place] != 1]
    if moved == sorted(moved):  # only axes of size 1 move, so the data stay in place
        return tf.reshape(data, [data.shape[place] for place in permutation])
    return tf.transpose(data, permutation)


def common_order(values: Sequence[Laid]) -> Order:
    """Returns the order for values that are combined.

    It is the order of a value of the largest rank that is no constant, preferably another one than ONNX's; or else
    ONNX's.
    """
    rank = max(value.rank for value in values)
    orders = [value.order for value in values if value.rank == rank and not value.is_constant]
    return next((order for order in orders if order != plain(rank)), plain(rank))


def aligned(values: Sequence[Laid]) -> tuple[list[np.ndarray | tf.Tensor], Order]:
    """Returns (values in one order, that order) for broadcasting; values of smaller rank get the axes they lack."""
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
"""The inputs of an operator; None stands for an optional input that is left out."""


class Node:
    """An ONNX node with its attributes."""

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self._attributes = {each.name: helper.get_attribute_value(each) for each in proto.attribute}

    def __str__(self) -> str:
        name = self.proto.name or self.proto.output[0]
        return f"the operator {self.proto.op_type} (node '{name}')"

    def attribute(self, name: str, default: Any = None) -> Any:
        """Returns the value of an attribute, decoded if it is a text; `default` if there is none."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def unsupported(self, what: str) -> ModelError:
        """Returns an error that says which part of this operator is not supported."""
        return ModelError(
            f"TensorFlow as a baseline knows the operators of the zoo, but not {what} of {self}. Leave TensorFlow out "
            f"for this model, or extend experiments/baselines."
        )

    def constant(self, inputs: Inputs, index: int, attribute: str = "", default: Any = None) -> np.ndarray | None:
        """Returns a parameter that TensorFlow has to know when the function is built.

        Args:
          index: index of the input that holds the parameter.
          attribute: name of the attribute that held it in older opsets.
          default: value if there is neither.
        Raises:
          ModelError: the parameter is computed from the inputs of the model.
        """
        value = inputs[index] if index < len(inputs) else None
        if value is None:
            found = self.attribute(attribute, default)
            return None if found is None else np.asarray(found)
        if not value.is_constant:
            raise self.unsupported(f"a computed {attribute or f'input {index}'}")
        return value.array

    def axes(self, inputs: Inputs, index: int, rank: int) -> list[int]:
        """Returns the sorted axes, from 0 on, of input `index` or the attribute "axes"; all axes if none are given."""
        found = self.constant(inputs, index, "axes")
        if found is None or not found.size:
            return list(range(rank))
        return sorted(int(axis) % rank for axis in found.reshape(-1))


Operator = Callable[[Node, Inputs], Sequence[Laid]]
"""Builds an operator: maps its node and the list of its inputs to the list of its outputs, both as ONNX lists them."""


def required(inputs: Inputs, count: int = 1) -> list[Laid]:
    """Returns the first `count` inputs, which every valid model has."""
    return [value for value in inputs[:count] if value is not None]
