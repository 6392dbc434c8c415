"""Input dimensions without a size: harmless where no operator has to be priced on them, refused where one has.

A value is *unsized* where its shape is unknown because an input's dimension is open. An operator that reads or writes
one would have to be priced without knowing its work, except Shape and Size, which look at no element, and Identity,
which is removed. What Shape gives has a known shape but an open content, which makes the values unsized whose shape it
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from taso_ext.errors import ModelError
from taso_ext.onnx_io.dimensions import OpenDim, open_dims
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.shapes import UNKNOWN, ValueType
from taso_ext.onnx_io.subgraphs import captured_names

_FREE = frozenset({"Shape", "Size", "Identity"})
_SHAPE_DTYPES = frozenset({0, onnx.TensorProto.INT64, onnx.TensorProto.INT32})
"""Types of tensors that can decide another's shape; 0: unknown."""
_MOST_LISTED = 8

Sources = dict[OpenDim, None]
"""Open dimensions, each once, in order."""


def require_sizes(graph: onnx.GraphProto, types: Mapping[str, ValueType], name: str) -> None:
    """Checks that every operator an output depends on can be priced.

    Args:
      graph: a cleaned model's; producers first.
      types: what is known of its values.
      name: of the model, for the message.
    Raises:
      ModelError: names the open dimensions in the way, an operator that they reach, and the flags to give.
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
    """Follows open dimensions through a graph.

    Attributes:
      needed: those that an operator has to be priced on.
      first: such an operator, in words.
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
    """The nodes that an output depends on, producers first."""
    wanted = {output.name for output in graph.output}
    live = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            live.append(node)
            wanted.update(node.input, captured_names(node))
    return live[::-1]
