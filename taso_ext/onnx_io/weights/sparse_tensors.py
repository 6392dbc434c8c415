"""Sparse tensors as dense ones: operators see no difference."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.weights.mapped_files import MappedFiles

LARGEST_DENSE = 1 << 30
"""Bytes of the dense form."""


def dense_tensor(sparse: onnx.SparseTensorProto, files: MappedFiles) -> ir.TensorProtocol:
    """The dense tensor that a sparse one means.

    Raises:
      ModelError: values or indices that cannot be read or lie outside the shape, or a dense form above `LARGEST_DENSE`.
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
