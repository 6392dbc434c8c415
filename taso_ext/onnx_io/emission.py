"""The conversion of engine nodes to ONNX nodes, with the names of their values and the constants that they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx

from taso_ext._core import Node, Value
from taso_ext.onnx_io.canonical.form import RAW_DOMAIN
from taso_ext.onnx_io.canonical.lifting import has_normal_form
from taso_ext.onnx_io.canonical.lowering import NormalNode, is_constant, lower
from taso_ext.onnx_io.checked_model import UNKNOWN, ValueType
from taso_ext.onnx_io.importing import AttributeStore
from taso_ext.onnx_io.operators import bodies, captured_names, fresh_name, rename_captured
from taso_ext.onnx_io.opsets import raised


class ValueNames:
    """The names of the values of a graph: each value has one name, and no two values have the same.

    Attributes:
      copies: (output position, value) of each output whose value already has another name; it needs an Identity.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, str]],
        outputs: Sequence[tuple[int, str]],
        fixed: Collection[int],
        reserved: Iterable[str],
    ) -> None:
        """Names inputs and outputs.

        Args:
          inputs, outputs: (value, original name) in order.
          fixed: values that are not computed by a node of the exported graph (weights, folded values).
          reserved: names that graphs inside nodes use for their own values.
        """
        self._names = dict(inputs)
        self._used = {name for _, name in (*inputs, *outputs)} | set(reserved)
        self.copies: list[tuple[int, int]] = []
        for position, (value, name) in enumerate(outputs):
            if value not in self._names and value not in fixed:
                self._names[value] = name
            elif self._names.get(value) != name:
                self.copies.append((position, value))

    def of(self, value: int, wanted: str) -> str:
        """Returns the name of a value. A value without a name gets `wanted`, or a similar name if that is in use."""
        if value not in self._names:
            self._names[value] = self.fresh_name(wanted or f"value_{value}")
        return self._names[value]

    def fresh_name(self, hint: str) -> str:
        """Returns an unused name: `hint`, or `hint` with a number."""
        return fresh_name(hint, self._used)


class Emission:
    """A growing list of ONNX nodes together with the weights and the new constants that they read.

    Attributes:
      nodes: the nodes so far, in the order in which they were added, in the requested opset.
      weights: handles of the weights that the nodes read, by name.
      constants: constants that lowering created, by name.
    """

    def __init__(
        self,
        values: Mapping[int, Value],
        names: ValueNames,
        attributes: AttributeStore,
        opset: int,
        original_opset: int,
    ) -> None:
        self._values, self._names, self._attributes, self._opset = values, names, attributes, opset
        self._original_opset = original_opset
        self._known_constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, str] = {}
        self.constants: dict[str, np.ndarray] = {}

    def add(self, node: Node) -> None:
        """Appends the ONNX nodes that compute an engine node."""
        if node.domain == "" and (has_normal_form(node.op_type) or is_constant(node)):
            self.nodes += lower(self._normal_node(node), self._opset, self)
        else:
            types = [self.type_of(value) for value in node.inputs], [self.type_of(value) for value in node.outputs]
            proto = self._as_it_is(node)
            self.nodes += raised(proto, self._original_opset, self._opset, types, self.fresh_name)

    def name(self, value: int) -> str:
        """Returns the exported name of a value that a node reads or writes; "" for an absent one."""
        if value < 0:
            return ""
        view = self._values[value]
        name = self._names.of(value, view.name)
        if view.handle is not None:
            self.weights[name] = view.handle
        return name

    def constant(self, array: np.ndarray, hint: str) -> str:
        """Returns the name of an initializer with these values; equal ones are shared."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._known_constants:
            self._known_constants[key] = name = self._names.fresh_name(hint)
            self.constants[name] = array
        return self._known_constants[key]

    def fresh_name(self, hint: str) -> str:
        """Returns an unused value name."""
        return self._names.fresh_name(hint)

    def type_of(self, value: int) -> ValueType:
        if value < 0:
            return UNKNOWN
        view = self._values[value]
        return ValueType(view.dtype, None if view.dims is None else tuple(view.dims))

    def _normal_node(self, node: Node) -> NormalNode:
        return NormalNode(
            node.op_type,
            node.attributes,
            [self.name(value) for value in node.inputs],
            [self.name(value) for value in node.outputs],
            [self.type_of(value) for value in node.inputs],
            node.name,
        )

    def _is_absent(self, output: int) -> bool:
        """Returns whether an optional output is left out: it has no name, and unlike a rewrite's values no type."""
        return not self._values[output].name and not self._values[output].dtype

    def _as_it_is(self, node: Node) -> onnx.NodeProto:
        proto = onnx.NodeProto(op_type=node.op_type, name=node.name)
        proto.domain = "" if node.domain == RAW_DOMAIN else node.domain
        proto.attribute.extend(self._attributes.decode(name, value) for name, value in node.attributes.items())
        captured = captured_names(proto)
        operands = [self.name(value) for value in node.inputs]
        inner = operands[len(operands) - len(captured) :]
        for body in bodies(proto):
            rename_captured(body, dict(zip(captured, inner, strict=True)))
        proto.input.extend(operands[: len(operands) - len(captured)])
        proto.output.extend("" if self._is_absent(value) else self.name(value) for value in node.outputs)
        return proto
