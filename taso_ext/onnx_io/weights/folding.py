"""Constant folding at export: which weight-only nodes are computed, in which pieces, and where the results are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from taso_ext._core import Node, Value
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import captured_names, graphs_of
from taso_ext.onnx_io.session import create_session, is_plain
from taso_ext.onnx_io.weights.handles import nbytes
from taso_ext.onnx_io.widening import TYPE_ATTRIBUTES, widen

_ALWAYS_FOLDED = 1 << 26
"""A value of up to this many bytes is computed, whatever it is made of."""
_LARGEST_GROWTH = 16
"""A larger value may take this many times the bytes of all weights; a 1×1 kernel that becomes 3×3 takes nine times."""
_PIECE_BYTES = 1 << 26
"""Up to this many bytes of weights, independent parts share a session: sessions cost time, and weights cost memory."""
_LARGEST_KEPT = 1 << 28
"""The most bytes of all arrays together that stay in memory."""
_SMALLEST_SPILLED = 1 << 16
"""Arrays of up to this many bytes always stay in memory; they are not worth a mapping of their own."""


def computable_nodes(values: Mapping[int, Value], nodes: Sequence[Node]) -> set[int]:
    """Returns the positions of the nodes that depend on weights alone, and neither make nor need too large a value.

    The other nodes stay in the model: if a large constant is made of a few numbers, then it costs less to compute it
    than to store it. An unknown size counts as small, which is right in all but contrived models.
    """
    weights = {value: _value_bytes(view) for value, view in values.items() if view.handle is not None}
    limit = max(_ALWAYS_FOLDED, _LARGEST_GROWTH * sum(filter(None, weights.values())))
    known = set(weights)
    found = set()
    for position, node in enumerate(nodes):
        if node.weight_only and all(value in known or value < 0 for value in node.inputs):
            sizes = [_value_bytes(values[value]) for value in node.outputs]
            if all(size is None or size <= limit for size in sizes):
                found.add(position)
                known.update(node.outputs)
    return found


def _value_bytes(value: Value) -> int | None:
    """Returns the size of a value in bytes; None if it is not known. A string counts as one byte."""
    if value.dims is None or value.dtype == ir.DataType.UNDEFINED:
        return None
    dtype = ir.DataType.UINT8 if value.dtype == ir.DataType.STRING else ir.DataType(value.dtype)
    return nbytes(dtype, tuple(value.dims))


class CannotFoldError(RuntimeError):
    """The error for a subgraph that ONNX Runtime cannot run, for example if an operator has no kernel for its types."""


def can_fold(dtype: int) -> bool:
    """Returns whether values of this element type can be taken out of ONNX Runtime as arrays."""
    return is_plain(dtype) or dtype == onnx.TensorProto.STRING


def evaluate(
    nodes: Sequence[onnx.NodeProto],
    tensors: Mapping[str, ir.TensorProtocol],
    outputs: Mapping[str, int],
    opset_imports: Sequence[onnx.OperatorSetIdProto],
    ir_version: int,
) -> dict[str, ir.TensorProtocol]:
    """Computes the values of a subgraph without inputs, in ONNX Runtime with its optimisations off.

    Values of float16 that depend on nothing else are computed in float32 and rounded once.

    Args:
      nodes: the subgraph in topological order.
      tensors: the constants that it reads, by name.
      outputs: element types (onnx.TensorProto) of the values to compute, by name.
    Returns:
      Tensors by name; beyond `_LARGEST_KEPT` bytes in all, they are kept in a temporary file.
    Raises:
      CannotFoldError: ONNX Runtime cannot run one of the operators.
    """
    spill = Spill()
    results: dict[str, ir.TensorProtocol] = {}
    for piece in _pieces(nodes, tensors):
        wanted = [name for node in piece.nodes for name in node.output if name in outputs]
        graph = helper.make_graph(
            piece.nodes, "weights", [], [helper.make_tensor_value_info(name, outputs[name], None) for name in wanted]
        )
        skeleton = helper.make_model(graph, opset_imports=opset_imports, ir_version=ir_version)
        weights = {name: tensors[name] for name in piece.weights}
        if _is_half(piece.nodes, weights):
            widen(skeleton, onnx.TensorProto.FLOAT)
            weights = {name: _as_float(tensor) for name, tensor in weights.items()}
        values = _run(CheckedModel(skeleton, weights), wanted)
        for name in wanted:
            results[name] = _tensor(values.pop(name), outputs[name], spill)
    return results


def _is_half(nodes: Sequence[onnx.NodeProto], weights: Mapping[str, ir.TensorProtocol]) -> bool:
    """Returns whether all floats of a piece are float16, so that only the results need to be rounded to it."""
    attributes = [attribute for node in nodes for attribute in node.attribute]
    typed = any(attribute.name in TYPE_ATTRIBUTES or list(graphs_of(attribute)) for attribute in attributes)
    floats = {tensor.dtype for tensor in weights.values() if tensor.dtype.is_floating_point()}
    quantised = any("Quantize" in node.op_type for node in nodes)
    return floats == {ir.DataType.FLOAT16} and not typed and not quantised


def _as_float(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float32)) if tensor.dtype == ir.DataType.FLOAT16 else tensor


@dataclass
class _Piece:
    """Nodes in topological order that need no results of other pieces, and the weights that they read."""

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
    """Yields the nodes in groups; no two groups have a computed value in common."""
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


def _run(model: CheckedModel, outputs: list[str]) -> dict[str, object]:
    try:
        session = create_session(model, "disabled", once=True)
        return dict(zip(outputs, session.run(outputs, {}), strict=True))
    except ModelError as error:
        raise CannotFoldError(str(error)) from error
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise CannotFoldError(one_paragraph(error)) from error


def _tensor(value: object, dtype: int, spill: Spill) -> ir.TensorProtocol:
    array = np.asarray(value)
    if dtype == onnx.TensorProto.FLOAT16:
        with np.errstate(over="ignore"):
            array = array.astype(np.float16)
    if dtype == onnx.TensorProto.STRING:
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1)]
        return ir.StringTensor(texts, shape=ir.Shape(array.shape))
    return ir.tensor(spill.keep(array))


class Spill:
    """A store of arrays: up to `largest_kept` bytes in all stay in memory, and further ones in a mapped temporary file.

    The file has no name and disappears with the last of its arrays.
    """

    def __init__(self, largest_kept: int = _LARGEST_KEPT) -> None:
        self._left = largest_kept
        self._file: IO[bytes] | None = None

    def keep(self, array: np.ndarray) -> np.ndarray:
        """Returns the array itself, or an equal one that takes no memory of its own.

        Raises:
          OSError: the file cannot be written.
        """
        if array.nbytes <= max(self._left, _SMALLEST_SPILLED):
            self._left -= array.nbytes
            return array
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the arrays do
        offset = self._file.tell()
        array.tofile(self._file)
        self._file.flush()
        return np.memmap(self._file, array.dtype, "r", offset, array.shape)
