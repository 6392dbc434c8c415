"""Groups of operators by themselves: what a price says that fusing one saves, and what it saves by the clock.

A group becomes two models with the same inputs and weights, one of its operators and one of the fused operator. The
saving is predicted by the prices of a fusion device: the kernels of the operators, each for itself, against one kernel
for all. It is measured by interleaved pairs of both models. ONNX Runtime fuses operators itself at higher levels, and
so both are run at its level `disabled`, where it runs a model as it stands.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from environment.fusion.fused_operators import MICROSOFT, Group, groups
from environment.fusion.graphs import FusionGraph
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from taso_ext import FusionPlan, OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel

RUNTIME = OnnxRuntime("cpu", threads=1, level="disabled")
"""What both models run in."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class SingleGroup:
    """A group as two models that compute the same.

    Attributes:
      kind: its operators, such as `Conv+Relu`.
      fused_operator: the operator of ONNX Runtime.
      unfused, fused: the models.
      inner_bytes: size of the results that the fused operator does not write.
    """

    kind: str
    fused_operator: str
    unfused: CheckedModel
    fused: CheckedModel
    inner_bytes: int

    @property
    def signature(self) -> str:
        """A text that is the same for groups with the same operators, attributes and shapes."""
        weights = [(name, tuple(tensor.shape), int(tensor.dtype)) for name, tensor in self.unfused.tensors.items()]
        structure = self.unfused.skeleton.SerializeToString(deterministic=True)
        return hashlib.sha256(structure + repr(weights).encode()).hexdigest()[:16]

    def predicted_ms(self, device: str) -> tuple[float, float]:
        """Returns the prices of the operators as kernels of their own and as one kernel, in ms.

        Raises:
          ValueError: the rules of fusion do not allow this group in one kernel.
        """
        graph = FusionGraph.of(OnnxModel.load(self.unfused.to_proto(), clean="none").graph, device, self.kind)
        together = np.zeros(len(graph.problem), np.uint8)
        apart = together.copy()
        together[graph.configurable] = 1
        if len(graph.kernels(together)) > 1:
            raise ValueError(f"{self.kind} is no kernel by the rules of fusion")
        return FusionPlan(graph.problem, apart).cost_ms(), FusionPlan(graph.problem, together).cost_ms()

    def timed(self, effort: Effort) -> Timing:
        """Times the fused operator against its group, on one thread of this CPU."""
        unfused, fused = Variant("unfused", RUNTIME, self.unfused), Variant("fused", RUNTIME, self.fused)
        return measure(unfused, [fused], effort)


def single_groups(model: CheckedModel) -> list[SingleGroup]:
    """Returns the groups of a model that have a fused operator, whether a plan fuses them or not, each shape once."""
    found = (_single(model, group) for group in groups(model, planned=False))
    return list({each.signature: each for each in found}.values())


def _single(model: CheckedModel, group: Group) -> SingleGroup:
    members = (*group.inner, group.root)
    names: dict[str, str] = {"": ""}
    for node in members:
        for name in (*node.input, *node.output):
            names.setdefault(name, f"v{len(names)}")
    made = {name for node in members for name in node.output}
    read = list(dict.fromkeys(name for node in members for name in node.input if name and name not in made))
    tensors = {names[name]: model.tensors[name] for name in read if name in model.tensors}
    typed = [_declared(model, name, names[name]) for name in (*read, group.root.output[0]) if name not in model.tensors]
    opsets = [helper.make_opsetid("", model.opset), helper.make_opsetid(MICROSOFT, 1)]

    def of(nodes: tuple[onnx.NodeProto, ...]) -> CheckedModel:
        graph = helper.make_graph([_renamed(node, names) for node in nodes], "group", typed[:-1], typed[-1:])
        return CheckedModel(helper.make_model(graph, opset_imports=opsets, ir_version=10), tensors)

    elements = sum(math.prod(model.types[node.output[0]].dims or ()) for node in group.inner)
    return SingleGroup(group.kind, group.fused.op_type, of(members), of((group.fused,)), FLOAT_BYTES * elements)


def _declared(model: CheckedModel, name: str, new: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(new, model.types[name].dtype, model.types[name].dims)


def _renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    inputs, outputs = [names[name] for name in node.input], [names[name] for name in node.output]
    copy = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
    copy.attribute.extend(node.attribute)
    return copy
