"""Types and shapes of a model's values, as ONNX shape inference finds them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import onnx

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.detached import DetachedModel, for_inference
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.subgraphs import bodies, declared_values
from taso_ext.onnx_io.weights.handles import static_dims


class ValueType(NamedTuple):
    """Type of a value: `dtype` of onnx.TensorProto (0: not a tensor, or unknown), `dims` (None: not static)."""

    dtype: int
    dims: tuple[int, ...] | None


UNKNOWN = ValueType(0, None)

_LONGEST_PROPAGATED = 1 << 19
"""Elements. Inference takes every vector for a possible shape, and spends 0.2 µs and a message on each element."""


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred types; where inference finds a contradiction, it leaves that value unknown.

    Raises:
      ModelError: the contradiction is between types that are declared.
    """
    if _largest(model) <= _LONGEST_PROPAGATED:
        return _infer(model, data_prop=True)
    inferred = _infer(model, data_prop=False)
    return inferred if _has_long_vector(inferred) else _infer(model, data_prop=True)


def _infer(model: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=data_prop)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"the types and shapes that the model declares contradict each other: {one_paragraph(error)} "
            f"Export it again, or remove what it declares about values (graph.value_info)."
        ) from error


def _largest(model: onnx.ModelProto) -> int:
    """Elements of the largest declared value or initializer."""
    declared = ([dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in declared_values(model.graph))
    return max(map(math.prod, (*declared, *(tensor.dims for tensor in model.graph.initializer))), default=0)


def _has_long_vector(model: onnx.ModelProto) -> bool:
    graph = model.graph
    shapes = (value.type.tensor_type.shape.dim for value in (*declared_values(graph), *graph.output))
    return any(len(dims) == 1 and dims[0].dim_value > _LONGEST_PROPAGATED for dims in shapes)


def value_types(detached: DetachedModel) -> dict[str, ValueType]:
    """Types of all top-level values of a model by name; values that inference does not reach are missing.

    Declared shapes of outputs are not trusted: what a rewrite relies on is derived from the inputs alone.
    """
    inferred = infer_shapes(without_output_shapes(for_inference(detached))).graph
    types = {value.name: value_type(value.type) for value in (*inferred.value_info, *inferred.output, *inferred.input)}
    for name, tensor in detached.tensors.items():
        types[name] = ValueType(tensor.dtype.value, static_dims(tensor))
    return types


def without_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, changed: its outputs have their types, but not their shapes."""
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return model


def value_type(kind: onnx.TypeProto) -> ValueType:
    """The engine's view of an ONNX type."""
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    tensor = kind.tensor_type
    static = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return ValueType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim) if static else None)


def forget_inferable_shapes(detached: DetachedModel) -> DetachedModel:
    """Drops declared shapes that inference finds by itself: files often declare stale ones, and those would win."""
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(detached.skeleton)
    _forget_in(skeleton.graph, {value.name for value in skeleton.graph.input} | detached.tensors.keys())
    return replace(detached, skeleton=skeleton)


def _forget_in(graph: onnx.GraphProto, known: set[str]) -> None:
    """`known`: names of values whose types are known from elsewhere."""
    inferable = known | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        inner = list(bodies(node)) if node.attribute else []
        for body in inner:
            _forget_in(body, {value.name for value in body.input})
        if node.domain in DEFAULT_DOMAINS and not inner:
            inferable.update(node.output)
    for value in graph.value_info:
        if value.name in inferable and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
