"""Fusion plans as ONNX models: annotations for a compiler, and the fused operators that ONNX Runtime has.

Every operator of a plan gets the metadata `rlflow.fusion.kernels`: the names of the results that the kernels with this
operator write, separated by commas. An operator that several kernels compute has several. Views have no kernel.

ONNX Runtime has one operator for some groups (`fused_operators`). They are written out where a plan has all of the
group in one kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper

from environment.fusion.fused_operators import KERNELS, MICROSOFT, SLOW_ON_CPUS, groups
from environment.fusion.graphs import FusionGraph
from taso_ext import OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel


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


def with_fused_operators(model: CheckedModel, *, without: Collection[str] = SLOW_ON_CPUS) -> tuple[CheckedModel, int]:
    """Returns an annotated model with ONNX Runtime's operators in place of the groups that it has, and their number.

    Args:
      without: operators that are not used, by default those that are slow on CPUs.
    """
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    found = [
        each for each in groups(dataclasses.replace(model, skeleton=skeleton)) if each.fused.op_type not in without
    ]
    inner = {id(node) for group in found for node in group.inner}
    fused = {id(group.root): group.fused for group in found}
    kept = [fused.get(id(node), node) for node in skeleton.graph.node if id(node) not in inner]
    del skeleton.graph.node[:]
    skeleton.graph.node.extend(kept)
    if found and MICROSOFT not in {each.domain for each in skeleton.opset_import}:
        skeleton.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return dataclasses.replace(model, skeleton=skeleton), len(found)
