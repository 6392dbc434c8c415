"""A model taken apart: its structure, small enough to copy and analyse freely, and its tensors, read when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from taso_ext.errors import ModelError
from taso_ext.onnx_io.weights.handles import static_dims, tensor_proto
from taso_ext.onnx_io.weights.lifting import LARGEST_INLINE, lift_weights
from taso_ext.onnx_io.weights.mapped_files import MappedFiles
from taso_ext.onnx_io.weights.sparse_tensors import dense_tensor

OLDEST_IR = 4
"""From IR version 4 on, initializers need not be listed as inputs."""


@dataclass(frozen=True)
class DetachedModel:
    """A model whose weights are held beside it, as handles.

    Attributes:
      skeleton: the model without initializers or large constants; nodes still refer to them by name.
      tensors: constants by name; their values are read from the source model or its files when asked for.
      defaults: default values of graph inputs that a caller may override (listed initializers from IR version 4 on).
    """

    skeleton: onnx.ModelProto
    tensors: dict[str, ir.TensorProtocol]
    defaults: dict[str, ir.TensorProtocol] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in (*self.tensors.values(), *self.defaults.values()))


def detach(
    model: onnx.ModelProto | DetachedModel, freeze_initializers: bool = False, files: MappedFiles | None = None
) -> DetachedModel:
    """Takes a model apart without copying or changing its weights; one that is already apart is returned as it is.

    Below IR version 4, and with `freeze_initializers`, initializers that are also graph inputs become plain constants.
    Sparse tensors become dense ones, and large constants inside nested graphs become captured ones: operators see no
    difference.

    Args:
      files: where the model's external data lie.
    Raises:
      ModelError: a tensor that cannot be read, or a name that two initializers have.
    """
    if isinstance(model, DetachedModel):
        return model
    files = files or MappedFiles()
    skeleton = _copy_without_initializers(model)
    named = [(tensor.name, files.tensor(tensor)) for tensor in model.graph.initializer]
    named += [(sparse.values.name, dense_tensor(sparse, files)) for sparse in model.graph.sparse_initializer]
    tensors = _by_unique_name(named)
    lift_weights(skeleton, tensors, files)
    listed = dict.fromkeys(value.name for value in skeleton.graph.input if value.name in tensors)
    if model.ir_version >= OLDEST_IR and not freeze_initializers:
        return DetachedModel(skeleton, tensors, {name: tensors.pop(name) for name in listed})
    kept = [value for value in skeleton.graph.input if value.name not in tensors]
    del skeleton.graph.input[:]
    skeleton.graph.input.extend(kept)
    if 0 < model.ir_version < OLDEST_IR:
        skeleton.ir_version = OLDEST_IR
    return DetachedModel(skeleton, tensors)


def attach(detached: DetachedModel) -> onnx.ModelProto:
    """The whole model again, with its own copy of every tensor."""
    model = onnx.ModelProto()
    model.CopyFrom(detached.skeleton)
    for name, tensor in (detached.tensors | detached.defaults).items():
        model.graph.initializer.append(tensor_proto(tensor, name))
    return model


def for_inference(detached: DetachedModel) -> onnx.ModelProto:
    """A copy of the skeleton that shape inference can read: small tensors in place, large ones as typed inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(detached.skeleton)
    for name, tensor in detached.tensors.items():
        if tensor.size <= LARGEST_INLINE:
            model.graph.initializer.append(tensor_proto(tensor, name))
        else:
            kind = onnx.helper.make_tensor_value_info(name, tensor.dtype.value, static_dims(tensor))
            model.graph.input.append(kind)
    return model


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
