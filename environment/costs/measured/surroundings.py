"""The part of a model that stands around some of its values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import onnx
from onnx import helper

from taso_ext.onnx_io.detached import DetachedModel
from taso_ext.onnx_io.subgraphs import captured_names

Types = Mapping[str, tuple[int, tuple[int, ...]]]
"""Element type and shape by value name."""


def neighbourhood(model: DetachedModel, values: Collection[str], distance: int, types: Types) -> DetachedModel:
    """The nodes that compute `values` and those at most `distance` nodes from one of them, as a model of its own.

    What it reads from elsewhere becomes its inputs, what others read its outputs. It grows beyond the distance where it
    would be cut at a value of unknown type.

    Args:
      values: results of nodes.
      types: of values that may become inputs.
    """
    graph = model.skeleton.graph
    reads = [[*node.input, *captured_names(node)] for node in graph.node]
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(index)

    def neighbours(index: int) -> Iterable[int]:
        yield from (producers[name] for name in reads[index] if name in producers)
        yield from (reader for name in graph.node[index].output for reader in readers.get(name, ()))

    kept = newest = {producers[name] for name in values}
    for _ in range(distance):
        newest = {other for index in newest for other in neighbours(index)} - kept
        kept = kept | newest
    pending = list(kept)
    while pending:
        for name in reads[pending.pop()]:
            if name in producers and name not in types and producers[name] not in kept:
                kept.add(producers[name])
                pending.append(producers[name])
    return _cut_out(model, sorted(kept), reads, readers, types)


def _cut_out(
    model: DetachedModel,
    kept: list[int],
    reads: list[list[str]],
    readers: Mapping[str, list[int]],
    types: Types,
) -> DetachedModel:
    source = model.skeleton.graph
    inside = set(kept)
    made = {name: None for index in kept for name in source.node[index].output if name}
    read = {name: None for index in kept for name in reads[index] if name}
    constants = model.tensors | model.defaults
    skeleton = onnx.ModelProto(ir_version=model.skeleton.ir_version, opset_import=model.skeleton.opset_import)
    skeleton.graph.name = source.name
    skeleton.graph.node.extend(source.node[index] for index in kept)
    declared = {value.name: value for value in source.input}
    for name in read:
        if name in declared and name not in model.defaults:
            skeleton.graph.input.append(declared[name])
        elif name not in made and name not in constants:
            skeleton.graph.input.append(helper.make_tensor_value_info(name, *types[name]))
    outputs = {value.name for value in source.output}
    for name in made:
        if name in outputs or any(reader not in inside for reader in readers.get(name, ())):
            skeleton.graph.output.append(onnx.ValueInfoProto(name=name))
    return DetachedModel(skeleton, {name: constants[name] for name in read if name in constants})
