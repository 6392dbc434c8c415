"""A model taken apart: its structure, small enough to copy and analyse freely, and its tensors, read when asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from taso_ext.subgraphs import bodies

LARGEST_INLINE = 1024
"""Elements up to which a tensor is shown to shape inference: shapes, axes, pads and scalars are far below."""


@dataclass(frozen=True)
class DetachedModel:
    """A model whose initializers are held beside it.

    Attributes:
      skeleton: the model without any top-level initializer; nodes still refer to them by name.
      tensors: the constant initializers by name; their values are read from the source model when asked for.
      defaults: default values of graph inputs that a caller may override (listed initializers from IR version 4 on).
    """

    skeleton: onnx.ModelProto
    tensors: dict[str, ir.TensorProtocol]
    defaults: dict[str, ir.TensorProtocol] = field(default_factory=dict)


def detach(model: onnx.ModelProto, freeze_initializers: bool = False) -> DetachedModel:
    """Takes a model apart without copying or changing its weights.

    Below IR version 4, and with `freeze_initializers`, initializers that are also graph inputs become plain constants.
    Sparse tensors become dense ones: operators see no difference.
    """
    skeleton = _copy_without_initializers(model)
    tensors = {tensor.name: lazy_tensor(tensor) for tensor in model.graph.initializer}
    tensors |= {sparse.values.name: ir.tensor(_dense(sparse)) for sparse in model.graph.sparse_initializer}
    _densify_constants(skeleton.graph)
    _move_large_constants(skeleton.graph, tensors)
    listed = [value.name for value in skeleton.graph.input if value.name in tensors]
    if model.ir_version >= 4 and not freeze_initializers:
        return DetachedModel(skeleton, tensors, {name: tensors.pop(name) for name in listed})
    kept = [value for value in skeleton.graph.input if value.name not in tensors]
    del skeleton.graph.input[:]
    skeleton.graph.input.extend(kept)
    # From IR version 4 on, initializers need not be inputs.
    skeleton.ir_version = max(skeleton.ir_version, 4)
    return DetachedModel(skeleton, tensors)


def attach(detached: DetachedModel) -> onnx.ModelProto:
    """The whole model again, with its own copy of every tensor."""
    model = onnx.ModelProto()
    model.CopyFrom(detached.skeleton)
    for name, tensor in (detached.tensors | detached.defaults).items():
        model.graph.initializer.append(tensor_proto(tensor, name))
    return model


def for_inference(detached: DetachedModel) -> onnx.ModelProto:
    """A copy of the skeleton that shape inference can read: small tensors in place, large ones as typed inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(detached.skeleton)
    for name, tensor in detached.tensors.items():
        if tensor.size <= LARGEST_INLINE:
            model.graph.initializer.append(tensor_proto(tensor, name))
        else:
            kind = onnx.helper.make_tensor_value_info(name, tensor.dtype.value, static_dims(tensor))
            model.graph.input.append(kind)
    return model


def lazy_tensor(proto: onnx.TensorProto) -> ir.TensorProtocol:
    """A tensor whose values are read from `proto` whenever they are asked for; `proto` is never changed through it."""
    if proto.data_type == onnx.TensorProto.STRING:
        return ir.StringTensor(list(proto.string_data), shape=ir.Shape(proto.dims), name=proto.name)
    return ir.LazyTensor(
        lambda: ir.serde.TensorProtoTensor(proto),
        dtype=ir.DataType(proto.data_type),
        shape=ir.Shape(proto.dims),
        name=proto.name,
    )


def static_dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The dims of a tensor that holds values, and so has no symbolic ones."""
    return tuple(int(size) for size in tensor.shape.numpy())


def tensor_proto(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """The tensor as a TensorProto of the given name."""
    proto = ir.serde.serialize_tensor(tensor)
    proto.name = name
    return proto


def _copy_without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    _copy_fields(model, copy, skip=("graph",))
    _copy_fields(model.graph, copy.graph, skip=("initializer", "sparse_initializer"))
    return copy


def _copy_fields(source: onnx.ModelProto | onnx.GraphProto, target: object, skip: tuple[str, ...]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in skip:
            continue
        if hasattr(value, "extend"):
            getattr(target, descriptor.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, descriptor.name).CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)


def _densify_constants(graph: onnx.GraphProto) -> None:
    """Gives Constant nodes with a sparse value the same value as a dense tensor, in nested graphs too."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                dense = onnx.helper.make_attribute("value", numpy_helper.from_array(_dense(attribute.sparse_tensor)))
                attribute.CopyFrom(dense)
        for body in bodies(node):
            _densify_constants(body)


def _dense(sparse: onnx.SparseTensorProto) -> np.ndarray:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _move_large_constants(graph: onnx.GraphProto, tensors: dict[str, ir.TensorProtocol]) -> None:
    """Turns Constant nodes with large values into initializers, so that copying the skeleton stays cheap."""
    kept = []
    for node in graph.node:
        value = _constant_tensor(node)
        if value is None or np.prod(value.dims, dtype=np.int64) <= LARGEST_INLINE:
            kept.append(node)
        else:
            tensors[node.output[0]] = lazy_tensor(value)
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
