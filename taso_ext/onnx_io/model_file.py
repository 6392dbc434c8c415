"""Reading and writing of ONNX files byte by byte, so that weights are neither parsed nor held in memory.

Protobuf's parser and writer copy every weight. The reader here looks only at the fields on the way to a tensor's
`raw_data`. The data stay in the file, and the tensor refers to them as to external data. The writer copies the bytes of
each weight straight from where they are into the file. onnx_ir streams external data too, but it converts the model to
a form without map types, does not replace data and model together, and writes a model of one file only by serialising
all of it in memory.
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from taso_ext.files import replacing
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.weights.handles import content_bytes, tensor_header, tensor_proto

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Protobuf's wire types; 3 and 4 are groups, which ONNX does not use."""
_SMALLEST_DETACHED = 1024
"""The smallest size, in bytes, of tensor data that stay in the file; smaller data are cheaper to copy."""

DEEPEST_MESSAGE = 100
"""How many levels of messages inside messages protobuf's parsers follow."""

_LARGEST_VARINT_BYTES = 10

Buffer = bytes | mmap.mmap
Field = tuple[int, int, int, int]
"""A length-delimited field: its number, its position, the position of its payload, and the position after its end."""

_CHILDREN: dict[str, dict[int, str]] = {
    "model": {onnx.ModelProto.GRAPH_FIELD_NUMBER: "graph"},
    "graph": {onnx.GraphProto.NODE_FIELD_NUMBER: "node", onnx.GraphProto.INITIALIZER_FIELD_NUMBER: "tensor"},
    "node": {onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER: "attribute"},
    "attribute": {
        onnx.AttributeProto.T_FIELD_NUMBER: "tensor",
        onnx.AttributeProto.TENSORS_FIELD_NUMBER: "tensor",
        onnx.AttributeProto.G_FIELD_NUMBER: "graph",
        onnx.AttributeProto.GRAPHS_FIELD_NUMBER: "graph",
    },
}
"""The fields of each kind of message that can lead to tensors, with the kind of message that they hold."""

_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER
_EXTERNAL = frozenset({onnx.TensorProto.EXTERNAL_DATA_FIELD_NUMBER, onnx.TensorProto.DATA_LOCATION_FIELD_NUMBER})
_MODEL_FIELDS = {
    field.number: _VARINT if field.type == field.TYPE_INT64 else _BYTES for field in onnx.ModelProto.DESCRIPTOR.fields
}
LARGEST_PROTOBUF = 2**31 - 2**20
"""The largest model in one file, in bytes. Protobuf reads up to 2 GiB; the margin is for parts that are not counted."""
_ALIGNMENT = 4096
"""In a data file, tensors begin at multiples of this many bytes: at a page, so that readers can map them."""
_SMALLEST_EXTERNAL = 1024
"""The smallest size, in bytes, of a tensor in the data file; shapes and scalars stay with their operators."""
_GRAPH = onnx.ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = onnx.GraphProto.INITIALIZER_FIELD_NUMBER


def without_weights(data: Buffer, location: str) -> bytes:
    """Returns a serialised ModelProto in which external data replace large `raw_data` and refer to places in `data`.

    Malformed parts stay as they are; protobuf's parser then refuses them.

    Args:
      data: a serialised ModelProto.
      location: the name of the file that holds `data`.
    """
    return b"".join(_message(data, "model", 0, len(data), location, DEEPEST_MESSAGE))


def ends_inside_a_model(data: Buffer) -> bool:
    """Returns whether `data` consists of top-level ModelProto fields, but ends in the middle of the last one."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        if tag is None:
            return True
        if _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return False
        size, position = _read_varint(data, position)
        if size is None:
            return True
        if tag & 7 == _BYTES:
            position += size
    return position > len(data)


def _read_varint(data: Buffer, position: int) -> tuple[int | None, int]:
    """Returns the number that begins at `position`, or None if the data end inside it, and the position after it."""
    value = 0
    for shift in range(0, 7 * _LARGEST_VARINT_BYTES, 7):
        if position >= len(data):
            return None, position
        value |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
    return value, position


def _varint(value: int) -> bytes:
    """Returns a number in protobuf's _varint encoding."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def length_delimited(number: int, size: int) -> bytes:
    """Returns the bytes before the payload of field `number`; the payload has `size` bytes."""
    return _varint(number << 3 | _BYTES) + _varint(size)


def _message(data: Buffer, kind: str, begin: int, end: int, location: str, depth: int) -> Iterator[bytes]:
    """Yields the parts of a message in order; everything up to the next field that changes is one part."""
    if depth == 0:
        yield data[begin:end]
        return
    children = _CHILDREN[kind]
    copied = begin
    for number, start, payload, stop in _large_fields(data, begin, end):
        child = children.get(number)
        if child is None:
            continue
        if child == "tensor":
            changed = _tensor(data, payload, stop, location)
        else:
            parts = list(_message(data, child, payload, stop, location, depth - 1))
            changed = b"".join(parts) if len(parts) > 1 else None
        if changed is not None:
            yield data[copied:start]
            yield length_delimited(number, len(changed)) + changed
            copied = stop
    yield data[copied:end]


def _tensor(data: Buffer, begin: int, end: int, location: str) -> bytes | None:
    """Returns a tensor with a reference in place of its data; None if they are small or not in one `raw_data` field."""
    fields = list(_fields(data, begin, end))
    raw = [(start, payload, stop) for number, start, payload, stop in fields if number == _RAW_DATA]
    if len(raw) != 1 or any(number in _EXTERNAL for number, *_ in fields):
        return None
    ((start, payload, stop),) = raw
    if stop - payload < _SMALLEST_DETACHED:
        return None
    place = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": payload, "length": stop - payload}.items():
        place.external_data.add(key=key, value=str(value))
    return data[begin:start] + data[stop:end] + place.SerializeToString()


def _large_fields(data: Buffer, begin: int, end: int) -> Iterator[Field]:
    return (field for field in _fields(data, begin, end) if field[3] - field[2] >= _SMALLEST_DETACHED)


def _fields(data: Buffer, begin: int, end: int) -> Iterator[Field]:
    """Yields the length-delimited fields of a message, up to the first malformed one."""
    position = begin
    while position < end:
        start = position
        tag, position = _read_varint(data, position)
        if tag is None:
            return
        wire_type = tag & 7
        if wire_type == _BYTES:
            size, position = _read_varint(data, position)
            if size is None or position + size > end:
                return
            yield tag >> 3, start, position, position + size
            position += size
        elif wire_type == _VARINT:
            _, position = _read_varint(data, position)
        elif wire_type in (_FIXED32, _FIXED64):
            position += 4 if wire_type == _FIXED32 else 8
        else:
            return


def data_file(path: Path) -> Path:
    """Returns the file beside a model that holds its weights if they take more than 2 GiB."""
    return path.with_name(f"{path.name}.data")


def write_model(model: CheckedModel, path: Path) -> None:
    """Writes an ONNX file, whole or not at all.

    The weights of a model of more than 2 GiB go to its `data_file`, which is in place before the model is.

    Raises:
      OSError: a file cannot be written.
    """
    tensors = [(name, tensor, _head(name, tensor)) for name, tensor in _all_tensors(model)]
    size = sum(len(head) + _payload(tensor) for _, tensor, head in tensors)
    if model.skeleton.ByteSize() + size <= LARGEST_PROTOBUF:
        with replacing(path) as (file,):
            _write_single(model, tensors, size, file)
        return
    with replacing(data_file(path), path) as (data, file):
        file.write(_with_external_data(model, data, data_file(path).name).SerializeToString())


def _write_single(
    model: CheckedModel, tensors: Sequence[tuple[str, ir.TensorProtocol, bytes]], size: int, file: BinaryIO
) -> None:
    """Writes the model as one message, as protobuf would, but with at most one tensor at a time in memory.

    Args:
      tensors: the name, the tensor and the head of each initializer, see `_head`.
      size: the bytes of these initializers.
    """
    frame = onnx.ModelProto()
    frame.CopyFrom(model.skeleton)
    frame.ClearField("graph")
    graph = model.skeleton.graph.SerializeToString()
    file.write(frame.SerializeToString() + length_delimited(_GRAPH, len(graph) + size) + graph)
    for name, tensor, head in tensors:
        file.write(head)
        if _payload(tensor):
            file.write(content_bytes(name, tensor))


def _head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """Returns a tensor's initializer field up to the data, which follow it; a tensor of strings is complete in it."""
    if tensor.dtype == ir.DataType.STRING:
        whole = tensor_proto(tensor, name).SerializeToString()
        return length_delimited(_INITIALIZER, len(whole)) + whole
    head = tensor_header(tensor, name).SerializeToString() + length_delimited(_RAW_DATA, _payload(tensor))
    return length_delimited(_INITIALIZER, len(head) + _payload(tensor)) + head


def _payload(tensor: ir.TensorProtocol) -> int:
    return 0 if tensor.dtype == ir.DataType.STRING else tensor.nbytes


def _with_external_data(model: CheckedModel, file: BinaryIO, location: str) -> onnx.ModelProto:
    """Writes the larger tensors to `file`, and returns the model with references to them."""
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
