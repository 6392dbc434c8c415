"""Tensors as handles: their data are read only when they are needed, and copied only when they must be.

Each file that holds weights is mapped into memory once, and its tensors are views of the mapping.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from onnx.external_data_helper import ExternalDataInfo, _open_external_data_fd

from taso_ext.errors import ModelError, one_paragraph, root_cause

EXTERNAL = onnx.TensorProto.EXTERNAL
_PACKED_BITS = 8
"""Elements of fewer bits share bytes."""
LARGEST_DENSE = 1 << 30
"""The most bytes that the dense form of a sparse tensor may take."""


class MappedFiles:
    """The files that hold a model's weights, each mapped into memory once.

    The operating system reads and drops their pages as it needs to. The files must not be changed while a model uses
    them.

    Args:
      directory: the directory of the model and its external data; None if the model did not come from a file.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._files: dict[str, mmap.mmap | bytes] = {}

    def add(self, location: str, data: mmap.mmap | bytes) -> None:
        """Adds a file that is already mapped, under the name `location`."""
        self._files[location] = data

    def tensor(self, proto: onnx.TensorProto) -> ir.TensorProtocol:
        """Returns the tensor of a TensorProto, wherever its data lie.

        Raises:
          ModelError: see `lazy_tensor`; or the file of the data is missing, outside the model's directory or too small.
        """
        return self._external(proto) if proto.data_location == EXTERNAL else lazy_tensor(proto)

    def _external(self, proto: onnx.TensorProto) -> ir.TensorProtocol:
        """Returns the tensor that an external TensorProto describes.

        Raises:
          ModelError: the file is missing, outside the model's directory or too small, or the data do not fit the shape.
        """
        try:
            info = ExternalDataInfo(proto)
        except ValueError as error:
            raise ModelError(f"the external data of '{proto.name}' are malformed: {one_paragraph(error)}") from error
        dtype, dims = _type_and_dims(proto)
        if dtype == ir.DataType.STRING:
            raise ModelError(f"the strings of '{proto.name}' lie in a separate file, which ONNX does not allow.")
        data, offset = self._open(info.location, proto.name), info.offset or 0
        size = nbytes(dtype, dims)
        available = max(len(data) - offset, 0)
        if size > available or (info.length is not None and info.length != size):
            raise _wrong_size(proto.name, dims, available if info.length is None else min(info.length, available), size)
        values = np.frombuffer(data, np.uint8, size, offset) if size else np.empty(0, np.uint8)
        return _from_bytes(values, dtype, dims, proto)

    def _open(self, location: str, name: str) -> mmap.mmap | bytes:
        if location not in self._files:
            if self._directory is None:
                raise ModelError(
                    f"the tensor '{name}' lies in the separate file '{location}', and the model was given without a "
                    f"place to look for it. Give the path of the model file, or load it with its external data."
                )
            try:
                # Refuses what lies outside the model's directory, symbolic links included.
                handle = _open_external_data_fd(str(self._directory), location, name, True)
                with os.fdopen(handle, "rb") as file:
                    self._files[location] = map_file(file)
            except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
                raise ModelError(
                    f"the tensor '{name}' lies in a separate file that cannot be read: {one_paragraph(error)} "
                    f"Put the external data file beside the model, where the exporter wrote it."
                ) from error
        return self._files[location]


def map_file(file: BinaryIO) -> mmap.mmap | bytes:
    """Maps an open file into memory; only the parts that are used are then read.

    Raises:
      OSError: the file cannot be read.
    """
    if file.seek(0, os.SEEK_END) == 0:
        return b""  # an empty file cannot be mapped
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _from_bytes(
    values: np.ndarray, dtype: ir.DataType, dims: tuple[int, ...], proto: onnx.TensorProto
) -> ir.TensorProtocol:
    if dtype.bitwidth < _PACKED_BITS:
        return ir.PackedTensor(values, dtype, shape=ir.Shape(dims), **_description(proto))
    array = values.view(dtype.numpy()).reshape(dims)
    return ir.Tensor(array, dtype, shape=ir.Shape(dims), **_description(proto))


def dense_tensor(sparse: onnx.SparseTensorProto, files: MappedFiles) -> ir.TensorProtocol:
    """Returns the dense form of a sparse tensor.

    Raises:
      ModelError: values or indices cannot be read or lie outside the shape, or the dense form exceeds `LARGEST_DENSE`.
    """
    name, dims = sparse.values.name, tuple(sparse.dims)
    stored = files.tensor(sparse.values)
    size = math.prod(dims) * stored.dtype.bitwidth // 8
    if any(extent < 0 for extent in dims) or size > LARGEST_DENSE:
        raise ModelError(
            f"the sparse tensor '{name}' of shape {list(dims)} would take {size:,} bytes as a dense one; at most "
            f"{LARGEST_DENSE:,} are allowed. Export the model with dense weights."
        )
    try:
        values, indices = stored.numpy(), files.tensor(sparse.indices).numpy()
        dense = np.zeros(dims, dtype=values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError, TypeError, AssertionError) as error:
        raise ModelError(
            f"the sparse tensor '{name}' of shape {list(dims)} cannot be read: {one_paragraph(error)}. "
            f"Export the model again."
        ) from error
    return ir.tensor(dense, name=name)


def lazy_tensor(proto: onnx.TensorProto) -> ir.TensorProtocol:
    """Returns a tensor whose values are read from `proto` when they are asked for; `proto` is never changed.

    Raises:
      ModelError: an unknown element type, a negative dimension, or a number of strings that does not fit the shape.
    """
    dtype, dims = _type_and_dims(proto)
    if dtype != ir.DataType.STRING:
        return ir.LazyTensor(
            lambda: ir.serde.TensorProtoTensor(proto), dtype=dtype, shape=ir.Shape(dims), **_description(proto)
        )
    if len(proto.string_data) != math.prod(dims):
        raise ModelError(
            f"the initializer '{proto.name}' of shape {list(dims)} holds {len(proto.string_data):,} strings; the file "
            f"is damaged. Export or download it again."
        )
    return ir.StringTensor(list(proto.string_data), shape=ir.Shape(dims), **_description(proto))


def content_handle(name: str, tensor: ir.TensorProtocol) -> str:
    """Returns a digest of a tensor's type, shape and content as 32 hex digits.

    Raises:
      ModelError: the tensor holds more or fewer bytes than its shape needs.
    """
    dims = static_dims(tensor)
    digest = hashlib.sha256(f"{tensor.dtype.value}:{dims}:".encode())
    if tensor.dtype == ir.DataType.STRING:
        for text in tensor.numpy().reshape(-1):
            digest.update(len(text).to_bytes(8, "little") + bytes(text))
        return digest.hexdigest()[:32]
    data = content_bytes(name, tensor)
    if len(data) != nbytes(tensor.dtype, dims):
        raise _wrong_size(name, dims, len(data), nbytes(tensor.dtype, dims))
    digest.update(data)
    return digest.hexdigest()[:32]


def content_bytes(name: str, tensor: ir.TensorProtocol) -> memoryview | bytes:
    """Returns a tensor's bytes as ONNX stores them, without a copy if they already have that form.

    Raises:
      ModelError: if they cannot be read as the tensor's type and shape.
    """
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, np.ndarray) and raw.flags.c_contiguous and raw.nbytes == tensor.nbytes and _is_little(raw):
        return raw.reshape(-1).view(np.uint8).data
    with _reading(name):
        return tensor.tobytes()


def read_values(name: str, tensor: ir.TensorProtocol) -> np.ndarray:
    """Returns a tensor's values.

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
    """Returns the tensor as a TensorProto of the given name, with its own copy of the data.

    Raises:
      ModelError: if the data cannot be read as the tensor's type and shape.
    """
    with _reading(name):
        proto = ir.serde.serialize_tensor(tensor)
    proto.name = name
    return proto


def tensor_header(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto:
    """Returns the tensor as a TensorProto of the given name without any data."""
    proto = onnx.TensorProto(name=name, data_type=tensor.dtype.value, dims=static_dims(tensor))
    if tensor.doc_string:
        proto.doc_string = tensor.doc_string
    for key, value in tensor.metadata_props.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def static_dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """Returns the dims of a tensor that holds values; none of them is symbolic."""
    return tuple(int(size) for size in tensor.shape.numpy())


def nbytes(dtype: ir.DataType, dims: tuple[int, ...]) -> int:
    """Returns how many bytes a tensor takes in a file; elements of less than one byte are packed."""
    return -(-math.prod(dims) * dtype.bitwidth // 8)


def _type_and_dims(proto: onnx.TensorProto) -> tuple[ir.DataType, tuple[int, ...]]:
    """Returns the element type and the dims of a TensorProto.

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


def _wrong_size(name: str, dims: tuple[int, ...], found: int, expected: int) -> ModelError:
    """Returns the error for a tensor that holds another number of bytes than its shape needs."""
    return ModelError(
        f"the initializer '{name}' of shape {list(dims)} holds {found:,} bytes where {expected:,} are expected; the "
        f"file is damaged. Export or download it again."
    )


def _description(proto: onnx.TensorProto) -> dict[str, Any]:
    """Returns the name, documentation and metadata of a tensor as keyword arguments of onnx_ir's tensors."""
    return {
        "name": proto.name,
        "doc_string": proto.doc_string or None,
        "metadata_props": {entry.key: entry.value for entry in proto.metadata_props} or None,
    }
