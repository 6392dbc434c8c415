"""The conversion of models from one ONNX opset to another.

If a rewrite made an operator that the model's opset does not have, the graph is written in a newer opset. Operators in
normal form are then written as the newer opset defines them. Other operators stay as they are if the newer opset
changed nothing but their element types. The rest is converted by onnx's version converter, node by node and without any
weights. `legacy_operators` brings models up that are older than the normal forms cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import onnx
import onnx.version_converter
from onnx import helper, numpy_helper

from taso_ext._core import Node
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.canonical.lowering import is_constant
from taso_ext.onnx_io.checked_model import ValueType
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies


@cache
def has_operator(op_type: str, opset: int) -> bool:
    """Returns whether an opset has an operator that is not deprecated, as Upsample is from opset 10 on."""
    return onnx.defs.has(op_type, opset, "") and not onnx.defs.get_schema(op_type, opset, "").deprecated


def needed_opset(nodes: Iterable[Node], opset: int) -> int:
    """Returns the lowest opset, but at least `opset`, that has all of ONNX's own operators among the engine nodes."""
    needed = opset
    for node in nodes:
        if node.domain == "" and not is_constant(node) and not has_operator(node.op_type, needed):
            needed = min((version for version in _versions(node.op_type) if version > needed), default=needed)
    return needed


@cache
def _versions(op_type: str) -> list[int]:
    """Returns the opsets that have changed one of ONNX's own operators."""
    return [
        each.since_version
        for each in onnx.defs.get_all_schemas_with_history()
        if (each.name, each.domain, each.deprecated) == (op_type, "", False)
    ]


def raised(
    node: onnx.NodeProto,
    before: int,
    after: int,
    types: tuple[Sequence[ValueType], Sequence[ValueType]],
    fresh_name: Callable[[str], str],
) -> list[onnx.NodeProto]:
    """Returns the nodes of opset `after` that compute what a node of opset `before` computes.

    Args:
      types: the types of the node's inputs, and the types of its outputs.
      fresh_name: a function from a wanted name to an unused one, for intermediate values.
    Raises:
      ModelError: the node is not the same in both opsets, and the version converter cannot convert it.
    """
    if before == after or _is_unchanged(node, before, after):
        return [node]
    inputs, outputs = types
    try:
        converted = onnx.version_converter.convert_version(_alone(node, inputs, outputs, before), after)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"a rewrite needs opset {after}, but onnx.version_converter cannot bring the operator {node.op_type} "
            f"'{node.name}' there from opset {before}: {one_paragraph(error)} Keep the model's opset (--opset keep)."
        ) from error
    return _renamed(converted.graph, {*node.input, *node.output}, fresh_name)


def _is_unchanged(node: onnx.NodeProto, before: int, after: int) -> bool:
    """Returns whether a node, and all nodes of the graphs inside it, mean the same in both opsets."""
    if node.domain in DEFAULT_DOMAINS:
        if not has_operator(node.op_type, after):
            return False
        if not has_operator(node.op_type, before):
            return True  # a rewrite made it, in the newer opset's form
        if not _means_the_same(node.op_type, before, after):
            return False
    return all(_is_unchanged(inner, before, after) for body in bodies(node) for inner in body.node)


@cache
def _means_the_same(op_type: str, before: int, after: int) -> bool:
    """Returns whether the form of an operator in two opsets differs in nothing but element types."""
    old, new = (onnx.defs.get_schema(op_type, version, "") for version in (before, after))
    return old.since_version == new.since_version or _signature(old) == _signature(new)


def _signature(schema: onnx.defs.OpSchema) -> object:
    """Returns the parts of a schema that differ if the operator's meaning differs: all but the element types."""
    attributes = {
        name: (each.type, each.required, each.default_value.SerializeToString(deterministic=True))
        for name, each in schema.attributes.items()
    }
    return [(each.name, each.option) for each in schema.inputs], [each.name for each in schema.outputs], attributes


def _alone(
    node: onnx.NodeProto, inputs: Sequence[ValueType], outputs: Sequence[ValueType], opset: int
) -> onnx.ModelProto:
    """Returns a model that consists of this node alone."""
    taken, given = (
        [
            helper.make_tensor_value_info(name, kind.dtype, kind.dims)
            for name, kind in dict(zip(names, kinds, strict=False)).items()
            if name
        ]
        for names, kinds in ((node.input, inputs), (node.output, outputs))
    )
    graph = helper.make_graph([node], "node", taken, given)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))


def _renamed(graph: onnx.GraphProto, kept: set[str], fresh_name: Callable[[str], str]) -> list[onnx.NodeProto]:
    """Returns the nodes of a graph, with Constant nodes for its initializers and unused names for its inner values.

    Args:
      kept: the names of values that keep them.
      fresh_name: see `raised`.
    """
    constants = [
        helper.make_node("Constant", [], [each.name], value=numpy_helper.from_array(numpy_helper.to_array(each)))
        for each in graph.initializer
    ]
    nodes = [*constants, *graph.node]
    inner = {name for node in nodes for name in node.output} - kept
    names = {name: fresh_name(name) for name in sorted(inner)}
    for node in nodes:
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]
    return nodes
