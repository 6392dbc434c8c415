"""The branches of If and the bodies of Loop and Scan as models of their own, and their return into the model.

In the model of a body, the outer values that the body reads are inputs too, and outer constants are weights. Shapes are
never taken from what a file declares about a body. A loop runs its body again and again: the shape of a loop-carried
value is known if it follows from itself, which is then so in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx
import onnx_ir as ir
from onnx import helper

from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import UNKNOWN, CheckedModel, ValueType, types_of, value_type
from taso_ext.onnx_io.operators import (
    DEFAULT_DOMAINS,
    bodies,
    free_names,
    fresh_name,
    local_names,
    read_names,
    value_names,
)
from taso_ext.onnx_io.shape_inference import infer_shapes
from taso_ext.onnx_io.weights.handles import content_handle, lazy_tensor

WITH_BODIES = ("If", "Loop", "Scan")
_OLDEST_SCAN = 9
"""Before this opset, the body of a Scan sees one element of a batch."""
_LOOP_OWN = 2
"""A Loop's first two inputs, and those of its body, are not carried: trip count or iteration number, and condition."""


class Place(NamedTuple):
    """The place of a body in a model: the operator, the name of its first output, and the attribute."""

    op_type: str
    output: str
    attribute: str

    def __str__(self) -> str:
        return f"the {self.attribute} of {self.op_type} '{self.output}'"


def places(model: CheckedModel) -> list[Place]:
    """Returns the places of all bodies in the outermost graph of a model, in the order of the graph."""
    return [
        Place(node.op_type, node.output[0], attribute.name)
        for node in model.skeleton.graph.node
        if node.domain in DEFAULT_DOMAINS and node.op_type in WITH_BODIES
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]


def body_at(model: CheckedModel, place: Place) -> CheckedModel:
    """Returns the body at a place as a model of its own.

    Its inputs are those of the body, then the outer values that the body reads.

    Raises:
      ModelError: the body cannot stand alone, mostly because the shape of a value that it reads is not known.
    """
    node, graph = _find(model.skeleton, place)
    if graph.sparse_initializer or {each.name for each in graph.initializer} & {each.name for each in graph.input}:
        raise ModelError("it has sparse constants, or inputs with a default value")
    own = _own_inputs(model, node, graph)
    read = [name for name in free_names(graph) if name not in model.tensors]
    outer = {name: _sized(name, model.types.get(name, UNKNOWN)) for name in read}
    tensors = {each.name: lazy_tensor(each) for each in graph.initializer}
    tensors |= {name: model.tensors[name] for name in free_names(graph) if name in model.tensors}
    proto = onnx.ModelProto(ir_version=model.skeleton.ir_version, opset_import=model.skeleton.opset_import)
    proto.graph.name = graph.name or "body"
    proto.graph.node.extend(graph.node)
    inputs = {**own, **outer}
    proto.graph.input.extend(helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items())
    proto.graph.output.extend(onnx.ValueInfoProto(name=each.name) for each in graph.output)
    custom = {name for each in graph.node if each.domain not in DEFAULT_DOMAINS for name in each.output}
    proto.graph.value_info.extend(each for each in graph.value_info if each.name in custom)
    body = CheckedModel(_with_output_types(proto, tensors), tensors)
    _require_steady(body, _carried(node, graph))
    return body


def with_body(model: CheckedModel, place: Place, body: CheckedModel) -> CheckedModel:
    """Returns the model with another body at a place.

    New constants become constants of the model; those that nothing reads any more are removed.

    Args:
      body: the model of the new body, with the inputs and outputs of `body_at`'s and in the same opset.
    Raises:
      ModelError: the new body is of another opset than the model.
    """
    if body.opset != model.opset:
        raise ModelError(f"the body needs opset {body.opset}, and the model has {model.opset}")
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    _, graph = _find(skeleton, place)
    for field in ("node", "initializer", "value_info"):
        graph.ClearField(field)
    taken = value_names(skeleton.graph) | model.tensors.keys()
    outer = {each.name for each in body.skeleton.graph.input}
    new = onnx.GraphProto()
    new.CopyFrom(body.skeleton.graph)
    outer = {each.name for each in new.input}
    names = {name: fresh_name(name, taken) for name in _computed(new) if name not in outer}
    names |= {name: name if _is_known(name, body, model) else fresh_name(name, taken) for name in body.tensors}
    _rename(new, names)
    graph.node.extend(new.node)
    graph.value_info.extend(new.value_info)
    for value, given in zip(graph.output, new.output, strict=True):
        value.name = given.name
    imported = {entry.domain for entry in skeleton.opset_import} | set(DEFAULT_DOMAINS)
    skeleton.opset_import.extend(each for each in body.skeleton.opset_import if each.domain not in imported)
    added = {names[name]: tensor for name, tensor in body.tensors.items() if names[name] not in model.tensors}
    read = read_names(skeleton.graph)
    known = model.known_types
    return replace(
        model,
        skeleton=skeleton,
        tensors={name: tensor for name, tensor in {**model.tensors, **added}.items() if name in read},
        known_types=None if known is None else {**known, **types_of(added)},
    )


def _find(model: onnx.ModelProto, place: Place) -> tuple[onnx.NodeProto, onnx.GraphProto]:
    for node in model.graph.node:
        if node.op_type == place.op_type and node.output[0] == place.output:
            return node, next(each.g for each in node.attribute if each.name == place.attribute)
    raise ModelError(f"the model has no operator {place.op_type} with the output '{place.output}'")


def _own_inputs(model: CheckedModel, node: onnx.NodeProto, graph: onnx.GraphProto) -> dict[str, ValueType]:
    """Returns the types of the inputs that a body declares, in order.

    Raises:
      ModelError: the type of one is not known.
    """
    given = [model.types.get(name, UNKNOWN) for name in node.input]
    if node.op_type == "Loop":
        own = [_counter(value) for value in graph.input[:_LOOP_OWN]]
        kinds = [*own, *given[_LOOP_OWN:]]
    elif node.op_type == "Scan":
        if model.opset < _OLDEST_SCAN:
            raise ModelError(f"a Scan of opset {model.opset} runs its body on the elements of a batch")
        kinds = [*given[: -_num_scanned(node)], *_elements(node, given)]
    else:
        kinds = []
    return {value.name: _sized(value.name, kind) for value, kind in zip(graph.input, kinds, strict=True)}


def _counter(value: onnx.ValueInfoProto) -> ValueType:
    """Returns the type of a Loop's iteration number or condition: runtimes give it the declared form of one element."""
    kind = value_type(value.type)
    return kind if kind.dims in ((), (1,)) else UNKNOWN


def _elements(node: onnx.NodeProto, given: Sequence[ValueType]) -> Iterator[ValueType]:
    """Yields the types of the elements that a Scan gives its body: its scanned inputs without the scanned axis."""
    count = _num_scanned(node)
    axes = _integers(node, "scan_input_axes") or [0] * count
    for kind, axis in zip(given[-count:], axes, strict=True):
        dims = kind.dims
        if dims is None or not -len(dims) <= axis < len(dims):
            yield UNKNOWN
        else:
            yield ValueType(kind.dtype, tuple(size for at, size in enumerate(dims) if at != axis % len(dims)))


def _num_scanned(node: onnx.NodeProto) -> int:
    return next(each.i for each in node.attribute if each.name == "num_scan_inputs")


def _integers(node: onnx.NodeProto, name: str) -> list[int]:
    return next((list(each.ints) for each in node.attribute if each.name == name), [])


def _sized(name: str, kind: ValueType) -> ValueType:
    if not kind.dtype or kind.dims is None:
        raise ModelError(f"the shape of '{name}', which it reads, is not known")
    return kind


def _carried(node: onnx.NodeProto, graph: onnx.GraphProto) -> list[tuple[str, str]]:
    """Returns the (input, output) pairs of a body through which a value goes from one iteration to the next."""
    inputs, outputs = ([each.name for each in values] for values in (graph.input, graph.output))
    if node.op_type == "Loop":
        return list(zip(inputs[_LOOP_OWN:], outputs[1:], strict=False))
    if node.op_type == "Scan":
        return list(zip(inputs[: -_num_scanned(node)], outputs, strict=False))
    return []


def _require_steady(body: CheckedModel, carried: Sequence[tuple[str, str]]) -> None:
    """Checks that carried values leave an iteration with the shapes that they have when they enter it.

    The model of the body has the shapes of the first iteration. If they follow from themselves, they are those of every
    iteration.
    """
    types = body.types
    for given, result in carried:
        if types[given] != types.get(result, UNKNOWN):
            raise ModelError(f"the shape of '{given}' may differ from one iteration to the next")


def _with_output_types(proto: onnx.ModelProto, tensors: Mapping[str, ir.TensorProtocol]) -> onnx.ModelProto:
    """Gives the outputs of a model the types that follow from its inputs.

    Raises:
      ModelError: the type of one does not follow.
    """
    inferred = {each.name: each for each in infer_shapes(CheckedModel(proto, dict(tensors)).for_onnx()).graph.output}
    for value in proto.graph.output:
        value.CopyFrom(inferred[value.name])
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ModelError(f"the shape of its output '{value.name}' is not known")
    return proto


def _computed(graph: onnx.GraphProto) -> list[str]:
    """Returns the names of all values that the nodes of a graph, and the graphs inside them, define; each once."""
    names = (name for node in graph.node for name in (*node.output, *sorted(local_names(node))))
    return [name for name in dict.fromkeys(names) if name]


def _is_known(name: str, body: CheckedModel, model: CheckedModel) -> bool:
    """Returns whether a constant of a body is the constant of this name in the model."""
    if name not in model.tensors:
        return False
    ours, theirs = model.tensors[name], body.tensors[name]
    return ours is theirs or content_handle(name, ours) == content_handle(name, theirs)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames values of a graph and of the graphs inside it, wherever they are defined or read."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for body in bodies(node):
            _rename(body, names)
