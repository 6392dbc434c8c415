"""Taking the weights out of a model, so that copying and analysing its structure stays cheap."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
import onnx_ir as ir
from onnx import AttributeProto

from taso_ext.errors import ModelError
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, rename_captured, value_names
from taso_ext.onnx_io.weights.handles import EXTERNAL, MappedFiles, content_bytes, dense_tensor, tensor_proto

LARGEST_INLINE = 1024
"""Elements up to which a tensor is shown to shape inference: shapes, axes, pads and scalars are far below."""


def take_weights(proto: onnx.ModelProto, files: MappedFiles) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """A copy of a model without its weights, and those by name.

    Large constants, and large initializers of nested graphs, are taken out as well; in a nested graph they become
    values that it captures, of names that nothing else has. Tensors that must stay in the nodes are read from the files
    that hold them, and sparse ones become dense.

    Raises:
      ModelError: a tensor that cannot be read, or a name that two initializers have.
    """
    skeleton = _copy_without_initializers(proto)
    named = [(tensor.name, files.tensor(tensor)) for tensor in proto.graph.initializer]
    named += [(sparse.values.name, dense_tensor(sparse, files)) for sparse in proto.graph.sparse_initializer]
    tensors = _by_unique_name(named)
    lifting = _Lifting(skeleton, tensors, files)
    lifting.lift(skeleton.graph, nested=False)
    for function in skeleton.functions:
        for node in function.node:
            lifting.settle(node, lifts=False)
    return skeleton, tensors


class _Lifting:
    def __init__(self, model: onnx.ModelProto, tensors: dict[str, ir.TensorProtocol], files: MappedFiles) -> None:
        self._model, self._tensors, self._files = model, tensors, files
        self._used: set[str] = set()

    def lift(self, graph: onnx.GraphProto, nested: bool) -> None:
        """Moves a graph's large constants out, and its large initializers if it is nested.

        What a nested graph gives as it is stays: its outputs must be its own values.
        """
        given = {value.name for value in graph.output} if nested else set()
        moved = self._initializers(graph, given) if nested else {}
        kept = []
        for node in graph.node:
            value = _large_constant(node)
            if value is None or node.output[0] in given:
                self.settle(node, lifts=True)
                kept.append(node)
            else:
                moved[node.output[0]] = self._files.tensor(value)
        if len(kept) < len(graph.node):
            del graph.node[:]
            graph.node.extend(kept)
        if moved:
            self._keep(graph, moved, nested)

    def settle(self, node: onnx.NodeProto, lifts: bool) -> None:
        """Reads in the tensors that stay in a node's attributes; the graphs inside it are lifted from, or settled.

        Other domains need not let a graph capture values.
        """
        for attribute in node.attribute:
            if attribute.type == AttributeProto.SPARSE_TENSOR and node.op_type == "Constant":
                dense = tensor_proto(dense_tensor(attribute.sparse_tensor, self._files), "")
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
            for tensor in _tensors(attribute):
                self._restore(tensor)
            for body in _graphs(attribute):
                if lifts and node.domain in DEFAULT_DOMAINS:
                    self.lift(body, nested=True)
                else:
                    self._settle_graph(body)

    def _settle_graph(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._restore(tensor)
        for node in graph.node:
            self.settle(node, lifts=False)

    def _initializers(self, graph: onnx.GraphProto, given: set[str]) -> dict[str, ir.TensorProtocol]:
        """The large initializers, which the graph loses; not those that are inputs too: there the position counts."""
        staying = given | {value.name for value in graph.input}
        kept, moved = [], {}
        for tensor in graph.initializer:
            if math.prod(tensor.dims) <= LARGEST_INLINE or tensor.name in staying:
                self._restore(tensor)
                kept.append(tensor)
            else:
                moved[tensor.name] = self._files.tensor(tensor)
        if moved:
            del graph.initializer[:]
            graph.initializer.extend(kept)
        return moved

    def _keep(self, graph: onnx.GraphProto, moved: dict[str, ir.TensorProtocol], nested: bool) -> None:
        names = {name: self._fresh_name(name) if nested else name for name in moved}
        self._tensors |= {names[name]: tensor for name, tensor in moved.items()}
        if nested:
            rename_captured(graph, names)

    def _restore(self, tensor: onnx.TensorProto) -> None:
        """Gives a tensor that lies in a file its data."""
        if tensor.data_location == EXTERNAL:
            data = bytes(content_bytes(tensor.name, self._files.tensor(tensor)))
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = data

    def _fresh_name(self, name: str) -> str:
        if not self._used:
            self._used = value_names(self._model.graph) | self._tensors.keys()
        fresh, count = name, 0
        while fresh in self._used:
            count += 1
            fresh = f"{name}_{count}"
        self._used.add(fresh)
        return fresh


def _graphs(attribute: AttributeProto) -> Iterable[onnx.GraphProto]:
    if attribute.type == AttributeProto.GRAPH:
        return (attribute.g,)
    return attribute.graphs if attribute.type == AttributeProto.GRAPHS else ()


def _tensors(attribute: AttributeProto) -> Iterable[onnx.TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        return (attribute.t,)
    return attribute.tensors if attribute.type == AttributeProto.TENSORS else ()


def _large_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The value of a Constant node, where it is a large dense one."""
    if node.op_type != "Constant" or node.domain not in DEFAULT_DOMAINS:
        return None
    if len(node.attribute) != 1 or len(node.output) != 1:
        return None  # for the checker to refuse
    (attribute,) = node.attribute
    is_tensor = attribute.name == "value" and attribute.type == AttributeProto.TENSOR
    return attribute.t if is_tensor and math.prod(attribute.t.dims) > LARGEST_INLINE else None


def _by_unique_name(named: Iterable[tuple[str, ir.TensorProtocol]]) -> dict[str, ir.TensorProtocol]:
    tensors: dict[str, ir.TensorProtocol] = {}
    for name, tensor in named:
        if name in tensors:
            raise ModelError(f"two initializers have the name '{name}'; names must be unique. Export the model again.")
        tensors[name] = tensor
    return tensors


def _copy_without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    _copy_fields(model, copy, skip=("graph",))
    _copy_fields(model.graph, copy.graph, skip=("initializer", "sparse_initializer"))
    return copy


def _copy_fields(source: onnx.ModelProto | onnx.GraphProto, target: object, skip: tuple[str, ...]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in skip:
            continue
        if hasattr(value, "extend"):
            getattr(target, descriptor.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, descriptor.name).CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)
