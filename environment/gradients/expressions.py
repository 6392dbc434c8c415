"""Formulas over tensors, written as nodes of a training graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from environment.gradients.node_writer import NodeWriter


@dataclass(frozen=True)
class Expressions:
    """Functions that write one node, or a few, and return the name of the value that they compute.

    Attributes:
      writer: the graph that grows.
      scope: the beginning of the names of the nodes.
      dtype: the usual type: that of numbers and of tensors of one repeated value.
    """

    writer: NodeWriter
    scope: str
    dtype: np.dtype

    def write(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Writes a node with one output and returns the name of its value."""
        return self.write_several(op_type, 1, *inputs, **attributes)[0]

    def write_several(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Writes a node with several outputs and returns their names."""
        return self.writer.write(op_type, inputs, scope=self.scope, outputs=outputs, **attributes)

    def number(self, value: float) -> str:
        """Writes a scalar of the usual type."""
        return self.writer.constant(value, self.dtype)

    def integers(self, values: Sequence[int]) -> str:
        """Writes a vector of 64-bit integers: a shape, axes or positions."""
        return self.writer.constant(list(values), np.int64)

    def scaled(self, value: str, factor: float) -> str:
        """Returns `factor` times a value."""
        return value if factor == 1 else self.write("Mul", value, self.number(factor))

    def reshaped(self, value: str, dims: Sequence[int]) -> str:
        return self.write("Reshape", value, self.integers(dims))

    def expanded(self, value: str, dims: Sequence[int]) -> str:
        return self.write("Expand", value, self.integers(dims))

    def transposed(self, value: str, order: Sequence[int]) -> str:
        return value if list(order) == list(range(len(order))) else self.write("Transpose", value, perm=list(order))

    def filled(self, value: float, dims: Sequence[int]) -> str:
        """Writes a tensor of one repeated value."""
        tensor = numpy_helper.from_array(np.full(1, value, self.dtype))
        return self.write("ConstantOfShape", self.integers(dims), value=tensor)

    def total(self, value: str, axes: Sequence[int], *, keep: bool = False) -> str:
        """Returns the sum over some axes; `keep` leaves them with size 1."""
        return self.write("ReduceSum", value, self.integers(axes), keepdims=int(keep)) if axes else value

    def mean(self, value: str, axes: Sequence[int], *, keep: bool = False) -> str:
        """Returns the mean over some axes; `keep` leaves them with size 1."""
        return self.write("ReduceMean", value, self.integers(axes), keepdims=int(keep)) if axes else value

    def summed_to(self, value: str, given: Sequence[int], wanted: Sequence[int]) -> str:
        """Returns the sum of a value of shape `given` over the axes along which shape `wanted` was broadcast to it."""
        if tuple(given) == tuple(wanted):
            return value
        extra = len(given) - len(wanted)
        pairs = zip(given[extra:], wanted, strict=True)
        spread = [extra + axis for axis, (size, own) in enumerate(pairs) if own == 1 != size]
        if not spread:
            return self.total(value, list(range(extra)))
        result = self.total(value, [*range(extra), *spread], keep=True)
        return self.reshaped(result, wanted) if extra else result

    def parts(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Returns consecutive parts of a value along an axis."""
        return self.write_several("Split", len(sizes), value, self.integers(sizes), axis=axis)
