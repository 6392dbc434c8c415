"""Symbolic dimensions of a model's inputs: naming them, binding them to sizes, and refusing what stays open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from taso_ext.errors import ModelError, did_you_mean


def runtime_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The graph inputs a caller feeds: below IR version 4, listed initializers are constants and not among them."""
    if model.ir_version >= 4:
        return list(model.graph.input)
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def symbolic_dims(model: onnx.ModelProto) -> list[tuple[str, int, str]]:
    """(input, axis, name) of every dimension of a tensor input without a size; an unnamed one is `<input>:<axis>`."""
    return [
        (value.name, axis, dim.dim_param or f"{value.name}:{axis}")
        for value in runtime_inputs(model)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value")
    ]


def bind_dims(model: onnx.ModelProto, dims: Mapping[str, int], name: str) -> onnx.ModelProto:
    """A copy of the model with symbolic dimensions replaced by sizes; the model itself if `dims` is empty.

    Raises:
      ModelError: a name that no input has, or a size that is not a whole number of at least 0.
    """
    if not dims:
        return model
    _check_names(model, dims, name)
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for value in bound.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param and f"{value.name}:{axis}" in dims:
                dim.dim_value = dims[f"{value.name}:{axis}"]
    for shape in _shapes(bound.graph):
        for dim in shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    return bound


def require_static_inputs(model: onnx.ModelProto, name: str) -> None:
    """Raises ModelError if an input's rank is unknown or one of its dimensions has no size."""
    for value in runtime_inputs(model):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            raise ModelError(
                f"{name}: the input '{value.name}' has no shape, not even a rank; expected a static shape. Give the "
                f"input a shape in the model, for example with onnx.helper.make_tensor_value_info, and save it again."
            )
    free = symbolic_dims(model)
    if not free:
        return
    listed = ", ".join(f"'{dim}' (axis {axis} of input '{value}')" for value, axis, dim in free[:8])
    more = f" and {len(free) - 8} more" if len(free) > 8 else ""
    flags = " ".join(f"--dim {dim}=1" for dim in dict.fromkeys(dim for _, _, dim in free))
    raise ModelError(
        f"{name} has symbolic dimensions without a size: {listed}{more}. Shapes must be known before the graph can be "
        f"rewritten; give every size with the flag --dim name=value, for example: {flags}"
    )


def _check_names(model: onnx.ModelProto, dims: Mapping[str, int], name: str) -> None:
    known = list(dict.fromkeys(dim for _, _, dim in symbolic_dims(model)))
    for dim, size in dims.items():
        if dim not in known:
            raise ModelError(
                f"{name} has no symbolic dimension '{dim}'{did_you_mean(dim, known)}; its inputs have: "
                f"{', '.join(known) or 'static shapes only'}. Correct or drop --dim {dim}={size}."
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ModelError(f"--dim {dim}={size}: expected a whole number of at least 0 as the size of a dimension.")


def _shapes(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto]:
    """Shapes of all declared values of a graph and of the graphs inside its nodes."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from _type_shapes(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _shapes(body)


def _type_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which).shape
    elif which in ("sequence_type", "optional_type"):
        yield from _type_shapes(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from _type_shapes(kind.map_type.value_type)
