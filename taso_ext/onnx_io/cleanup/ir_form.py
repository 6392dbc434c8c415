"""Models in the form that onnxscript's passes work on, and back."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from taso_ext.onnx_io.checked_model import CheckedModel, infer_shapes, without_output_shapes
from taso_ext.onnx_io.weights.handles import static_dims


def to_ir(detached: CheckedModel) -> ir.Model:
    """A model without local functions in onnxscript's form; its tensors stay where they are.

    Overridable inputs come without their defaults, so that nothing folds them.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(detached.skeleton)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if _has_map(value.type):
            value.ClearField("type")  # onnxscript has no map type; the name alone is enough for it
    for name, tensor in detached.tensors.items():
        place = proto.graph.initializer.add(name=name, data_type=tensor.dtype.value, dims=static_dims(tensor))
        place.data_location = onnx.TensorProto.EXTERNAL
    model = ir.serde.deserialize_model(proto)
    for name, tensor in detached.tensors.items():
        model.graph.initializers[name].const_value = tensor
    return model


def from_ir(model: ir.Model, source: CheckedModel) -> CheckedModel:
    """The model as a skeleton and tensors again; types of inputs and outputs are those of `source`."""
    cleaned = _taken_apart(model)
    for before, after in zip(source.skeleton.graph.output, cleaned.skeleton.graph.output, strict=True):
        after.type.CopyFrom(before.type)
    for before, after in zip(source.skeleton.graph.input, cleaned.skeleton.graph.input, strict=True):
        after.type.CopyFrom(before.type)
        if before.name in source.defaults:
            cleaned.defaults[after.name] = source.defaults[before.name]
    return cleaned


def learn_shapes(model: ir.Model) -> None:
    """Runs ONNX shape inference over the whole model, which propagates more than onnxscript's node by node."""
    inferred = infer_shapes(without_output_shapes(_taken_apart(model).for_onnx()))
    types = {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            kind = types.get(value.name or "")
            if kind is not None and kind.HasField("tensor_type"):
                value.shape = ir.serde.deserialize_type_proto_for_shape(kind) or value.shape
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(kind)


def nodes(model: ir.Model, op_type: str | None = None) -> Iterator[ir.Node]:
    """The nodes of a model and of the graphs inside them; those of one operator if it is named."""
    return (node for node in model.graph.all_nodes() if op_type in (None, node.op_type))


def has_graphs(node: ir.Node) -> bool:
    """Whether a node carries graphs as attributes."""
    return any(attribute.type in _GRAPHS for attribute in node.attributes.values())


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _taken_apart(model: ir.Model) -> CheckedModel:
    held = dict(model.graph.initializers)
    model.graph.initializers.clear()
    try:
        skeleton = ir.serde.serialize_model(model)
    finally:
        model.graph.initializers.update(held)
    tensors = {name: value.const_value for name, value in held.items() if value.const_value is not None}
    return CheckedModel(skeleton, tensors)


def _has_map(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return _has_map(getattr(kind, which).elem_type)
    return which == "map_type"
