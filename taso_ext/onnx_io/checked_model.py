"""The one form that a model has inside: its structure, handles of its weights, and the types of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import onnx
import onnx_ir as ir

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies, declared_values
from taso_ext.onnx_io.weights.handles import MappedFiles, static_dims, tensor_proto
from taso_ext.onnx_io.weights.lifting import LARGEST_INLINE, take_weights

OLDEST_IR = 4
"""From IR version 4 on, initializers need not be listed as inputs."""
_PLAIN_OPSET = 13
"""The opset of a model that imports other domains alone, should it need an operator of ONNX's own."""
_LONGEST_PROPAGATED = 1 << 19
"""Elements. Inference takes every vector for a possible shape, and spends 0.2 µs and a message on each element."""


class ValueType(NamedTuple):
    """Type of a value: `dtype` of onnx.TensorProto (0: not a tensor, or unknown), `dims` (None: not static)."""

    dtype: int
    dims: tuple[int, ...] | None


UNKNOWN = ValueType(0, None)


@dataclass(frozen=True)
class CheckedModel:
    """A model as the program works with it: small enough to copy and analyse freely, whatever its weights take.

    `reading.read_model` makes it of files and of other people's models, and checks them; the clean-up, the exporter and
    the cost models make new ones of it. Nothing changes one that exists. `to_proto` leads back to what onnx knows.

    Attributes:
      skeleton: the model without initializers or large constants; nodes still refer to them by name.
      tensors: constants by name; their values are read from the source model or its files when asked for.
      defaults: default values of graph inputs that a caller may override (listed initializers from IR version 4 on).
      known_types: types that whoever made the model knew already; `types` then infers nothing.
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
        constants. Sparse tensors become dense ones, and large constants inside nested graphs become captured ones:
        operators see no difference.

        Args:
          files: where the model's external data lie.
        Raises:
          ModelError: a tensor that cannot be read, or a name that two initializers have.
        """
        skeleton, tensors = take_weights(proto, files or MappedFiles())
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
        """The whole model in one message, with its own copy of every tensor."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.skeleton)
        for name, tensor in (*self.tensors.items(), *self.defaults.items()):
            proto.graph.initializer.append(tensor_proto(tensor, name))
        return proto

    def for_onnx(self) -> onnx.ModelProto:
        """A copy that onnx's checker, inference and converters read: small tensors in place, large ones as inputs."""
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
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in (*self.tensors.values(), *self.defaults.values()))

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators that the model uses."""
        return opset_of(self.skeleton)

    @cached_property
    def types(self) -> Mapping[str, ValueType]:
        """Types of all top-level values by name; values that inference does not reach are missing.

        Declared shapes of outputs are not trusted: what a rewrite relies on is derived from the inputs alone.
        """
        if self.known_types is not None:
            return self.known_types
        inferred = infer_shapes(without_output_shapes(self.for_onnx())).graph
        values = (*inferred.value_info, *inferred.output, *inferred.input)
        return {value.name: _value_type(value.type) for value in values} | types_of(self.tensors)


def opset_of(proto: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that a model uses."""
    return next((each.version for each in proto.opset_import if each.domain in DEFAULT_DOMAINS), _PLAIN_OPSET)


def types_of(tensors: Mapping[str, ir.TensorProtocol]) -> dict[str, ValueType]:
    """Types of constants by name."""
    return {name: ValueType(tensor.dtype.value, static_dims(tensor)) for name, tensor in tensors.items()}


def infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred types; where inference finds a contradiction, it leaves that value unknown.

    Raises:
      ModelError: the contradiction is between types that are declared.
    """
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
    """Elements of the largest declared value or initializer."""
    declared = ([dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in declared_values(proto.graph))
    return max(map(math.prod, (*declared, *(tensor.dims for tensor in proto.graph.initializer))), default=0)


def _has_long_vector(proto: onnx.ModelProto) -> bool:
    shapes = (value.type.tensor_type.shape.dim for value in (*declared_values(proto.graph), *proto.graph.output))
    return any(len(dims) == 1 and dims[0].dim_value > _LONGEST_PROPAGATED for dims in shapes)


def without_output_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, changed: its outputs have their types, but not their shapes."""
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return proto


def without_inferable_shapes(proto: onnx.ModelProto, known: set[str]) -> onnx.ModelProto:
    """The same model, changed: it lacks declared shapes that inference finds by itself.

    Files often declare stale shapes, and those would win over the inferred ones.

    Args:
      known: names of values whose types are known without inference, beside inputs and initializers.
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


def _value_type(kind: onnx.TypeProto) -> ValueType:
    """The engine's view of an ONNX type."""
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    tensor = kind.tensor_type
    static = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return ValueType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim) if static else None)
