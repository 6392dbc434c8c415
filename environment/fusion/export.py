"""Fusion plans as ONNX models: annotations for a compiler, and the fused operators that ONNX Runtime has.

Every operator of a plan gets the metadata `rlflow.fusion.kernels`: the names of the results that the kernels with this
operator write, separated by commas. An operator that several kernels compute has several. Views have no kernel.

ONNX Runtime has one operator for some groups. They are written out where a plan has all of the group in one kernel:

| group | operator of com.microsoft |
|---|---|
| Conv, Relu, Sigmoid, Tanh or LeakyRelu | FusedConv |
| Gemm, Relu, Sigmoid, Tanh or LeakyRelu | FusedGemm |
| Add of a bias of one axis, Gelu | BiasGelu |
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper

from environment.fusion.graphs import FusionGraph
from taso_ext import OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel

KERNELS = "rlflow.fusion.kernels"
MICROSOFT = "com.microsoft"
_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")
_LIBRARY = {"Conv": "FusedConv", "Gemm": "FusedGemm"}


def kernels_by_value(model: OnnxModel, graph: FusionGraph, configuration: np.ndarray) -> dict[str, list[str]]:
    """Returns, for the name of each result that kernels compute, the names of what these kernels write, in order."""
    tensors, nodes, values = graph.problem.tensors(), model.graph.nodes(), model.graph.values()

    def name(tensor: int) -> str:
        return values[nodes[tensors["position"][tensor]].outputs[tensors["output"][tensor]]].name

    found: dict[str, list[str]] = {}
    for members, _, _ in graph.kernels(configuration):
        for member in members:
            found.setdefault(name(member), []).append(name(members[0]))
    return found


def annotated(model: OnnxModel, graph: FusionGraph, configuration: np.ndarray) -> CheckedModel:
    """Returns the model, cleaned up, with the kernels of a plan as metadata of its operators."""
    exported, kernels = model.export_checked(model.graph), kernels_by_value(model, graph, configuration)
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(exported.skeleton)
    for node in skeleton.graph.node:
        roots = dict.fromkeys(root for output in node.output for root in kernels.get(output, ()))
        if roots:
            node.metadata_props.add(key=KERNELS, value=",".join(roots))
    skeleton.ir_version = max(skeleton.ir_version, 10)  # the first that has metadata of nodes
    return dataclasses.replace(exported, skeleton=skeleton)


def with_fused_operators(model: CheckedModel) -> tuple[CheckedModel, int]:
    """Returns an annotated model in which ONNX Runtime's operators stand for the groups that it has, and their number.

    A group is written out if the first operator has no reader but the second, and all kernels of the first have the
    second too.
    """
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    nodes = list(skeleton.graph.node)
    readers = Counter(name for node in nodes for name in node.input)
    readers.update(output.name for output in skeleton.graph.output)
    producer = {name: node for node in nodes for name in node.output}
    replaced: dict[int, onnx.NodeProto | None] = {}
    for node in nodes:
        fused = _fused(node, producer, readers, model)
        if fused is not None:
            first = producer[node.input[0]]
            replaced[id(first)], replaced[id(node)] = None, fused
    kept = [replaced.get(id(node), node) for node in nodes]
    del skeleton.graph.node[:]
    skeleton.graph.node.extend(node for node in kept if node is not None)
    count = len(replaced) // 2
    if count and MICROSOFT not in {each.domain for each in skeleton.opset_import}:
        skeleton.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return dataclasses.replace(model, skeleton=skeleton), count


def _kernels(node: onnx.NodeProto) -> set[str]:
    text = next((prop.value for prop in node.metadata_props if prop.key == KERNELS), "")
    return set(text.split(",")) if text else set()


def _fused(
    node: onnx.NodeProto, producer: dict[str, onnx.NodeProto], readers: Counter[str], model: CheckedModel
) -> onnx.NodeProto | None:
    """Returns the operator that stands for a node and the producer of its first operand; None if there is none."""
    first = producer.get(node.input[0]) if node.input and node.domain == "" else None
    if first is None or first.domain != "" or readers[node.input[0]] != 1:
        return None
    if not _kernels(first) or not _kernels(first) <= _kernels(node):
        return None
    if first.op_type in _LIBRARY and node.op_type in _ACTIVATIONS:
        fused = _made(_LIBRARY[first.op_type], first.input, node)
        fused.attribute.extend(first.attribute)
        fused.attribute.append(helper.make_attribute("activation", node.op_type))
        slope = next((each.f for each in node.attribute if each.name == "alpha"), 0.01)
        if node.op_type == "LeakyRelu":
            name = "activation_params" if first.op_type == "Conv" else "activation_alpha"
            fused.attribute.append(helper.make_attribute(name, [slope] if first.op_type == "Conv" else slope))
        return fused
    plain = not any(each.name == "approximate" and each.s == b"tanh" for each in node.attribute)
    if first.op_type == "Add" and node.op_type == "Gelu" and plain:
        biases = [name for name in first.input if name in model.tensors and len(model.tensors[name].shape) == 1]
        if len(biases) == 1:
            return _made("BiasGelu", [*(name for name in first.input if name not in biases), *biases], node)
    return None


def _made(op_type: str, inputs: Iterable[str], node: onnx.NodeProto) -> onnx.NodeProto:
    fused = helper.make_node(op_type, list(inputs), list(node.output), name=node.name, domain=MICROSOFT)
    fused.metadata_props.extend(node.metadata_props)
    return fused
