"""Evaluating the part of a graph that depends on weights alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from taso_ext.detached import DetachedModel
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_session import create_session, is_plain


class CannotFoldError(RuntimeError):
    """ONNX Runtime has no kernel for an operator of the subgraph on these types."""


def can_fold(dtype: int) -> bool:
    """Whether values of this element type can be taken out of ONNX Runtime as arrays."""
    return is_plain(dtype) or dtype == onnx.TensorProto.STRING


def evaluate(
    nodes: Sequence[onnx.NodeProto],
    tensors: Mapping[str, ir.TensorProtocol],
    outputs: Mapping[str, int],
    opset_imports: Sequence[onnx.OperatorSetIdProto],
    ir_version: int,
) -> dict[str, ir.TensorProtocol]:
    """Values of a subgraph without inputs, computed by ONNX Runtime with its optimisations off.

    Args:
      nodes: the subgraph in topological order.
      tensors: the constants that it reads, by name.
      outputs: element types (onnx.TensorProto) of the values to compute, by name.
    Raises:
      CannotFoldError: if ONNX Runtime cannot run one of the operators.
    """
    results = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()]
    graph = helper.make_graph(nodes, "weights", [], results)
    skeleton = helper.make_model(graph, opset_imports=opset_imports, ir_version=ir_version)
    try:
        session = create_session(DetachedModel(skeleton, dict(tensors)), optimise=False)
        values = session.run(list(outputs), {})
    except ModelError as error:
        raise CannotFoldError(str(error)) from error
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise CannotFoldError(one_paragraph(error)) from error
    return {name: _tensor(np.asarray(value), outputs[name]) for name, value in zip(outputs, values, strict=True)}


def _tensor(value: np.ndarray, dtype: int) -> ir.TensorProtocol:
    if dtype == onnx.TensorProto.STRING:
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in value.reshape(-1)]
        return ir.StringTensor(texts, shape=ir.Shape(value.shape))
    return ir.tensor(value)
