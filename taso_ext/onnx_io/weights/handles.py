"""Tensors as handles: where their data lie, read only when asked for and copied only when they must be."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from taso_ext.errors import ModelError, one_paragraph, root_cause


def lazy_tensor(proto: onnx.TensorProto) -> ir.TensorProtocol:
    """A tensor whose values are read from `proto` whenever they are asked for; `proto` is never changed through it.

    Raises:
      ModelError: an unknown element type, a negative dimension, or strings in another number than the shape asks for.
    """
    dtype, dims = type_and_dims(proto)
    if dtype != ir.DataType.STRING:
        return ir.LazyTensor(
            lambda: ir.serde.TensorProtoTensor(proto), dtype=dtype, shape=ir.Shape(dims), **description(proto)
        )
    if len(proto.string_data) != math.prod(dims):
        raise ModelError(
            f"the initializer '{proto.name}' of shape {list(dims)} holds {len(proto.string_data):,} strings; the file "
            f"is damaged. Export or download it again."
        )
    return ir.StringTensor(list(proto.string_data), shape=ir.Shape(dims), **description(proto))


def content_handle(name: str, tensor: ir.TensorProtocol) -> str:
    """Hex digest of a tensor's type, shape and content.

    Raises:
      ModelError: if the tensor holds more or fewer bytes than its shape asks for.
    """
    dims = static_dims(tensor)
    digest = hashlib.sha256(f"{tensor.dtype.value}:{dims}:".encode())
    if tensor.dtype == ir.DataType.STRING:
        for text in tensor.numpy().reshape(-1):
            digest.update(len(text).to_bytes(8, "little") + bytes(text))
        return digest.hexdigest()[:32]
    data = content_bytes(name, tensor)
    if len(data) != nbytes(tensor.dtype, dims):
        raise wrong_size(name, dims, len(data), nbytes(tensor.dtype, dims))
    digest.update(data)
    return digest.hexdigest()[:32]


def content_bytes(name: str, tensor: ir.TensorProtocol) -> memoryview | bytes:
    """A tensor's bytes as ONNX stores them, without copying them where they lie in that form already.

    Raises:
      ModelError: if they cannot be read as the tensor's type and shape.
    """
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, np.ndarray) and raw.flags.c_contiguous and raw.nbytes == tensor.nbytes and _is_little(raw):
        return raw.reshape(-1).view(np.uint8).data
    with _reading(name):
        return tensor.tobytes()


def read_values(name: str, tensor: ir.TensorProtocol) -> np.ndarray:
    """A tensor's values.

    Raises:
      ModelError: if they cannot be read as the tensor's type and shape.
    """
    with _reading(name):
        return tensor.numpy()


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AssertionError, ir.serde.SerdeError) as error:
        reason = one_paragraph(root_cause(error)) or "its data do not fit its type and shape"
        raise ModelError(f"the tensor '{name}' is damaged: {reason}. Export the model again.") from error


def _is_little(array: np.ndarray) -> bool:
    return array.dtype.byteorder != ">" and np.little_endian


def tensor_proto(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """The tensor as a TensorProto of the given name, with its own copy of the data.

    Raises:
      ModelError: if the data cannot be read as the tensor's type and shape.
    """
    with _reading(name):
        proto = ir.serde.serialize_tensor(tensor)
    proto.name = name
    return proto


def tensor_header(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """The tensor as a TensorProto of the given name without any data."""
    proto = onnx.TensorProto(name=name, data_type=tensor.dtype.value, dims=static_dims(tensor))
    if tensor.doc_string:
        proto.doc_string = tensor.doc_string
    for key, value in tensor.metadata_props.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def static_dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The dims of a tensor that holds values, and so has no symbolic ones."""
    return tuple(int(size) for size in tensor.shape.numpy())


def nbytes(dtype: ir.DataType, dims: tuple[int, ...]) -> int:
    """Bytes that a tensor takes in a file; elements below a byte are packed."""
    return -(-math.prod(dims) * dtype.bitwidth // 8)


def type_and_dims(proto: onnx.TensorProto) -> tuple[ir.DataType, tuple[int, ...]]:
    """Element type and dims of a TensorProto.

    Raises:
      ModelError: a type that ONNX does not have, or a negative dimension.
    """
    dims = tuple(proto.dims)
    if any(size < 0 for size in dims):
        raise ModelError(f"the initializer '{proto.name}' has the negative shape {list(dims)}. Export the model again.")
    try:
        dtype = ir.DataType(proto.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        raise ModelError(
            f"the initializer '{proto.name}' has the element type {proto.data_type}, which ONNX {onnx.__version__} "
            f"does not know. Update onnx, or export the model again."
        )
    return dtype, dims


def wrong_size(name: str, dims: tuple[int, ...], found: int, expected: int) -> ModelError:
    return ModelError(
        f"the initializer '{name}' of shape {list(dims)} holds {found:,} bytes where {expected:,} are expected; the "
        f"file is damaged. Export or download it again."
    )


def description(proto: onnx.TensorProto) -> dict[str, Any]:
    """Name, documentation and metadata of a tensor, as onnx_ir's tensors take them."""
    return {
        "name": proto.name,
        "doc_string": proto.doc_string or None,
        "metadata_props": {entry.key: entry.value for entry in proto.metadata_props} or None,
    }
