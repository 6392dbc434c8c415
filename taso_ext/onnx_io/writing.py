"""Writing a model whose weights are handles: their bytes go straight from where they are into the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from taso_ext.files import replacing
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.weights.handles import content_bytes, tensor_header, tensor_proto
from taso_ext.onnx_io.wire_format import length_delimited

LARGEST_PROTOBUF = 2**31 - 2**20
"""Protobuf reads messages up to 2 GiB; the margin is for what little is counted differently."""
_ALIGNMENT = 4096
"""Where tensors begin in a data file: at a page, so that readers can map them."""
_SMALLEST_EXTERNAL = 1024
"""Bytes from which a tensor goes to the data file; shapes and scalars stay with the operators that need them."""
_GRAPH = onnx.ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER


def write_model(model: CheckedModel, path: Path) -> None:
    """Writes an ONNX file, complete or not at all.

    A model of more than 2 GiB gets its weights in `<name>.data` beside it, which is in place before the model is.

    Raises:
      OSError: it cannot be written.
    """
    if model.nbytes + model.skeleton.ByteSize() <= LARGEST_PROTOBUF:
        with replacing(path) as (file,):
            _write_single(model, file)
        return
    data_path = path.with_name(f"{path.name}.data")
    with replacing(data_path, path) as (data, file):
        file.write(_with_external_data(model, data, data_path.name).SerializeToString())


def _write_single(model: CheckedModel, file: BinaryIO) -> None:
    """The model as one message, as protobuf would write it, but with one tensor at a time in memory at most."""
    frame = onnx.ModelProto()
    frame.CopyFrom(model.skeleton)
    frame.ClearField("graph")
    graph = model.skeleton.graph.SerializeToString()
    tensors = [(name, tensor, _head(name, tensor)) for name, tensor in _all_tensors(model)]
    size = len(graph) + sum(len(head) + _payload(tensor) for _, tensor, head in tensors)
    file.write(frame.SerializeToString() + length_delimited(_GRAPH, size) + graph)
    for name, tensor, head in tensors:
        file.write(head)
        if _payload(tensor):
            file.write(content_bytes(name, tensor))


def _head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """All of an initializer field of the graph but the tensor's data; strings are written in full."""
    if tensor.dtype == ir.DataType.STRING:
        whole = tensor_proto(tensor, name).SerializeToString()
        return length_delimited(_INITIALIZER, len(whole)) + whole
    head = tensor_header(tensor, name).SerializeToString() + length_delimited(_RAW_DATA, _payload(tensor))
    return length_delimited(_INITIALIZER, len(head) + _payload(tensor)) + head


def _payload(tensor: ir.TensorProtocol) -> int:
    return 0 if tensor.dtype == ir.DataType.STRING else tensor.nbytes


def _with_external_data(model: CheckedModel, file: BinaryIO, location: str) -> onnx.ModelProto:
    """The model with references to its tensors, which are written to `file`."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.skeleton)
    for name, tensor in _all_tensors(model):
        if _payload(tensor) < _SMALLEST_EXTERNAL:
            proto.graph.initializer.append(tensor_proto(tensor, name))
            continue
        file.write(bytes(-file.tell() % _ALIGNMENT))
        place = tensor_header(tensor, name)
        place.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, "offset": file.tell(), "length": tensor.nbytes}.items():
            place.external_data.add(key=key, value=str(value))
        proto.graph.initializer.append(place)
        file.write(content_bytes(name, tensor))
    return proto


def _all_tensors(model: CheckedModel) -> Iterator[tuple[str, ir.TensorProtocol]]:
    yield from model.tensors.items()
    yield from model.defaults.items()
