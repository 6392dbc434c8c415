"""Weights that stay in their files: each file is mapped into memory once, tensors are views of it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from onnx.external_data_helper import ExternalDataInfo, _open_external_data_fd

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.weights.handles import description, lazy_tensor, nbytes, type_and_dims, wrong_size

EXTERNAL = onnx.TensorProto.EXTERNAL
_PACKED_BITS = 8
"""Elements of fewer bits share bytes."""


class MappedFiles:
    """The files that a model's weights lie in, each mapped into memory once.

    The operating system reads and drops their pages as it needs to; they must not be changed while a model uses them.

    Args:
      directory: where external data lie, beside the model; None for a model that came without a place.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._files: dict[str, mmap.mmap | bytes] = {}

    def add(self, location: str, data: mmap.mmap | bytes) -> None:
        """Names a file that is mapped already."""
        self._files[location] = data

    def tensor(self, proto: onnx.TensorProto) -> ir.TensorProtocol:
        """The tensor of a TensorProto, wherever its data lie.

        Raises:
          ModelError: see `lazy_tensor`; or its file is missing, outside the model's directory or too small.
        """
        return self._external(proto) if proto.data_location == EXTERNAL else lazy_tensor(proto)

    def _external(self, proto: onnx.TensorProto) -> ir.TensorProtocol:
        """The tensor that an external TensorProto describes.

        Raises:
          ModelError: its file is missing, outside the model's directory or too small, or does not fit its shape.
        """
        try:
            info = ExternalDataInfo(proto)
        except ValueError as error:
            raise ModelError(f"the external data of '{proto.name}' are malformed: {one_paragraph(error)}") from error
        dtype, dims = type_and_dims(proto)
        if dtype == ir.DataType.STRING:
            raise ModelError(f"the strings of '{proto.name}' lie in a separate file, which ONNX does not allow.")
        data, offset = self._open(info.location, proto.name), info.offset or 0
        size = nbytes(dtype, dims)
        available = max(len(data) - offset, 0)
        if size > available or (info.length is not None and info.length != size):
            raise wrong_size(proto.name, dims, available if info.length is None else min(info.length, available), size)
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
    """The content of an open file, mapped into memory and read only where it is looked at.

    Raises:
      OSError: the file cannot be read.
    """
    if file.seek(0, os.SEEK_END) == 0:
        return b""  # nothing cannot be mapped
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _from_bytes(
    values: np.ndarray, dtype: ir.DataType, dims: tuple[int, ...], proto: onnx.TensorProto
) -> ir.TensorProtocol:
    if dtype.bitwidth < _PACKED_BITS:
        return ir.PackedTensor(values, dtype, shape=ir.Shape(dims), **description(proto))
    array = values.view(dtype.numpy()).reshape(dims)
    return ir.Tensor(array, dtype, shape=ir.Shape(dims), **description(proto))
