"""A kernel: an operator as a runtime runs it, with the types of its inputs; and its signature as text."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from taso_ext.errors import ModelError
from taso_ext.onnx_io.operators import bodies, captured_names, rename_captured
from taso_ext.onnx_io.weights.handles import nbytes

LARGEST_LITERAL = 64
"""Largest number of elements of an integer constant whose values belong to a kernel: shapes, axes, paddings."""
LARGEST_FLOAT_LITERAL = 4
"""The same for other numbers: bounds and scales, but no weights."""


@dataclass(frozen=True)
class Operand:
    """One input of a kernel.

    Attributes:
      dtype: element type as a TensorProto enum.
      dims: shape of the tensor.
      constant: whether it is known before the first run, so that the runtime may have packed it.
      values: values of a small constant, in row-major order.
    """

    dtype: int
    dims: tuple[int, ...]
    constant: bool = False
    values: tuple[float, ...] | None = None

    @property
    def is_weight(self) -> bool:
        """Whether it is a constant that has to come from memory."""
        return self.constant and self.values is None

    @property
    def description(self) -> str:
        """A text such as `float 1x64x56x56`, `weight float 64x64x3x3` or `constant int64 2`."""
        role = "weight " if self.is_weight else "constant " if self.constant else ""
        kind = helper.tensor_dtype_to_string(self.dtype).rpartition(".")[2].lower()
        return f"{role}{kind} {'x'.join(str(dim) for dim in self.dims) or 'scalar'}"

    @property
    def nbytes(self) -> int:
        """Size of the tensor; a text counts as a pointer."""
        if self.dtype == TensorProto.STRING:
            return 8 * math.prod(self.dims)
        return nbytes(ir.DataType(self.dtype), self.dims)


@dataclass(frozen=True)
class Kernel:
    """An operator as a runtime runs it; kernels with one signature take the same time.

    Attributes:
      domain, op_type: name of the operator; the domain may be one of the runtime's own.
      version: first version of the domain that has the operator in this form; the model's version if the operator runs
        graphs of its own, because that also decides what their operators mean.
      attributes: attributes by name, as JSON text.
      operands: inputs, None for an optional one that is left out; then the outer values that its graphs read, which
        are called captured0, captured1, … there.
      results: which outputs are used, by position.
    """

    domain: str
    op_type: str
    version: int
    attributes: str
    operands: tuple[Operand | None, ...]
    results: tuple[bool, ...]

    def node(self, inputs: Sequence[str], outputs: Sequence[str], name: str) -> onnx.NodeProto:
        """Returns a node that runs the kernel, given the name of each operand."""
        node = helper.make_node(self.op_type, [], outputs, name=name, domain=self.domain)
        node.attribute.extend(attributes_of(self.attributes))
        num_inputs = len(inputs) - len(captured_names(node))
        node.input.extend(inputs[:num_inputs])
        names = {captured(index): outer for index, outer in enumerate(inputs[num_inputs:])}
        for body in bodies(node):
            rename_captured(body, names)
        return node

    @property
    def signature(self) -> str:
        """Everything that the run time depends on, as JSON text."""
        operands = [each and [each.dtype, each.dims, each.constant, each.values] for each in self.operands]
        attributes = json.loads(self.attributes)
        parts = [self.domain, self.op_type, self.version, attributes, operands, self.results]
        return json.dumps(parts, separators=(",", ":"))

    @property
    def description(self) -> str:
        """Operator and operands for a reader, for example `MatMul(float 128x768, weight float 768x768)`."""
        name = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{name}({', '.join(each.description if each else '-' for each in self.operands)})"

    @classmethod
    def of_signature(cls, text: str) -> Kernel:
        """Returns the kernel of a signature."""
        domain, op_type, version, attributes, operands, results = json.loads(text)
        return cls(
            domain,
            op_type,
            version,
            json.dumps(attributes, sort_keys=True),
            tuple(each and _operand(*each) for each in operands),
            tuple(results),
        )


def captured(index: int) -> str:
    """Returns the name by which a kernel's graphs read their outer value number `index`."""
    return f"captured{index}"


def untimeable(op_type: str, reason: str) -> ModelError:
    """Returns the error of an operator whose kernel cannot be timed alone.

    Args:
      reason: a predicate that says why, such as "reads text".
    """
    return ModelError(
        f"The operator {op_type} {reason}, and cannot be timed alone. Price whole graphs instead, by the cost model "
        f"endtoend:<device>, for example --costs endtoend:cpu."
    )


def _operand(dtype: int, dims: Sequence[int], constant: bool, values: Sequence[float] | None) -> Operand:
    return Operand(dtype, tuple(dims), constant, None if values is None else tuple(values))


def attributes_text(attributes: Sequence[onnx.AttributeProto]) -> str:
    """Returns attributes as JSON: numbers, lists of numbers and texts as such, all others serialised in base 64."""
    return json.dumps({each.name: _plain(each) for each in attributes}, sort_keys=True)


def attributes_of(text: str) -> list[onnx.AttributeProto]:
    """Returns the attributes of a text: the inverse of `attributes_text`."""
    return [_attribute(name, value) for name, value in json.loads(text).items()]


def _plain(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.STRING:
        return value.decode()
    if attribute.type in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT):
        return value
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) and value:  # an empty list has no type
        return list(value)
    return {"proto": base64.b64encode(attribute.SerializeToString(deterministic=True)).decode()}


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, dict):
        return onnx.AttributeProto.FromString(base64.b64decode(value["proto"]))
    return helper.make_attribute(name, value)
