"""What an entry of the table of gradients sees: an operator of the model, and the cotangents of its outputs.

The cotangent of a value is the derivative of the loss with respect to each of its elements; it has the value's shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from environment.gradients.expressions import Expressions
from environment.gradients.node_writer import NodeWriter
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import UNKNOWN, CheckedModel
from taso_ext.onnx_io.operators import bodies, is_random
from taso_ext.onnx_io.weights.handles import read_values

_LARGEST_EVALUATED = 1 << 20
"""The most elements of a constant that is looked at: shapes, axes and positions have far fewer."""


class Values:
    """The types of a model's values, and the constants among them."""

    def __init__(self, model: CheckedModel, variable: frozenset[str]) -> None:
        """Looks at a model; `variable` are the initializers that are no constants, because training changes them."""
        self._types = dict(model.types)
        self._producers = {name: node for node in model.skeleton.graph.node for name in node.output if name}
        self._tensors = {name: tensor for name, tensor in model.tensors.items() if name not in variable}
        self._opsets = list(model.skeleton.opset_import)
        self._known: dict[str, np.ndarray | None] = {}

    def dims(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a value.

        Raises:
          ModelError: it is not static.
        """
        dims = self._types.get(name, UNKNOWN).dims
        if dims is None:
            node = self._producers.get(name)
            kind = node and ".".join(filter(None, (node.domain, node.op_type)))
            origin = f"the result of the operator {kind} '{node.name}'" if node else "an input"
            raise ModelError(
                f"a training graph needs the shape of every value, but that of '{name}', {origin}, is not known. Give "
                "the sizes of symbolic dimensions with --dim NAME=SIZE."
            )
        return dims

    def dtype(self, name: str) -> np.dtype:
        """Returns the element type of a value."""
        return np.dtype(helper.tensor_dtype_to_np_dtype(self._types[name].dtype))

    def rename(self, name: str, other: str) -> None:
        """Declares a value `name` that takes the place of a value `other` of the model, and has its type."""
        if other in self._types:
            self._types[name] = self._types[other]

    def is_float(self, name: str) -> bool:
        """Returns whether a value is a tensor of floats, which can have a gradient."""
        kind = self._types.get(name, UNKNOWN).dtype
        return kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)

    def constant(self, name: str) -> np.ndarray | None:
        """Returns the elements of a value that does not depend on inputs or weights; None if it does."""
        if name not in self._known:
            self._known[name] = self._evaluated(name)
        return self._known[name]

    def _evaluated(self, name: str) -> np.ndarray | None:
        tensor, node = self._tensors.get(name), self._producers.get(name)
        if tensor is not None:
            return read_values(name, tensor) if tensor.size <= _LARGEST_EVALUATED else None
        if node is None or is_random(node.op_type, node.domain, node.input) or any(bodies(node)):
            return None
        dims = self._types.get(node.input[0], UNKNOWN).dims if node.input else None
        if node.op_type == "Shape" and dims is not None:
            start, end = (next((a.i for a in node.attribute if a.name == each), None) for each in ("start", "end"))
            return np.array(dims[start:end], np.int64)
        size = self._types.get(name, UNKNOWN).dims
        if size is None or math.prod(size) > _LARGEST_EVALUATED:
            return None
        operands = {each: self.constant(each) for each in node.input if each}
        if any(value is None for value in operands.values()):
            return None
        alone = helper.make_model(_graph_of(node), opset_imports=self._opsets)
        (value,) = ReferenceEvaluator(alone).run([name], operands)
        return np.asarray(value)


def _graph_of(node: onnx.NodeProto) -> onnx.GraphProto:
    """Returns a graph of one node, with inputs and outputs of any type."""
    taken = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name]
    return helper.make_graph([node], "constant", taken, [onnx.ValueInfoProto(name=name) for name in node.output])


@dataclass(frozen=True)
class Operation(Expressions):
    """A node of the forward pass, with functions that write what its gradient consists of.

    The usual type of what it writes is that of its first output.

    Attributes:
      node: the node as the forward pass has it.
      values: types and constants of the model.
      cotangents: the cotangents of its outputs; None if the loss does not depend on an output.
      saved: what the forward pass computed for the gradient alone, such as the positions of maxima, by name.
    """

    node: onnx.NodeProto
    values: Values
    cotangents: Sequence[str | None] = ()
    saved: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: onnx.NodeProto, values: Values, writer: NodeWriter) -> Operation:
        """Returns the view of a node of the model; its cotangents are not known yet."""
        name = node.name or node.output[0]
        dtype = values.dtype(node.output[0]) if values.is_float(node.output[0]) else np.dtype(np.float32)
        return cls(writer, f"/training{'' if name.startswith('/') else '/'}{name}", dtype, node, values)

    @property
    def inputs(self) -> list[str]:
        return list(self.node.input)

    @property
    def x(self) -> str:
        """The first input."""
        return self.node.input[0]

    @property
    def y(self) -> str:
        """The first output."""
        return self.node.output[0]

    @property
    def cotangent(self) -> str:
        """The cotangent of the first output."""
        return self.cotangent_of(0)

    def cotangent_of(self, port: int) -> str:
        """Returns the cotangent of an output: zeros if the loss does not depend on it."""
        known = self.cotangents[port] if port < len(self.cotangents) else None
        return known or self.filled(0, self.dims(self.node.output[port]))

    def has(self, position: int) -> bool:
        """Returns whether an optional input is given."""
        return position < len(self.node.input) and bool(self.node.input[position])

    def dims(self, name: str) -> tuple[int, ...]:
        return self.values.dims(name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Returns an attribute; what its operator's schema says if it is not given, else `default`."""
        for each in self.node.attribute:
            if each.name == name:
                value = helper.get_attribute_value(each)
                return value.decode() if isinstance(value, bytes) else value
        known = onnx.defs.get_schema(self.node.op_type, self.writer.opset, "").attributes.get(name)
        if known is None or known.default_value.type == onnx.AttributeProto.UNDEFINED:
            return default
        value = helper.get_attribute_value(known.default_value)
        return value.decode() if isinstance(value, bytes) else value

    def constant_input(self, position: int) -> np.ndarray | None:
        """Returns the elements of an input; None if it is not given.

        Raises:
          ModelError: it depends on inputs of the model.
        """
        if not self.has(position):
            return None
        value = self.values.constant(self.node.input[position])
        if value is None:
            raise self.refusal(f"its input '{self.node.input[position]}' is computed at run time")
        return value

    def refusal(self, reason: str) -> ModelError:
        """Returns the error for an operator whose gradient cannot be written."""
        name = self.node.name or self.y
        return ModelError(
            f"the gradient of the operator {self.node.op_type} '{name}' cannot be written: {reason}. Export the model "
            "with another form of this operator, or train only weights behind it (--train PATTERN)."
        )
