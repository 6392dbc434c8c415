"""The import of a cleaned ONNX model: the engine's graph, with operators in normal form."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import AttributeProto, helper

from taso_ext._core import Graph, GraphBuilder
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.canonical.form import RAW_DOMAIN, Attribute, RawNode
from taso_ext.onnx_io.canonical.lifting import has_normal_form, lift
from taso_ext.onnx_io.checked_model import LARGEST_INLINE, UNKNOWN, CheckedModel, ValueType
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies, captured_names, is_random
from taso_ext.onnx_io.weights.content import content_of
from taso_ext.onnx_io.weights.handles import content_handle, lazy_tensor, read_values, static_dims

_ABSENT = -1


class AttributeStore:
    """A store of the attributes that the engine does not look into (tensors, graphs, types …), by their digests."""

    def __init__(self) -> None:
        self._kept: dict[bytes, AttributeProto] = {}

    def encode(self, attribute: AttributeProto) -> Attribute:
        """Returns the attribute as the engine holds it: its value, or its digest if it is stored here."""
        plain = _plain_value(attribute)
        if plain is not None:
            return plain
        digest = hashlib.sha256(attribute.SerializeToString(deterministic=True)).digest()[:16]
        self._kept[digest] = attribute
        return digest

    def decode(self, name: str, value: Attribute) -> AttributeProto:
        """Returns the ONNX attribute that a value stands for."""
        if not isinstance(value, bytes):
            return helper.make_attribute(name, value)
        attribute = AttributeProto()
        attribute.CopyFrom(self._kept[value])
        return attribute


@dataclass
class Imported:
    """The engine's graph, and the parts of the model that the engine does not hold.

    Attributes:
      tensors: weights by handle (content hash); their values are read when they are needed.
      attributes: the attributes that digests in the graph stand for.
      nodes: the model's nodes by name, for documentation and metadata; names that occur twice are missing.
    """

    graph: Graph
    tensors: dict[str, ir.TensorProtocol]
    attributes: AttributeStore
    nodes: dict[str, onnx.NodeProto] = field(default_factory=dict)


def import_model(model: CheckedModel) -> Imported:
    """Builds the engine's graph of a cleaned model.

    Raises:
      ModelError: the engine refuses the model, or the data of a weight do not fit its shape.
    """
    importer = _Importer(model)
    try:
        return importer.run()
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(f"the engine cannot hold this model: {error}") from error


class _Importer:
    def __init__(self, model: CheckedModel) -> None:
        self.model = model
        self.types = dict(model.types)  # types of constants join them as they are met
        self.builder = GraphBuilder()
        self.attributes = AttributeStore()
        self.constants = dict(model.tensors)  # Constant nodes join them as they are met
        self.tensors: dict[str, ir.TensorProtocol] = {}
        self.weights: dict[str, int] = {}  # by handle
        self.values: dict[str, int] = {}

    def run(self) -> Imported:
        graph = self.model.skeleton.graph
        for value in graph.input:
            self.values[value.name] = self.builder.input(value.name, *self.engine_type(value.name))
        for node in graph.node:
            self.add(node)
        for output in graph.output:
            self.builder.output(self.value(output.name))
        return Imported(self.builder.build(), self.tensors, self.attributes, _uniquely_named(graph.node))

    def value(self, name: str) -> int:
        """Returns the engine's id of a value; a constant becomes a weight when it is first used."""
        if not name:
            return _ABSENT
        if name not in self.values:
            if name not in self.constants:
                raise ModelError(f"the model reads a value '{name}' that no node, input or initializer provides.")
            self.values[name] = self.weight(name, self.constants[name])
        return self.values[name]

    def weight(self, name: str, tensor: ir.TensorProtocol) -> int:
        handle = content_handle(name, tensor)
        if handle not in self.weights:
            self.tensors[handle] = tensor
            self.weights[handle] = self.builder.weight(
                name, handle, tensor.dtype.value, list(static_dims(tensor)), content_of(name, tensor)
            )
        return self.weights[handle]

    def add(self, node: onnx.NodeProto) -> None:
        standard = node.domain in DEFAULT_DOMAINS
        if standard and node.op_type == "Constant":
            constant = _constant_tensor(node)
            if constant is not None:
                self.constants[node.output[0]] = constant
                self.types[node.output[0]] = ValueType(constant.dtype.value, static_dims(constant))
                return
        if standard and node.op_type == "Identity":
            self.values[node.output[0]] = self.value(node.input[0])
            return
        self.add_operator(node, standard)

    def add_operator(self, node: onnx.NodeProto, standard: bool) -> None:
        inputs, outputs = _without_trailing_absent(node.input), _without_trailing_absent(node.output)
        attributes = {each.name: self.attributes.encode(each) for each in node.attribute}
        domain = "" if standard else node.domain
        op_type = node.op_type
        lifted = lift(self.raw_node(node.op_type, attributes, inputs, outputs)) if standard else None
        if lifted is not None:
            op_type, attributes = lifted.op_type, lifted.attributes
            inputs = [inputs[position] for position in lifted.inputs]
        elif standard and has_normal_form(op_type):
            domain = RAW_DOMAIN
        operands = [self.value(name) for name in (*inputs, *captured_names(node))]
        results = [(name, *self.engine_type(name)) for name in outputs]
        ids = self.builder.node(
            domain, op_type, attributes, operands, results, node.name, self.must_stay_at_run_time(node)
        )
        self.values |= {name: value for name, value in zip(outputs, ids, strict=True) if name}

    def raw_node(
        self, op_type: str, attributes: dict[str, Attribute], inputs: Sequence[str], outputs: Sequence[str]
    ) -> RawNode:
        small = {
            position: read_values(name, self.constants[name])
            for position, name in enumerate(inputs)
            if name in self.constants and self.constants[name].size <= LARGEST_INLINE
        }
        return RawNode(
            op_type,
            self.model.opset,
            attributes,
            tuple(self.types.get(name, UNKNOWN) for name in inputs),
            tuple(self.types.get(name, UNKNOWN) for name in outputs),
            small,
            frozenset(position for position, name in enumerate(inputs) if name),
        )

    def engine_type(self, name: str) -> tuple[int, list[int] | None]:
        kind = self.types.get(name, UNKNOWN)
        return kind.dtype, None if kind.dims is None else list(kind.dims)

    def must_stay_at_run_time(self, node: onnx.NodeProto) -> bool:
        """Returns whether a node may be neither folded nor merged with an equal one.

        This is so for random operators, for operators that onnx does not know, and for nodes that contain such
        operators. It is also so for DequantizeLinear: folding that of a weight would turn a quantised model into a
        float model.
        """
        if node.op_type == "DequantizeLinear" or is_random(node.op_type, node.domain, node.input):
            return True
        if not onnx.defs.has(node.op_type, node.domain if node.domain not in DEFAULT_DOMAINS else ""):
            return True
        return any(self.must_stay_at_run_time(inner) for body in bodies(node) for inner in body.node)


def _constant_tensor(node: onnx.NodeProto) -> ir.TensorProtocol | None:
    """Returns the tensor that a Constant node stands for; None if the kind of its value is not known.

    Raises:
      ModelError: the node has no value or several, or the value does not have the type that the attribute's name says.
    """
    if len(node.attribute) != 1:
        raise ModelError(f"the Constant '{node.output[0]}' has {len(node.attribute)} values; expected one.")
    (attribute,) = node.attribute
    if attribute.name == "value":
        return lazy_tensor(attribute.t)
    if attribute.name in ("value_string", "value_strings"):
        strings = list(attribute.strings) if attribute.name == "value_strings" else [attribute.s]
        shape = (len(strings),) if attribute.name == "value_strings" else ()
        return ir.StringTensor(strings, shape=ir.Shape(shape))
    scalars = {"value_int": np.int64, "value_float": np.float32}
    lists = {"value_ints": np.int64, "value_floats": np.float32}
    kind = scalars.get(attribute.name) or lists.get(attribute.name)
    if kind is None:
        return None
    try:
        return ir.tensor(np.asarray(onnx.helper.get_attribute_value(attribute), dtype=kind))
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"the Constant '{node.output[0]}' has a malformed value: {one_paragraph(error)}.") from error


def _without_trailing_absent(names: Sequence[str]) -> list[str]:
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _uniquely_named(nodes: Sequence[onnx.NodeProto]) -> dict[str, onnx.NodeProto]:
    found: dict[str, onnx.NodeProto] = {}
    repeated = {""}
    for node in nodes:
        if node.name in found:
            repeated.add(node.name)
        found[node.name] = node
    return {name: node for name, node in found.items() if name not in repeated}


def _plain_value(attribute: AttributeProto) -> Attribute | None:
    """Returns the value of an attribute, or None if the engine does not look into it.

    The engine does not look into empty lists, because their element type would be lost.
    """
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.FLOAT:
        return attribute.f
    if attribute.type == AttributeProto.INTS:
        return list(attribute.ints) or None
    if attribute.type == AttributeProto.FLOATS:
        return list(attribute.floats) or None
    if attribute.type == AttributeProto.STRING:
        return _text(attribute.s)
    if attribute.type == AttributeProto.STRINGS:
        texts = [_text(each) for each in attribute.strings]
        return [text for text in texts if text is not None] if texts and None not in texts else None
    return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
