"""Division of a model into stages, each an ONNX model that one device runs in one go.

A device runs its stages one after another, in the order of a simulated step. A new stage begins where a device has to
wait for another one, and where another one waits for what was computed. So a stage reads all that it needs before it
begins, and hands over all that others need when it ends, and stages wait for one another in no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from environment.placement.errors import PlacementError
from environment.placement.problem import Assignment, PlacementProblem
from taso_ext import OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import captured_names


@dataclass(frozen=True)
class Stage:
    """A part of a model.

    Attributes:
      device: the number of its device.
      reads: the names of inputs of the model, and of results of other stages, that it reads.
      writes: the names of its results that other stages read or that the model returns.
      model: its operators as a model of their own.
    """

    device: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    model: CheckedModel


def operators_by_stage(problem: PlacementProblem, assignment: Assignment) -> list[tuple[int, list[int]]]:
    """Returns the device and the operators of each stage, in the order in which stages begin in a simulated step."""
    timeline = problem.timeline(assignment)
    arrives = {(copy.tensor, copy.destination): copy.end_ms for copy in timeline.copies}
    position = {task: at for at, task in enumerate(problem.order)}
    reads: dict[int, list[str]] = {}
    hands_over = set()
    for transfer in problem.transfers:
        if transfer.producer >= 0:
            for reader in transfer.readers:
                if timeline.devices[reader] != timeline.devices[transfer.producer]:
                    reads.setdefault(reader, []).append(transfer.tensor.name)
                    hands_over.add(transfer.producer)
    stages: list[tuple[float, int, list[int]]] = []
    for device in range(problem.machine.num_devices):
        closed = True
        for task in sorted(
            np.flatnonzero(timeline.devices == device).tolist(),
            key=lambda each: (timeline.begin_ms[each], timeline.end_ms[each], position[each]),
        ):
            if not closed:
                begin = stages[-1][0]
                closed = any(arrives[name, device] > begin for name in reads.get(task, ()))
            if closed:
                stages.append((float(timeline.begin_ms[task]), device, []))
            stages[-1][2].append(task)
            closed = task in hands_over
    members: dict[int, list[int]] = {}
    for operator, task in enumerate(problem.tasks.tolist()):
        members.setdefault(task, []).append(operator)
    ordered = sorted(stages, key=lambda stage: (stage[0], min(position[task] for task in stage[2])))
    return [(device, sorted(each for task in tasks for each in members[task])) for _, device, tasks in ordered]


def divide(model: OnnxModel, problem: PlacementProblem, assignment: Assignment) -> tuple[CheckedModel, list[Stage]]:
    """Returns a model as it is exported, and its stages.

    Args:
      model: the model that the problem's graph is of.
    Raises:
      PlacementError: a value that has to be handed over is no tensor of a known type.
      ModelError: the model cannot be exported.
    """
    exported = model.export_checked(model.graph)
    number_of = model.sketch(model.graph).computed_by
    nodes = list(exported.skeleton.graph.node)
    owner = [number_of.get(node.output[0], -1) for node in nodes]
    if not len(problem.graph):
        raise PlacementError("the model computes nothing at run time, so there is nothing to place.")
    parts = operators_by_stage(problem, assignment)
    stage_of = {operator: stage for stage, (_, operators) in enumerate(parts) for operator in operators}
    return exported, _as_models(exported, nodes, [stage_of.get(each, -1) for each in owner], [at for at, _ in parts])


def _as_models(
    exported: CheckedModel, nodes: Sequence[onnx.NodeProto], stage_of: Sequence[int], devices: Sequence[int]
) -> list[Stage]:
    """Returns the stages as models.

    Args:
      stage_of: the stage of each node; -1 for one that is computed from weights alone, which each stage that reads its
        result computes itself.
      devices: the device of each stage.
    """
    producer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    returned = [value.name for value in exported.skeleton.graph.output]
    # What the model returns without computing it at run time is returned by the first stage.
    constant = [
        name for name in returned if name in exported.tensors or (name in producer and stage_of[producer[name]] < 0)
    ]
    members = [
        _with_weight_nodes(stage, nodes, stage_of, producer, () if stage else constant) for stage in range(len(devices))
    ]
    reads: list[dict[str, None]] = []
    constants = exported.tensors.keys() | exported.defaults.keys()
    for stage, own in enumerate(members):
        inside = {name for at in own for name in nodes[at].output}
        names = (name for at in own for name in _read_by(nodes[at]))
        reads.append({name: None for name in names if name not in inside and name not in constants})
        assert all(stage_of[producer[name]] != stage for name in reads[-1] if name in producer)
    wanted = {name for each in reads for name in each} | set(returned)
    stages = []
    for stage, device in enumerate(devices):
        own = members[stage]
        writes = [name for at in own if stage_of[at] == stage for name in nodes[at].output if name in wanted]
        writes += () if stage else constant
        if own:
            model = _part(exported, [nodes[at] for at in own], list(reads[stage]), writes, f"stage {stage}")
            stages.append(Stage(device, tuple(reads[stage]), tuple(writes), model))
    return stages


def _read_by(node: onnx.NodeProto) -> Iterable[str]:
    return (name for name in (*node.input, *captured_names(node)) if name)


def _with_weight_nodes(
    stage: int,
    nodes: Sequence[onnx.NodeProto],
    stage_of: Sequence[int],
    producer: dict[str, int],
    returned: Iterable[str],
) -> list[int]:
    """Returns the positions of a stage's nodes, and of those that compute weights which they read or it returns."""
    kept = {at for at, each in enumerate(stage_of) if each == stage}
    pending = [*(name for at in kept for name in _read_by(nodes[at])), *returned]
    while pending:
        at = producer.get(pending.pop(), -1)
        if at >= 0 and stage_of[at] < 0 and at not in kept:
            kept.add(at)
            pending += _read_by(nodes[at])
    return sorted(kept)


def _part(
    exported: CheckedModel, nodes: Sequence[onnx.NodeProto], reads: Sequence[str], writes: Sequence[str], name: str
) -> CheckedModel:
    source, given = exported.skeleton, {value.name: value for value in exported.skeleton.graph.input}
    proto = onnx.ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions)
    proto.graph.name = name
    proto.graph.node.extend(nodes)
    proto.graph.input.extend(given[each] if each in given else _value(exported, each) for each in reads)
    proto.graph.output.extend(_value(exported, each) for each in writes)
    used = {each for node in nodes for each in _read_by(node)} | set(writes)
    tensors = {each: tensor for each, tensor in exported.tensors.items() if each in used}
    defaults = {each: tensor for each, tensor in exported.defaults.items() if each in used}
    proto.graph.input.extend(given[each] for each in defaults)
    return CheckedModel(proto, tensors, defaults)


def _value(exported: CheckedModel, name: str) -> onnx.ValueInfoProto:
    known = exported.types.get(name)
    if known is None or not known.dtype:
        declared = {each.name: each for each in (*exported.skeleton.graph.output, *exported.skeleton.graph.value_info)}
        if name in declared:
            return declared[name]
        raise PlacementError(
            f"the type of '{name}' is not known, so it cannot be handed from one device to another. Place its producer "
            "and its readers on one device, with fewer groups, or run shape inference on the model first."
        )
    return helper.make_tensor_value_info(name, known.dtype, known.dims)
