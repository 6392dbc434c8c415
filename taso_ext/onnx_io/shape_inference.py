"""Shape inference by onnx, mended where onnx infers nothing or something else than runtimes compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, all_nodes, bodies, declared_values

_LONGEST_PROPAGATED = 1 << 19
"""The most elements of a vector for which shape inference propagates values.

It treats every vector as a possible shape, and spends 0.2 µs and a message on each element.
"""
_NOT_INFERRED = ("GroupNormalization",)
"""Operators whose result has the type of their first operand, and about which onnx infers nothing."""
_POOLS = ("MaxPool", "AveragePool", "LpPool")


def infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with inferred types; if inference finds a contradiction, the type of that value stays unknown.

    Raises:
      ModelError: declared types contradict each other.
    """
    if not any(_is_mended(node) for node in all_nodes(proto.graph)):
        return _infer_at_once(proto)
    asked, replaced = onnx.ModelProto(), dict[int, onnx.NodeProto]()
    asked.CopyFrom(proto)
    for position, node in enumerate(all_nodes(asked.graph)):
        if _is_mended(node) and node.op_type in _NOT_INFERRED:
            _replace(replaced, position, node, helper.make_node("Identity", node.input[:1], node.output))
    inferred = _infer_at_once(asked)
    while _mend_pools(asked, inferred, replaced):
        inferred = _infer_at_once(asked)
    for position, node in enumerate(all_nodes(inferred.graph)):
        if position in replaced:
            node.CopyFrom(replaced[position])
    return inferred


def _is_mended(node: onnx.NodeProto) -> bool:
    """Returns whether onnx may infer nothing, or something wrong, about a node."""
    return node.op_type in (*_NOT_INFERRED, *_POOLS) and node.domain in DEFAULT_DOMAINS


def _replace(
    replaced: dict[int, onnx.NodeProto], position: int, node: onnx.NodeProto, stand_in: onnx.NodeProto
) -> None:
    """Puts a stand-in in the place of a node, and keeps the node."""
    if position not in replaced:
        replaced[position] = onnx.NodeProto()
        replaced[position].CopyFrom(node)
    node.CopyFrom(stand_in)


def _mend_pools(asked: onnx.ModelProto, inferred: onnx.ModelProto, replaced: dict[int, onnx.NodeProto]) -> bool:
    """Gives pools with `ceil_mode` the results of runtimes, which drop a last window that begins in the right padding.

    Returns:
      Whether a pool was found of which onnx had inferred something else.
    """
    found = False
    shapes: dict[str, list[int]] | None = None
    for position, node in enumerate(all_nodes(asked.graph)):
        if node.op_type not in _POOLS or not _is_mended(node):
            continue
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if not attributes.get("ceil_mode") or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            continue
        shapes = dict(_static_shapes(inferred)) if shapes is None else shapes
        extents, result = shapes.get(node.input[0], [])[2:], shapes.get(node.output[0], [])[2:]
        counts = _windows(extents, attributes)
        if counts and len(result) == len(extents) and result != counts:
            same = _with_as_many_windows(extents, attributes, counts)
            _replace(replaced, position, node, helper.make_node(node.op_type, node.input, node.output[:1], **same))
            found = True
    return found


def _static_shapes(proto: onnx.ModelProto) -> Iterator[tuple[str, list[int]]]:
    for value in (*declared_values(proto.graph), *proto.graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            yield value.name, [dim.dim_value for dim in tensor.shape.dim]


def _steps(extents: list[int], attributes: Mapping[str, list[int]]) -> Iterator[tuple[int, int, int]]:
    """Yields what a window covers, its stride and the padding in front, for each spatial axis."""
    ones = [1] * len(extents)
    strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    front = (attributes.get("pads") or [0] * len(extents))[: len(extents)]
    for width, stride, dilation, before in zip(attributes["kernel_shape"], strides, dilations, front, strict=True):
        yield (width - 1) * dilation + 1, stride, before


def _windows(extents: list[int], attributes: Mapping[str, list[int]]) -> list[int]:
    """Returns the number of windows of a pool that rounds up, for each axis; nothing if they do not fit."""
    rank, counts = len(extents), []
    behind = (attributes.get("pads") or [0] * 2 * rank)[rank:]
    if rank != len(behind) or rank != len(attributes["kernel_shape"]):
        return []
    for extent, after, (covered, stride, before) in zip(extents, behind, _steps(extents, attributes), strict=True):
        room = extent + before + after - covered
        if room < 0 or stride < 1:
            return []
        last = -(-room // stride)
        counts.append(last + (last * stride < extent + before))
    return counts


def _with_as_many_windows(extents: list[int], attributes: Mapping[str, list[int]], counts: list[int]) -> dict[str, Any]:
    """Returns attributes of a pool that rounds down and has the given number of windows."""
    steps = list(_steps(extents, attributes))
    kernel = [
        extent + before - (count - 1) * stride
        for extent, count, (_, stride, before) in zip(extents, counts, steps, strict=True)
    ]
    front, strides = [before for _, _, before in steps], [stride for _, stride, _ in steps]
    return {"kernel_shape": kernel, "strides": strides, "pads": [*front, *[0] * len(extents)]}


def _infer_at_once(proto: onnx.ModelProto) -> onnx.ModelProto:
    if _largest(proto) <= _LONGEST_PROPAGATED:
        return _infer(proto, data_prop=True)
    inferred = _infer(proto, data_prop=False)
    return inferred if _has_long_vector(inferred) else _infer(proto, data_prop=True)


def _infer(proto: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=data_prop)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"the types and shapes that the model declares contradict each other: {one_paragraph(error)} "
            f"Export it again, or remove what it declares about values (graph.value_info)."
        ) from error


def _largest(proto: onnx.ModelProto) -> int:
    """Returns how many elements the largest declared value or initializer has."""
    declared = ([dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in declared_values(proto.graph))
    return max(map(math.prod, (*declared, *(tensor.dims for tensor in proto.graph.initializer))), default=0)


def _has_long_vector(proto: onnx.ModelProto) -> bool:
    shapes = (value.type.tensor_type.shape.dim for value in (*declared_values(proto.graph), *proto.graph.output))
    return any(len(dims) == 1 and dims[0].dim_value > _LONGEST_PROPAGATED for dims in shapes)


def without_output_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Removes the shapes of outputs, but not their types, from the given model, and returns it."""
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return proto


def without_inferable_shapes(proto: onnx.ModelProto, known: set[str]) -> onnx.ModelProto:
    """Removes from the given model the declared shapes that inference finds by itself, and returns the model.

    Files often declare stale shapes, which would take precedence over the inferred ones.

    Args:
      known: names of values whose types are known without inference, in addition to inputs and initializers.
    """
    _forget_in(proto.graph, {value.name for value in proto.graph.input} | known)
    return proto


def _forget_in(graph: onnx.GraphProto, known: set[str]) -> None:
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
