"""The symbolic dimensions of a model's inputs: their names, their sizes, and an error if a size is needed but missing.

A dimension without a size is *open*. It is refused if the price of an operator depends on it, and harmless otherwise. A
value is *unsized* if its shape is unknown because a dimension of an input is open. An operator that reads or writes an
unsized value cannot be priced, because its work is unknown. Exceptions are Shape and Size, which look at no element,
and Identity, which is removed. The result of Shape has a known shape, but its elements depend on the open dimensions;
if they decide the shape of another value, then that value is unsized too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import onnx

from taso_ext.errors import ModelError, did_you_mean
from taso_ext.onnx_io.checked_model import UNKNOWN, CheckedModel, ValueType
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies, captured_names

_FREE = frozenset({"Shape", "Size", "Identity"})
_SHAPE_DTYPES = frozenset({0, onnx.TensorProto.INT64, onnx.TensorProto.INT32})
"""Element types of tensors that can decide the shape of another value; 0 is an unknown type."""
_MOST_LISTED = 8


class OpenDim(NamedTuple):
    """A dimension of a tensor input that has no size; a dimension without a name is called `<input>:<axis>`."""

    input: str
    axis: int
    name: str


Sources = dict[OpenDim, None]
"""Open dimensions, each once, in order, as keys."""


def open_dims(graph: onnx.GraphProto) -> list[OpenDim]:
    """Returns the dimensions of tensor inputs that have no size."""
    return [
        OpenDim(value.name, axis, dim.dim_param or f"{value.name}:{axis}")
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value")
    ]


def bind_dims(model: CheckedModel, dims: Mapping[str, int], name: str) -> CheckedModel:
    """Returns the model with sizes for its symbolic dimensions; the given model itself if `dims` is empty.

    Raises:
      ModelError: `dims` has a name that no input has, or a size that is not a whole number from 0 to 2^63 - 1.
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
    return replace(model, skeleton=bound, known_types=None)


def _check_names(graph: onnx.GraphProto, dims: Mapping[str, int], name: str) -> None:
    known = list(dict.fromkeys([dim.name for dim in open_dims(graph)] + _dim_names(graph)))
    for dim, size in dims.items():
        if dim not in known:
            raise ModelError(
                f"{name} has no symbolic dimension '{dim}'{did_you_mean(dim, known)}; its inputs have: "
                f"{', '.join(known) or 'static shapes only'}. Correct or drop --dim {dim}={size}."
            )
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
            raise ModelError(f"--dim {dim}={size}: expected a whole number of at least 0 as the size of a dimension.")


def _dim_names(graph: onnx.GraphProto) -> list[str]:
    """Returns the names of the symbolic dimensions of all inputs, including the elements of sequences and optionals."""
    shapes = [shape for value in graph.input for shape in _type_shapes(value.type)]
    return [dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param]


def _shapes(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto]:
    """Yields the shapes of all declared values of a graph and of the graphs inside its nodes."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from _type_shapes(value.type)
    for node in graph.node:
        for body in bodies(node):
            yield from _shapes(body)


def _type_shapes(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    """Yields the shapes of the tensors that a type contains."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which).shape
    elif which in ("sequence_type", "optional_type"):
        yield from _type_shapes(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from _type_shapes(kind.map_type.value_type)


def require_sizes(graph: onnx.GraphProto, types: Mapping[str, ValueType], name: str) -> None:
    """Checks that every operator an output depends on can be priced.

    Args:
      graph: the graph of a cleaned model, producers first.
      types: the known types of its values, by name.
      name: the name of the model in the message.
    Raises:
      ModelError: an operator cannot be priced; the message names the open dimensions, the operator, and the flags to
        give.
    """
    if not open_dims(graph):
        return
    found = _Tracing(graph, types)
    if not found.needed:
        return
    places = [f"'{dim.name}' (axis {dim.axis} of input '{dim.input}')" for dim in found.needed]
    more = f" and {len(places) - _MOST_LISTED} more" if len(places) > _MOST_LISTED else ""
    flags = " ".join(f"--dim {dim}=1" for dim in dict.fromkeys(dim.name for dim in found.needed))
    raise ModelError(
        f"{name} has symbolic dimensions without a size: {', '.join(places[:_MOST_LISTED])}{more}. What {found.first} "
        f"costs depends on them; give every size with the flag --dim name=value, for example: {flags}"
    )


class _Tracing:
    """A walk that follows open dimensions through a graph.

    Attributes:
      needed: the open dimensions that the price of an operator depends on.
      first: the first such operator, in words.
    """

    def __init__(self, graph: onnx.GraphProto, types: Mapping[str, ValueType]) -> None:
        self._types = types
        self._unsized: dict[str, Sources] = {}
        self._content: dict[str, Sources] = {}
        self.needed: Sources = {}
        self.first = ""
        for dim in open_dims(graph):
            self._unsized.setdefault(dim.input, {})[dim] = None
        for node in _live_nodes(graph):
            self._follow(node)

    def _follow(self, node: onnx.NodeProto) -> None:
        read = [name for name in (*node.input, *captured_names(node)) if name]
        sizes = _joined(self._unsized.get(name) for name in read)
        shaping = _joined(
            self._content.get(name) for name in read if self._types.get(name, UNKNOWN).dtype in _SHAPE_DTYPES
        )
        unknown = [name for name in node.output if name and self._types.get(name, UNKNOWN).dims is None]
        reached = (sizes | shaping) if unknown else sizes
        content = sizes | _joined(self._content.get(name) for name in read)
        for name in node.output:
            if content:
                self._content[name] = content
            if reached and name in unknown:
                self._unsized[name] = reached
        if reached and not (node.op_type in _FREE and node.domain in DEFAULT_DOMAINS):
            self.needed |= reached
            self.first = self.first or f"the operator {node.op_type} '{node.name or node.output[0]}'"


def _joined(parts: Iterable[Sources | None]) -> Sources:
    joined: Sources = {}
    for part in parts:
        joined |= part or {}
    return joined


def _live_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Returns the nodes that an output depends on, producers first."""
    wanted = {output.name for output in graph.output}
    live = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            live.append(node)
            wanted.update(node.input, captured_names(node))
    return live[::-1]
