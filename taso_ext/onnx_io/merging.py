"""One model for all sizes of symbolic dimensions, from exports of the same rewrites at several sizes.

What is equal in all exports does not depend on the size. Of what differs, declared shapes are left out, and the sizes
that Reshape, Expand and Slice name are written in the form that follows the operand: 0 (copy the dimension) and -1
(what remains) in the target of a Reshape, 1 (as in the operand) in that of an Expand, and the largest number as the end
of a Slice. Anything else that differs depends on the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from onnx import AttributeProto

from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import UNKNOWN, CheckedModel
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, fresh_name, graphs_of, read_names, value_names
from taso_ext.onnx_io.weights.handles import content_handle, lazy_tensor

_TO_THE_END = np.iinfo(np.int64).max
Dims = tuple[int, ...]


class DependsOnSizeError(ModelError):
    """Exports at several sizes differ; the text says what depends on the size, as part of a sentence."""


def merged(models: Sequence[CheckedModel]) -> CheckedModel:
    """Returns the model of which all given ones are cases; the first one gives the names.

    Args:
      models: exports of one model with the same rewrites, each at other sizes of its symbolic dimensions.
    Raises:
      DependsOnSizeError: something in the graph depends on the sizes.
    """
    merging = _Merging(models)
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(models[0].skeleton)
    if len({model.opset for model in models}) > 1:
        raise DependsOnSizeError("the opset depends on it")
    merging.merge(skeleton.graph, [model.skeleton.graph for model in models])
    read = read_names(skeleton.graph)
    tensors = {name: tensor for name, tensor in (models[0].tensors | merging.made).items() if name in read}
    return replace(models[0], skeleton=skeleton, tensors=tensors, known_types=None)


class _Merging:
    """A walk through several models at once.

    Attributes:
      made: constants that follow the operand in place of constants that differ, by name.
    """

    def __init__(self, models: Sequence[CheckedModel]) -> None:
        self._models = models
        self._names: list[dict[str, str]] = [{} for _ in models]  # of each model's values in the first model
        self._used = value_names(models[0].skeleton.graph) | models[0].tensors.keys()
        self.made: dict[str, ir.TensorProtocol] = {}

    def merge(self, result: onnx.GraphProto, graphs: Sequence[onnx.GraphProto]) -> None:
        """Makes `result`, a copy of the first graph, the graph of which all are cases."""
        for values in zip(*(graph.input for graph in graphs), strict=True):
            self._identify([value.name for value in values])
        for tensors in zip(*(graph.initializer for graph in graphs), strict=False):
            self._identify([tensor.name for tensor in tensors])
            if len({content_handle(tensor.name, lazy_tensor(tensor)) for tensor in tensors}) > 1:
                raise DependsOnSizeError(f"the constant '{tensors[0].name}' depends on it")
        for position, nodes in enumerate(zip(*(graph.node for graph in graphs), strict=False)):
            self._merge_nodes(result.node[position], nodes)
        for field in ("initializer", "node", "output"):
            if len({len(getattr(graph, field)) for graph in graphs}) > 1:
                raise DependsOnSizeError("the number of operators depends on it")
        for values in zip(*(graph.output for graph in graphs), strict=True):
            if len({self._name(index, value.name) for index, value in enumerate(values)}) > 1:
                raise DependsOnSizeError(f"the output '{values[0].name}' depends on it")
        for field in ("input", "output"):
            for value, *each in zip(getattr(result, field), *(getattr(graph, field) for graph in graphs), strict=True):
                if len({_content(declared.type) for declared in each}) > 1:
                    _forget_shape(value)
        for value in result.value_info:
            _forget_shape(value)

    def _merge_nodes(self, result: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> None:
        first = nodes[0]
        for node in nodes:
            if (node.op_type, node.domain) != (first.op_type, first.domain) or len(node.input) != len(first.input):
                raise _dependent(first)
        for position in range(len(first.input)):
            self._merge_inputs(result, nodes, position)
        self._merge_attributes(result, nodes)
        if len({len(node.output) for node in nodes}) > 1:
            raise _dependent(first)
        for outputs in zip(*(node.output for node in nodes), strict=True):
            self._identify(outputs)

    def _merge_inputs(self, result: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], position: int) -> None:
        names = [node.input[position] for node in nodes]
        tensors = [model.tensors.get(name) for model, name in zip(self._models, names, strict=True)]
        constants = [tensor for tensor in tensors if tensor is not None]
        if not constants:
            if len({self._name(index, name) for index, name in enumerate(names)}) > 1:
                raise _dependent(nodes[0])
        elif len(constants) < len(tensors):
            raise _dependent(nodes[0])
        elif not _equal(names, constants):
            result.input[position] = self._general(nodes, position, constants)

    def _general(self, nodes: Sequence[onnx.NodeProto], position: int, tensors: Sequence[ir.TensorProtocol]) -> str:
        """Returns the name of a new constant that follows the operand and means each of the given ones in its case."""
        first = nodes[0]
        operands = [
            model.types.get(node.input[0], UNKNOWN).dims for model, node in zip(self._models, nodes, strict=True)
        ]
        known = [dims for dims in operands if dims is not None]
        found = None
        if len(known) == len(nodes) and all(tensor.dtype == ir.DataType.INT64 for tensor in tensors):
            found = self._following(first, position, [tensor.numpy() for tensor in tensors], known)
        if found is None:
            raise _dependent(first)
        name = fresh_name(first.input[position], self._used)
        self.made[name] = ir.tensor(np.asarray(found, np.int64))
        return name

    def _following(
        self, node: onnx.NodeProto, position: int, given: Sequence[np.ndarray], operands: Sequence[Dims]
    ) -> list[int] | None:
        """Returns sizes that follow the operand; None if there are none.

        Args:
          given: the sizes in each case, as vectors.
          operands: the shape of the operand in each case.
        """
        if node.domain not in DEFAULT_DOMAINS or len({vector.shape for vector in given}) > 1:
            return None
        columns = [tuple(int(vector[axis]) for vector in given) for axis in range(len(given[0]))]
        if (node.op_type, position) == ("Reshape", 1) and not node.attribute:
            return _reshape_target(columns, operands)
        if (node.op_type, position) == ("Expand", 1):
            return _expand_target(columns, operands)
        if (node.op_type, position) == ("Slice", 2):
            axes = self._models[0].tensors.get(node.input[3]) if len(node.input) > 3 else None
            return None if axes is None else _slice_ends(columns, operands, [int(axis) for axis in axes.numpy()])
        return None

    def _merge_attributes(self, result: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> None:
        attributes = [{each.name: each for each in node.attribute} for node in nodes]
        if any(each.keys() != attributes[0].keys() for each in attributes):
            raise _dependent(nodes[0])
        for target in result.attribute:
            alike = [each[target.name] for each in attributes]
            if graphs_of(target):
                for number, graph in enumerate(graphs_of(target)):
                    self.merge(graph, [graphs_of(each)[number] for each in alike])
            elif len({_content(each) for each in alike}) > 1:
                raise _dependent(nodes[0])

    def _identify(self, names: Sequence[str]) -> None:
        """Notes that values of these names, one of each model, are the same value."""
        for known, name in zip(self._names, names, strict=True):
            known[name] = names[0]

    def _name(self, index: int, name: str) -> str:
        return self._names[index].get(name, name)


def _content(message: AttributeProto | onnx.TypeProto) -> bytes:
    return message.SerializeToString(deterministic=True)


def _forget_shape(value: onnx.ValueInfoProto) -> None:
    if value.type.HasField("tensor_type"):
        value.type.tensor_type.ClearField("shape")


def _equal(names: Sequence[str], tensors: Sequence[ir.TensorProtocol]) -> bool:
    if all(tensor is tensors[0] for tensor in tensors):
        return True
    handles = {content_handle(name, tensor) for name, tensor in zip(names, tensors, strict=True)}
    return len(handles) == 1


def _reshape_target(columns: Sequence[tuple[int, ...]], operands: Sequence[Dims]) -> list[int] | None:
    found = []
    for axis, sizes in enumerate(columns):
        if len(set(sizes)) == 1 and sizes[0] > 0:
            found.append(sizes[0])
        elif all(axis < len(dims) and dims[axis] == size for dims, size in zip(operands, sizes, strict=True)):
            found.append(0)
        else:
            found.append(-1)
    return found if found.count(-1) <= 1 else None


def _expand_target(columns: Sequence[tuple[int, ...]], operands: Sequence[Dims]) -> list[int] | None:
    found = []
    for axis, sizes in enumerate(columns):
        behind = len(columns) - axis
        if len(set(sizes)) == 1:
            found.append(sizes[0])
        elif all(behind <= len(dims) and dims[-behind] == size for dims, size in zip(operands, sizes, strict=True)):
            found.append(1)
        else:
            return None
    return found


def _slice_ends(columns: Sequence[tuple[int, ...]], operands: Sequence[Dims], axes: Sequence[int]) -> list[int] | None:
    found = []
    for axis, ends in zip(axes, columns, strict=True):
        if all(end >= dims[axis] for dims, end in zip(operands, ends, strict=True)):
            found.append(int(_TO_THE_END))
        elif len(set(ends)) == 1:
            found.append(ends[0])
        else:
            return None
    return found


def _dependent(node: onnx.NodeProto) -> DependsOnSizeError:
    return DependsOnSizeError(f"the operator {node.op_type} '{node.name or node.output[0]}' depends on it")
