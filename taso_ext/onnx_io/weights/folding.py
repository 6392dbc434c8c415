"""Evaluating the part of a graph that depends on weights alone, in pieces, so that memory stays small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.detached import DetachedModel
from taso_ext.onnx_io.session import create_session, is_plain
from taso_ext.onnx_io.subgraphs import captured_names
from taso_ext.onnx_io.weights.spill import Spill

_PIECE_BYTES = 1 << 26
"""Independent parts are evaluated together up to this many bytes of weights: sessions cost time, weights memory."""


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
    Returns:
      Tensors by name; beyond some hundred megabytes they are kept in a temporary file.
    Raises:
      CannotFoldError: if ONNX Runtime cannot run one of the operators.
    """
    spill = Spill()
    results: dict[str, ir.TensorProtocol] = {}
    for piece in _pieces(nodes, tensors):
        wanted = [name for node in piece.nodes for name in node.output if name in outputs]
        graph = helper.make_graph(
            piece.nodes, "weights", [], [helper.make_tensor_value_info(name, outputs[name], None) for name in wanted]
        )
        skeleton = helper.make_model(graph, opset_imports=opset_imports, ir_version=ir_version)
        values = _run(DetachedModel(skeleton, {name: tensors[name] for name in piece.weights}), wanted)
        for name in wanted:
            results[name] = _tensor(values.pop(name), outputs[name], spill)
    return results


@dataclass
class _Piece:
    """Nodes that need no other piece's results, in order, and the weights that they read."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, None] = field(default_factory=dict)
    nbytes: int = 0


def _pieces(nodes: Sequence[onnx.NodeProto], tensors: Mapping[str, ir.TensorProtocol]) -> Iterator[_Piece]:
    piece = _Piece()
    for group in _connected(nodes):
        if piece.nbytes > _PIECE_BYTES:
            yield piece
            piece = _Piece()
        piece.nodes += group
        for name in (name for node in group for name in _values_read(node) if name in tensors):
            piece.nbytes += 0 if name in piece.weights else tensors[name].nbytes
            piece.weights[name] = None
    if piece.nodes:
        yield piece


def _connected(nodes: Sequence[onnx.NodeProto]) -> Iterator[list[onnx.NodeProto]]:
    """The nodes in groups that share no computed value."""
    leader: dict[str, str] = {}

    def group_of(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    for node in nodes:
        first = next(filter(None, node.output))
        leader |= {name: first for name in node.output if name}
        for name in _values_read(node):
            if name in leader:
                leader[group_of(name)] = group_of(first)
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        groups.setdefault(group_of(next(filter(None, node.output))), []).append(node)
    yield from groups.values()


def _values_read(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    yield from captured_names(node)


def _run(model: DetachedModel, outputs: list[str]) -> dict[str, object]:
    try:
        session = create_session(model, "disabled", once=True)
        return dict(zip(outputs, session.run(outputs, {}), strict=True))
    except ModelError as error:
        raise CannotFoldError(str(error)) from error
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise CannotFoldError(one_paragraph(error)) from error


def _tensor(value: object, dtype: int, spill: Spill) -> ir.TensorProtocol:
    array = np.asarray(value)
    if dtype == onnx.TensorProto.STRING:
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1)]
        return ir.StringTensor(texts, shape=ir.Shape(array.shape))
    return ir.tensor(spill.keep(array))
