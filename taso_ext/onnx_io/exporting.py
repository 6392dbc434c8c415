"""The export of an engine graph as an ONNX model: weight-only parts are folded, names and metadata are kept."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from taso_ext._core import Graph, Node, Value
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import OLDEST_IR, CheckedModel, ValueType, opset_of
from taso_ext.onnx_io.emission import Emission, ValueNames
from taso_ext.onnx_io.importing import Imported
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, all_nodes, local_names
from taso_ext.onnx_io.opsets import has_operator, needed_opset
from taso_ext.onnx_io.session import newest_runnable_ir
from taso_ext.onnx_io.weights.folding import CannotFoldError, can_fold, computable_nodes, evaluate

_LOG = logging.getLogger(__name__)
_OWN_METADATA = "pkg.onnxscript."
"""The prefix of the keys under which the clean-up notes what it did; the original nodes had no such metadata."""
_LARGEST_COMPUTED = 1024
"""The most elements of a weight that a sketch computes too: its values could change how a runtime runs the model."""
_RESHAPES = frozenset({"Flatten", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class ExportSource:
    """The sources of everything that an exported model takes over from the loaded model.

    Attributes:
      original: the source of names and types of inputs and outputs, defaults of inputs, documentation and metadata.
      cleaned: the source of opset imports and declared types.
      imported: the source of weights, attributes and the documentation of nodes.
    """

    original: CheckedModel
    cleaned: CheckedModel
    imported: Imported


@dataclass(frozen=True)
class _Partition:
    """The nodes of a graph, divided into those that are written and those that are computed now.

    Attributes:
      written: the nodes that are written to the model.
      folded: the nodes that are computed now.
      handed_over: the computed values that written nodes read, or that are outputs.
      sketched: values like these that are zeros instead of being computed.
    """

    written: list[Node]
    folded: list[Node]
    handed_over: list[int]
    sketched: list[int]


@dataclass(frozen=True)
class Sketch:
    """A graph as an ONNX model in which large weights that would have to be computed are zeros.

    Attributes:
      model: the ONNX model; it shows everything that depends on the types of weights, but not on their values.
      computed_by: by the name of a value, the position of the operator that computes it among the graph's run-time
        operators.
      shared: names of constants that several operators of the graph read, also if the model is only a part of it.
    """

    model: CheckedModel
    computed_by: dict[str, int]
    shared: frozenset[str]


def export_model(graph: Graph, source: ExportSource) -> CheckedModel:
    """Returns the graph as an ONNX model in the original's opset, or in the first that has the operators of rewrites.

    Weight-only values are folded into initializers. Weights that are not folded stay where they are.

    Raises:
      ModelError: the graph can be written neither in the model's opset nor in a newer one.
    """
    return _export(graph, source, sketch=False).model


def sketch_model(graph: Graph, source: ExportSource, near: Collection[int] = (), distance: int = 0) -> Sketch:
    """Returns the graph as `export_model` does, but with zeros for large weights that would have to be computed.

    Args:
      near: positions among the graph's run-time operators. If there are any, the model has only those operators, what
        is at most `distance` operators away, what makes small values that these read, and all that reads their results.
        Values that it reads and does not make are no inputs of it.
    Raises:
      ModelError: the graph can be written neither in the model's opset nor in a newer one.
    """
    return _export(graph, source, sketch=True, near=near, distance=distance)


def _export(graph: Graph, source: ExportSource, sketch: bool, near: Collection[int] = (), distance: int = 0) -> Sketch:
    values, nodes = graph.values(), graph.nodes()
    computable = computable_nodes(values, nodes)
    kept = _around(values, nodes, computable, near, distance) if near else list(range(len(nodes)))
    try:
        return _assemble(graph, source, values, nodes, _partition(graph, values, nodes, computable, kept, sketch))
    except CannotFoldError as error:
        # The nodes then stay in the model: whoever runs it needs a runtime that has these operators anyway.
        _LOG.info("weight-only operators are not folded: %s", error)
        parts = _Partition([nodes[position] for position in kept], [], [], [])
        return _assemble(graph, source, values, nodes, parts)


def _around(
    values: dict[int, Value], nodes: Sequence[Node], computable: set[int], near: Collection[int], distance: int
) -> list[int]:
    """Returns the positions of the nodes of a sketch near some run-time operators, and of all that are folded."""
    standing = [position for position in range(len(nodes)) if position not in computable]
    producers = {value: position for position in standing for value in nodes[position].outputs}
    readers: dict[int, list[int]] = {}
    for position in standing:
        for value in nodes[position].inputs:
            readers.setdefault(value, []).append(position)

    def reading(position: int) -> set[int]:
        return {reader for value in nodes[position].outputs for reader in readers.get(value, ())}

    running = [position for position, node in enumerate(nodes) if not node.weight_only]
    kept = newest = {running[position] for position in near}
    for _ in range(distance):
        made = {producers[value] for position in newest for value in nodes[position].inputs if value in producers}
        newest = made.union(*map(reading, newest)) - kept
        kept = kept | newest
    pending = list(kept)
    while pending:
        for value in nodes[pending.pop()].inputs:
            if value in producers and producers[value] not in kept and not _is_large(values[value]):
                kept.add(producers[value])
                pending.append(producers[value])
    return sorted(kept.union(computable, *map(reading, kept)))


def _partition(
    graph: Graph,
    values: dict[int, Value],
    nodes: Sequence[Node],
    computable: set[int],
    kept: Sequence[int],
    sketch: bool,
) -> _Partition:
    written: list[Node] = []
    folded: list[Node] = []
    needed, needed_now = set(graph.outputs), set[int]()
    if len(kept) < len(nodes):
        standing = (nodes[position] for position in kept if not nodes[position].weight_only)
        needed.update(value for node in standing for value in node.outputs)
    handed_over: list[int] = []
    sketched: list[int] = []
    for position in reversed(kept):
        node = nodes[position]
        results = [value for value in node.outputs if value in needed]
        folds = position in computable and all(can_fold(values[value].dtype) for value in results)
        if results and not folds:
            written.append(node)
            needed.update(node.inputs)
        computed = [value for value in results if folds and not (sketch and _is_large(values[value]))]
        handed_over += computed
        sketched += [value for value in results if folds and value not in computed]
        if computed or any(value in needed_now for value in node.outputs):
            folded.append(node)
            needed_now.update(node.inputs)
    return _Partition(written[::-1], folded[::-1], handed_over[::-1], sketched)


def _is_large(value: Value) -> bool:
    return value.dims is not None and math.prod(value.dims) > _LARGEST_COMPUTED


def _zeros(value: Value) -> ir.TensorProtocol:
    """Returns a tensor of zeros that takes no memory."""
    return ir.tensor(np.broadcast_to(np.zeros((), helper.tensor_dtype_to_np_dtype(value.dtype)), value.dims or ()))


def _assemble(
    graph: Graph, source: ExportSource, values: dict[int, Value], nodes: Sequence[Node], parts: _Partition
) -> Sketch:
    model = _frame(source)
    original_opset = opset_of(model)
    opset = needed_opset(nodes, original_opset)
    if opset > original_opset:
        _raise_opset(model, opset)
    names = _name_interface(graph, source, values, parts)
    attributes = source.imported.attributes
    written, folded = (Emission(values, names, attributes, opset, original_opset) for _ in range(2))
    running = {node.outputs[0]: at for at, node in enumerate(node for node in nodes if not node.weight_only)}
    computed_by: dict[str, int] = {}
    try:
        for node in parts.written:
            before = len(written.nodes)
            written.add(node)
            if not node.weight_only:
                position = running[node.outputs[0]]
                computed_by |= {name: position for proto in written.nodes[before:] for name in proto.output if name}
        for node in parts.folded:
            folded.add(node)
    except ValueError as error:
        raise ModelError(f"the rewritten graph cannot be written as ONNX: {error}") from error
    for position, value in names.copies:
        written.nodes.append(
            helper.make_node("Identity", [written.name(value)], [source.original.skeleton.graph.output[position].name])
        )
    model.graph.node.extend(written.nodes)
    _import_domains(model, [*written.nodes, *folded.nodes])
    handed_over = {folded.name(value): values[value].dtype for value in parts.handed_over}
    tensors = _tensors(written, source) | _evaluate(folded, handed_over, source, model)
    tensors |= {folded.name(value): _zeros(values[value]) for value in parts.sketched}
    _document(model, source)
    _require_known_operators(model, opset)
    types = {
        written.name(value): ValueType(values[value].dtype, tuple(dims))
        for node in parts.written
        for value in (*node.inputs, *node.outputs)
        if value >= 0 and (dims := values[value].dims) is not None
    }
    constants = {*parts.handed_over, *parts.sketched, *(value for value, view in values.items() if view.handle)}
    readers = Counter(value for node in nodes if not node.weight_only for value in {*node.inputs} & constants)
    read_here = {value for node in parts.written for value in node.inputs}
    shared = frozenset(written.name(value) for value, count in readers.items() if count > 1 and value in read_here)
    return Sketch(CheckedModel(model, tensors, source.original.defaults, types), computed_by, shared)


def _name_interface(graph: Graph, source: ExportSource, values: dict[int, Value], parts: _Partition) -> ValueNames:
    inputs = [value.name for value in source.original.skeleton.graph.input]
    outputs = [value.name for value in source.original.skeleton.graph.output]
    fixed = {value for value, view in values.items() if view.handle is not None}
    fixed |= {*parts.handed_over, *parts.sketched}
    reserved = {name for node in _with_bodies(parts, source) for name in local_names(node)}
    return ValueNames(
        list(zip(graph.inputs, inputs, strict=True)), list(zip(graph.outputs, outputs, strict=True)), fixed, reserved
    )


def _with_bodies(parts: _Partition, source: ExportSource) -> list[onnx.NodeProto]:
    """Returns the nodes, reduced to the attributes that the engine does not look into; graphs are among these."""
    decode = source.imported.attributes.decode
    return [
        onnx.NodeProto(
            attribute=[decode(name, value) for name, value in node.attributes.items() if type(value) is bytes]
        )
        for node in (*parts.written, *parts.folded)
    ]


def _frame(source: ExportSource) -> onnx.ModelProto:
    """Returns the exported model without nodes, initializers and declared values."""
    model = onnx.ModelProto()
    original = source.original.skeleton
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if original.HasField(name):
            setattr(model, name, getattr(original, name))
    model.ir_version = min(max(original.ir_version, OLDEST_IR), newest_runnable_ir())
    model.metadata_props.extend(original.metadata_props)
    model.opset_import.extend(_opset_imports(source))
    model.graph.name = original.graph.name or "graph"
    model.graph.doc_string = original.graph.doc_string
    model.graph.metadata_props.extend(original.graph.metadata_props)
    model.graph.input.extend(original.graph.input)
    model.graph.output.extend(original.graph.output)
    return model


def _opset_imports(source: ExportSource) -> list[onnx.OperatorSetIdProto]:
    """Returns the imports of the cleaned model and of the original, without the domains of inlined functions."""
    inlined = {function.domain for function in source.original.skeleton.functions}
    inlined -= {node.domain for node in all_nodes(source.cleaned.skeleton.graph)}
    imports: dict[str, onnx.OperatorSetIdProto] = {}
    for entry in (*source.cleaned.skeleton.opset_import, *source.original.skeleton.opset_import):
        if entry.domain not in inlined:
            imports.setdefault(entry.domain, entry)
    if not imports.keys() & set(DEFAULT_DOMAINS):
        imports[""] = helper.make_opsetid("", source.cleaned.opset)
    return list(imports.values())


def _raise_opset(model: onnx.ModelProto, opset: int) -> None:
    _LOG.info("a rewrite made an operator of opset %d: the model's opset is raised to it", opset)
    for entry in model.opset_import:
        if entry.domain in DEFAULT_DOMAINS:
            entry.version = opset
    ir_version = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    model.ir_version = max(model.ir_version, min(ir_version, newest_runnable_ir()))


def _import_domains(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    """Adds imports of the domains that only rewrites use; these are domains of runtimes, which have one version."""
    known = {entry.domain for entry in model.opset_import} | set(DEFAULT_DOMAINS)
    for domain in sorted({node.domain for node in nodes} - known):
        model.opset_import.append(helper.make_opsetid(domain, 1))


def _tensors(emission: Emission, source: ExportSource) -> dict[str, ir.TensorProtocol]:
    weights = {name: source.imported.tensors[handle] for name, handle in emission.weights.items()}
    return weights | {name: ir.tensor(array) for name, array in emission.constants.items()}


def _evaluate(
    emission: Emission, outputs: dict[str, int], source: ExportSource, model: onnx.ModelProto
) -> dict[str, ir.TensorProtocol]:
    if not outputs:
        return {}
    return evaluate(emission.nodes, _tensors(emission, source), outputs, list(model.opset_import), model.ir_version)


def _document(model: onnx.ModelProto, source: ExportSource) -> None:
    """Restores the documentation, metadata and annotations of the nodes and values that are still in the model."""
    for node in model.graph.node:
        before = source.imported.nodes.get(node.name)
        was_reshape = before is not None and before.op_type in _RESHAPES and node.op_type == "Reshape"
        if before is not None and (before.op_type == node.op_type or was_reshape):
            node.doc_string = before.doc_string
            node.metadata_props.extend(each for each in before.metadata_props if not each.key.startswith(_OWN_METADATA))
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    custom = {name for node in model.graph.node if node.domain not in DEFAULT_DOMAINS for name in node.output}
    # Other types are found by shape inference; declared ones could only contradict it.
    model.graph.value_info.extend(value for value in source.cleaned.skeleton.graph.value_info if value.name in custom)
    for annotation in source.original.skeleton.graph.quantization_annotation:
        if {annotation.tensor_name, *(entry.value for entry in annotation.quant_parameter_tensor_names)} <= names:
            model.graph.quantization_annotation.append(annotation)


def _require_known_operators(model: onnx.ModelProto, opset: int) -> None:
    for node in model.graph.node:
        if node.domain == "" and not has_operator(node.op_type, opset):
            raise ModelError(
                f"a rewrite created the operator {node.op_type}, which neither opset {opset} nor a later one has; "
                "remove the rule that creates it."
            )
