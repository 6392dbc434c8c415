"""Shapes with so many entries that looking at them never ends."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.subgraphs import all_nodes, bodies, declared_values, inner_nodes

LARGEST_RANK = 1 << 10
"""Far above what any runtime takes; shape inference spends four microseconds on each axis, again and again."""
_EXPAND_MENDED = 13
"""From this opset on, shape inference of Expand looks at the shape's values only."""


def require_bounded_ranks(model: onnx.ModelProto, name: str) -> None:
    """Checks the lengths of Expand's shapes: onnx makes a dimension of every entry, were there billions.

    Args:
      model: accepted by `onnx.checker`.
    Raises:
      ModelError: a shape of more than `LARGEST_RANK` entries, or types that contradict each other.
    """
    wanted = {node.input[1] for node in _old_expands(model)}
    if not wanted:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(_without_expand(model))
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model: its types contradict each other, {one_paragraph(error)} "
            f"Correct the exporter, or export the model again."
        ) from error
    for value in declared_values(inferred.graph):
        dims = value.type.tensor_type.shape.dim
        if value.name in wanted and len(dims) == 1 and dims[0].dim_value > LARGEST_RANK:
            raise ModelError(
                f"{name} has an Expand to the shape '{value.name}' of {dims[0].dim_value:,} entries; at most "
                f"{LARGEST_RANK:,} dimensions are allowed. Correct the shape of '{value.name}'."
            )


def _old_expands(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for scope, nodes in ((model, model.graph.node), *((each, each.node) for each in model.functions)):
        versions = [entry.version for entry in scope.opset_import if entry.domain in DEFAULT_DOMAINS]
        if versions and min(versions) < _EXPAND_MENDED:
            yield from (node for node in inner_nodes(nodes) if _is_expand(node) and len(node.input) > 1)


def _without_expand(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graphs = [copy.graph, *(body for node in all_nodes(copy.graph) for body in bodies(node))]
    for holder in (*graphs, *copy.functions):
        kept = [node for node in holder.node if not _is_expand(node)]
        del holder.node[:]
        holder.node.extend(kept)
    return copy


def _is_expand(node: onnx.NodeProto) -> bool:
    return node.op_type == "Expand" and node.domain in DEFAULT_DOMAINS
