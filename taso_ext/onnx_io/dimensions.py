"""Symbolic dimensions of a model's inputs: naming them and binding them to sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import onnx

from taso_ext.errors import ModelError, did_you_mean
from taso_ext.onnx_io.detached import DetachedModel


class OpenDim(NamedTuple):
    """A dimension of a tensor input without a size; an unnamed one is called `<input>:<axis>`."""

    input: str
    axis: int
    name: str


def open_dims(graph: onnx.GraphProto) -> list[OpenDim]:
    """The dimensions of tensor inputs that have no size."""
    return [
        OpenDim(value.name, axis, dim.dim_param or f"{value.name}:{axis}")
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value")
    ]


def bind_dims(model: DetachedModel, dims: Mapping[str, int], name: str) -> DetachedModel:
    """The model with symbolic dimensions replaced by sizes, in a skeleton of its own; the model itself without `dims`.

    Raises:
      ModelError: a name that no input has, or a size that is not a whole number from 0 to 2^63 - 1.
    """
    if not dims:
        return model
    _check_names(model.skeleton.graph, dims, name)
    bound = onnx.ModelProto()
    bound.CopyFrom(model.skeleton)
    for value in bound.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param and f"{value.name}:{axis}" in dims:
                dim.dim_value = dims[f"{value.name}:{axis}"]
    for shape in _shapes(bound.graph):
        for dim in shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    return replace(model, skeleton=bound)


def _check_names(graph: onnx.GraphProto, dims: Mapping[str, int], name: str) -> None:
    known = list(dict.fromkeys([dim.name for dim in open_dims(graph)] + _names_in_containers(graph)))
    for dim, size in dims.items():
        if dim not in known:
            raise ModelError(
                f"{name} has no symbolic dimension '{dim}'{did_you_mean(dim, known)}; its inputs have: "
                f"{', '.join(known) or 'static shapes only'}. Correct or drop --dim {dim}={size}."
            )
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
            raise ModelError(f"--dim {dim}={size}: expected a whole number of at least 0 as the size of a dimension.")


def _names_in_containers(graph: onnx.GraphProto) -> list[str]:
    """Names of dimensions of the elements of sequence and optional inputs."""
    shapes = [shape for value in graph.input for shape in type_shapes(value.type)]
    return [dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param]


def _shapes(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto]:
    """Shapes of all declared values of a graph and of the graphs inside its nodes."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from type_shapes(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _shapes(body)


def type_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """The shapes of the tensors that a type contains."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which).shape
    elif which in ("sequence_type", "optional_type"):
        yield from type_shapes(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from type_shapes(kind.map_type.value_type)
