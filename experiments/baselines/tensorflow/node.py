"""One ONNX operator, as the conversion to TensorFlow reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from experiments.baselines.tensorflow.laid_out import Laid
from taso_ext.errors import ModelError

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
