"""The use of onnxscript, whose passes do the clean-up: conversion to its form and back, and workarounds for its faults.

Operators that the passes treat wrongly are hidden from them. The library tries every rewrite rule at every node, which
takes most of the time of a clean-up. Here, a rule is used only if the model has all operators of its pattern, and it is
tried only at nodes that have the operator its pattern ends in. The passes are made for opset 18 and later. Older models
are therefore prepared, and results that need a newer opset are rewritten.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript.rewriter import _DEFAULT_REWRITE_RULES, RewritePass
from onnxscript.rewriter.pattern import MatchResult, PatternMatcher, RewriteRule

from taso_ext.onnx_io.checked_model import (
    CheckedModel,
    ValueType,
    types_of,
    value_type,
)
from taso_ext.onnx_io.operators import is_random
from taso_ext.onnx_io.shape_inference import infer_shapes, without_output_shapes
from taso_ext.onnx_io.weights.handles import static_dims

_HIDDEN_DOMAIN = "rlflow.hidden"
_MOST_VISITS = 10**7
"""A pattern with several last nodes is tried on all combinations of nodes; a rule with more of these is left out."""


def to_ir(detached: CheckedModel) -> ir.Model:
    """Returns onnxscript's form of a model that has no local functions; its tensors stay where they are.

    Inputs that a caller may override lose their defaults, so that nothing folds them.
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


def from_ir(model: ir.Model, source: CheckedModel, types: Mapping[str, ValueType]) -> CheckedModel:
    """Returns the model as a skeleton and tensors again, with the types of the inputs and outputs of `source`.

    Args:
      types: the known types of the results of nodes, by name; if one is missing, all are inferred again.
    """
    cleaned = _taken_apart(model)
    for before, after in zip(source.skeleton.graph.output, cleaned.skeleton.graph.output, strict=True):
        after.type.CopyFrom(before.type)
    for before, after in zip(source.skeleton.graph.input, cleaned.skeleton.graph.input, strict=True):
        after.type.CopyFrom(before.type)
        if before.name in source.defaults:
            cleaned.defaults[after.name] = source.defaults[before.name]
    graph = cleaned.skeleton.graph
    if any(name and name not in types for node in graph.node for name in node.output):
        return cleaned
    inputs = {value.name: value_type(value.type) for value in graph.input}
    return replace(cleaned, known_types={**types, **inputs, **types_of(cleaned.tensors)})


def learn_shapes(model: ir.Model) -> dict[str, ValueType]:
    """Infers types and shapes with onnx and writes them into the model.

    onnx's inference over the whole model finds more than that of onnxscript, which goes node by node.

    Returns:
      Types of the results of nodes by name; types that inference does not find are missing.
    """
    inferred = infer_shapes(without_output_shapes(_taken_apart(model).for_onnx()))
    types = {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            kind = types.get(value.name or "")
            if kind is not None and kind.HasField("tensor_type"):
                value.shape = ir.serde.deserialize_type_proto_for_shape(kind) or value.shape
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(kind)
    return {name: value_type(kind) for name, kind in types.items()}


def nodes(model: ir.Model, op_type: str | None = None) -> Iterator[ir.Node]:
    """Yields the nodes of a model and of the graphs inside them; with `op_type`, only nodes with this operator."""
    return (node for node in model.graph.all_nodes() if op_type in (None, node.op_type))


def has_graphs(node: ir.Node) -> bool:
    """Returns whether a node carries graphs as attributes."""
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


@contextmanager
def hidden(model: ir.Model) -> Iterator[None]:
    """Hides operators that the passes treat wrongly, each in a domain of its own, so that no two of them are equal."""
    opset = model.opset_imports.get("", 0)
    found = [node for node in nodes(model) if _is_mistreated(node, opset)]
    for index, node in enumerate(found):
        node.domain = f"{_HIDDEN_DOMAIN}.{index}"
    yield
    for node in found:
        node.domain = ""


def _is_mistreated(node: ir.Node, opset: int) -> bool:
    """Returns whether onnxscript 0.7 would fold, merge, misread or crash on an operator."""
    if node.domain != "":
        return False
    if is_random(node.op_type, node.domain, node.inputs):
        return True  # it merges two equal Bernoulli nodes, or two equal Dropout nodes in training
    if node.op_type in ("Clip", "Min", "Max", "Pad"):
        return opset < 11  # it looks for bounds and pads among the inputs, but older opsets have attributes
    if node.op_type == "CastLike":
        return len(node.attributes) > 0  # the Cast that replaces it lacks them: saturate, round_mode
    if node.op_type == "ConcatFromSequence":
        return opset < 13  # it writes Unsqueeze as opset 13 does
    if node.op_type == "BatchNormalization":
        producer = None if node.inputs[0] is None else node.inputs[0].producer()  # it overwrites the weights of this
        return producer is not None and any(v is not None and v.is_graph_output() for v in producer.inputs)
    if node.op_type == "SplitToSequence":
        return opset < 13 or not _is_constant(node.inputs[1:])  # the same for Split; it fails if sizes are computed
    return False


def _is_constant(values: Sequence[ir.Value | None]) -> bool:
    return all(ir.convenience.get_const_tensor(value) is not None for value in values if value is not None)


@dataclass(frozen=True)
class _Rule:
    """A rewrite rule and the operators of its pattern.

    Attributes:
      operators: all operators of the pattern.
      root: the operator that the pattern ends in, the first one if there are several.
      num_roots: how many last nodes the pattern has.
    """

    rule: RewriteRule
    operators: frozenset[str]
    root: str
    num_roots: int

    def applies_to(self, counts: Counter[str]) -> bool:
        visits = counts[self.root] * counts.total() ** (self.num_roots - 1)
        return self.operators <= counts.keys() and (self.num_roots == 1 or visits <= _MOST_VISITS)


def rewrite_once(model: ir.Model) -> bool:
    """Applies the rules at every node once; returns whether anything changed."""
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    rules = [each.rule for each in _rules() if each.applies_to(counts)]
    return bool(rules) and bool(RewritePass(rules)(model).modified)


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(_prepared(rule) for rule in _DEFAULT_REWRITE_RULES)


def _prepared(rule: RewriteRule) -> _Rule:
    pattern = rule._target_pattern
    root = str(pattern.output_nodes[0].op)
    quick = copy.copy(rule)
    quick._matcher = _FromRoot(rule._matcher, root)
    return _Rule(quick, frozenset(str(node.op) for node in pattern), root, len(pattern.output_nodes))


class _FromRoot(PatternMatcher):
    """A matcher that gives up at once unless the node has the operator that the pattern ends in."""

    def __init__(self, matcher: PatternMatcher, root: str) -> None:
        super().__init__(matcher.pattern)
        self._matcher, self._root = matcher, root

    def match(
        self, model: ir.Model, graph_or_function: ir.Graph, node: ir.Node, **options: object
    ) -> MatchResult | None:
        if node.op_type != self._root:
            return None
        return self._matcher.match(model, graph_or_function, node, **options)


def replace_old_dropouts(model: ir.Model) -> None:
    """Replaces Dropout before opset 12 by Identity if nothing uses its mask.

    Such a Dropout does nothing at inference, but onnxscript only knows the newer one.
    """
    if model.opset_imports.get("", 0) >= 12:
        return
    for node in list(nodes(model, "Dropout")):
        if len(node.outputs) == 1 or (not node.outputs[1].uses() and not node.outputs[1].is_graph_output()):
            identity = ir.node("Identity", inputs=[node.inputs[0]], name=node.name)
            assert node.graph is not None, "nodes found in a graph belong to it"
            ir.convenience.replace_nodes_and_values(
                node.graph, node, [node], [identity], node.outputs[:1], identity.outputs
            )


_NUMBERS_OF_CONSTANT = {
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
}
"""Attributes of Constant that opset 12 brought, with the type of their numbers."""


def fit_to_opset(model: ir.Model) -> None:
    """Rewrites nodes that the passes have written in the form of a newer opset."""
    opset = model.opset_imports.get("", 0)
    for node in nodes(model, "Reshape") if opset < 14 else ():
        node.attributes.pop("allowzero", None)  # the passes set it only if the shape holds no zero
    for node in nodes(model, "Split") if opset < 18 else ():
        node.attributes.pop("num_outputs", None)  # equal parts are what older opsets assume
    for node in nodes(model, "Constant") if opset < 12 else ():
        for name, dtype in _NUMBERS_OF_CONSTANT.items():
            if name in node.attributes:
                held = np.array(node.attributes.pop(name).value, dtype)
                node.attributes["value"] = ir.AttrTensor("value", ir.tensor(held))
    for node in list(nodes(model, "Gemm")) if opset < 11 else ():
        weight = node.inputs[1]
        if len(node.inputs) == 2 and weight is not None and weight.dtype is not None:
            node.resize_inputs(3)
            node.replace_input_with(2, _zero(model.graph, f"{node.outputs[0].name}_zero", weight.dtype))


def _zero(graph: ir.Graph, name: str, dtype: ir.DataType) -> ir.Value:
    tensor = ir.tensor(np.zeros(1, dtype=dtype.numpy()), name=name)
    value = ir.Value(name=name, const_value=tensor, shape=ir.Shape((1,)), type=ir.TensorType(dtype))
    graph.register_initializer(value)
    return value
