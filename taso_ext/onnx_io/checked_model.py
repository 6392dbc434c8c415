"""The internal form of a model: its structure, handles of its weights, and the types of its values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import onnx
import onnx_ir as ir
from onnx import AttributeProto

from taso_ext.errors import ModelError
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, fresh_name, graphs_of, rename_captured, value_names
from taso_ext.onnx_io.shape_inference import infer_shapes, without_output_shapes
from taso_ext.onnx_io.weights.handles import (
    EXTERNAL,
    MappedFiles,
    content_bytes,
    dense_tensor,
    static_dims,
    tensor_proto,
)

OLDEST_IR = 4
"""From IR version 4 on, initializers need not be listed as inputs."""
_PLAIN_OPSET = 13
"""The opset of a model that imports only other domains, in case it needs one of ONNX's own operators."""
LARGEST_INLINE = 1024
"""The most elements of a tensor whose values shape inference sees; shapes, axes, pads and scalars have far fewer."""


class ValueType(NamedTuple):
    """The type of a value.

    Attributes:
      dtype: the element type as in onnx.TensorProto; 0 if the value is no tensor or its type is unknown.
      dims: the shape; None if it is not static.
    """

    dtype: int
    dims: tuple[int, ...] | None


UNKNOWN = ValueType(0, None)


@dataclass(frozen=True)
class CheckedModel:
    """A model in the form that the program works with: cheap to copy and to analyse, however large its weights are.

    `reading.read_model` makes one from a file or from a user's model, and checks it. The clean-up, the exporter and the
    cost models make new ones from it. Nothing changes an existing one. `to_proto` returns the form that onnx knows.

    Attributes:
      skeleton: the model without initializers or large constants; nodes still refer to them by name.
      tensors: constants by name; their values are read from the source model or its files when they are needed.
      defaults: default values, by name, of graph inputs that a caller may override (from IR version 4 on, initializers
        that are also graph inputs).
      known_types: the types of values by name, if they are known already; `types` then infers nothing.
    """

    skeleton: onnx.ModelProto
    tensors: dict[str, ir.TensorProtocol]
    defaults: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    known_types: Mapping[str, ValueType] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_proto(
        cls, proto: onnx.ModelProto, *, freeze_initializers: bool = False, files: MappedFiles | None = None
    ) -> CheckedModel:
        """Takes a model apart without copying or changing its weights; `reading.read_model` checks it as well.

        Below IR version 4, and with `freeze_initializers`, initializers that are also graph inputs become plain
        constants. Sparse tensors become dense. Large constants inside nested graphs move to the top level, where the
        nested graphs capture them. Operators see no difference.

        Args:
          files: the files that hold the model's external data.
        Raises:
          ModelError: a tensor cannot be read, or two initializers have the same name.
        """
        skeleton, tensors = _take_weights(proto, files or MappedFiles())
        listed = dict.fromkeys(value.name for value in skeleton.graph.input if value.name in tensors)
        if proto.ir_version >= OLDEST_IR and not freeze_initializers:
            return cls(skeleton, tensors, {name: tensors.pop(name) for name in listed})
        kept = [value for value in skeleton.graph.input if value.name not in tensors]
        del skeleton.graph.input[:]
        skeleton.graph.input.extend(kept)
        if 0 < proto.ir_version < OLDEST_IR:
            skeleton.ir_version = OLDEST_IR
        return cls(skeleton, tensors)

    def to_proto(self) -> onnx.ModelProto:
        """Returns the whole model in one message, with its own copy of every tensor."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.skeleton)
        for name, tensor in (*self.tensors.items(), *self.defaults.items()):
            proto.graph.initializer.append(tensor_proto(tensor, name))
        return proto

    def for_onnx(self) -> onnx.ModelProto:
        """Returns a copy for onnx's checker, shape inference and version converter.

        Small tensors are initializers; large ones become inputs, without their values.
        """
        proto = onnx.ModelProto()
        proto.CopyFrom(self.skeleton)
        for name, tensor in self.tensors.items():
            if tensor.size <= LARGEST_INLINE:
                proto.graph.initializer.append(tensor_proto(tensor, name))
            else:
                kind = onnx.helper.make_tensor_value_info(name, tensor.dtype.value, static_dims(tensor))
                proto.graph.input.append(kind)
        return proto

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in (*self.tensors.values(), *self.defaults.values()))

    @property
    def file_bytes(self) -> int:
        """The size of the model in files, which is that of its tensors and of its structure."""
        return self.nbytes + self.skeleton.ByteSize()

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators that the model uses."""
        return opset_of(self.skeleton)

    @cached_property
    def types(self) -> Mapping[str, ValueType]:
        """The types of all top-level values by name; values whose type inference does not find are missing.

        Declared shapes of outputs are not trusted: rewrites rely only on types that are derived from the inputs.
        """
        if self.known_types is not None:
            return self.known_types
        inferred = infer_shapes(without_output_shapes(self.for_onnx())).graph
        values = (*inferred.value_info, *inferred.output, *inferred.input)
        return {value.name: value_type(value.type) for value in values} | types_of(self.tensors)


def opset_of(proto: onnx.ModelProto) -> int:
    """Returns the version of ONNX's own operators that a model uses."""
    return next((each.version for each in proto.opset_import if each.domain in DEFAULT_DOMAINS), _PLAIN_OPSET)


def types_of(tensors: Mapping[str, ir.TensorProtocol]) -> dict[str, ValueType]:
    """Returns the types of constants by name."""
    return {name: ValueType(tensor.dtype.value, static_dims(tensor)) for name, tensor in tensors.items()}


def value_type(kind: onnx.TypeProto) -> ValueType:
    """Returns an ONNX type as a `ValueType`; `UNKNOWN` if it is not the type of a tensor."""
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    tensor = kind.tensor_type
    static = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return ValueType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim) if static else None)


def _take_weights(proto: onnx.ModelProto, files: MappedFiles) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """Returns a copy of a model without its weights, and the weights by name.

    Large constants, and large initializers of nested graphs, are taken out as well; a nested graph then captures them
    under unused names. Tensors that must stay in the nodes are read from the files that hold them, and sparse tensors
    become dense.

    Raises:
      ModelError: a tensor cannot be read, or two initializers have the same name.
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
    """A helper that moves large tensors out of the nodes and nested graphs of a model."""

    def __init__(self, model: onnx.ModelProto, tensors: dict[str, ir.TensorProtocol], files: MappedFiles) -> None:
        self._model, self._tensors, self._files = model, tensors, files
        self._used: set[str] = set()

    def lift(self, graph: onnx.GraphProto, nested: bool) -> None:
        """Moves a graph's large constants out, and its large initializers if it is nested.

        A constant that is an output of a nested graph stays, because the outputs of a graph must be its own values.
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
        """Reads the data of the tensors that stay in a node's attributes, and treats the graphs inside the node.

        With `lifts`, large tensors move out of these graphs if the operator is one of ONNX's own. Otherwise they stay
        there: operators of other domains need not let a graph capture values.
        """
        for attribute in node.attribute:
            if attribute.type == AttributeProto.SPARSE_TENSOR and node.op_type == "Constant":
                dense = tensor_proto(dense_tensor(attribute.sparse_tensor, self._files), "")
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
            for tensor in _tensors(attribute):
                self._restore(tensor)
            for body in graphs_of(attribute):
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
        """Removes large initializers from the graph and returns them by name.

        Those in `given` stay, and so do those that are also inputs, because the position of an input counts.
        """
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
        """Copies the data of a tensor that lie in a file into the tensor itself."""
        if tensor.data_location == EXTERNAL:
            data = bytes(content_bytes(tensor.name, self._files.tensor(tensor)))
            del tensor.external_data[:]
            tensor.ClearField("data_location")
            tensor.raw_data = data

    def _fresh_name(self, name: str) -> str:
        if not self._used:
            self._used = value_names(self._model.graph) | self._tensors.keys()
        return fresh_name(name, self._used)


def _tensors(attribute: AttributeProto) -> Iterable[onnx.TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        return (attribute.t,)
    return attribute.tensors if attribute.type == AttributeProto.TENSORS else ()


def _large_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Returns the value of a Constant node if it is a large dense tensor, otherwise None."""
    if node.op_type != "Constant" or node.domain not in DEFAULT_DOMAINS:
        return None
    if len(node.attribute) != 1 or len(node.output) != 1:
        return None  # malformed: the checker refuses it
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
