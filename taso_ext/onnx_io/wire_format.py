"""Splitting a serialised ONNX model: its structure, small enough to parse, and where in the file its weights lie.

Protobuf's parser copies every weight into memory. Here only the fields on the way to a tensor's `raw_data` are read;
the data stay in the file, and the tensor refers to them as to external data.
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import onnx

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types; 3 and 4 are groups, which ONNX does not use."""

SMALLEST_DETACHED = 1024
"""Bytes from which tensor data stay in the file; smaller ones are cheaper to copy than to refer to."""

DEEPEST_MESSAGE = 100
"""How deep protobuf parsers follow messages inside messages."""

_LARGEST_VARINT_BYTES = 10

Buffer = bytes | mmap.mmap
Field = tuple[int, int, int, int]
"""Number of a length-delimited field, where it begins, where its payload begins and where it ends."""

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
"""The messages that can hold tensors, by the fields of the messages around them."""

_RAW_DATA = onnx.TensorProto.RAW_DATA_FIELD_NUMBER
_EXTERNAL = frozenset({onnx.TensorProto.EXTERNAL_DATA_FIELD_NUMBER, onnx.TensorProto.DATA_LOCATION_FIELD_NUMBER})
_MODEL_FIELDS = {
    field.number: _VARINT if field.type == field.TYPE_INT64 else _BYTES for field in onnx.ModelProto.DESCRIPTOR.fields
}


def without_weights(data: Buffer, location: str) -> bytes:
    """A serialised ModelProto whose large `raw_data` have become external data at `location`, their place in `data`.

    What is not well-formed is left as it is, for protobuf's parser to refuse.
    """
    return b"".join(_message(data, "model", 0, len(data), location, DEEPEST_MESSAGE))


def ends_inside_a_model(data: Buffer) -> bool:
    """Whether `data` is a proper prefix of top-level ModelProto fields."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        if tag is None:
            return True
        if _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return False
        size, position = read_varint(data, position)
        if size is None:
            return True
        if tag & 7 == _BYTES:
            position += size
    return position > len(data)


def read_varint(data: Buffer, position: int) -> tuple[int | None, int]:
    """The number that begins at `position` and the position after it; None where the data end inside it."""
    value = 0
    for shift in range(0, 7 * _LARGEST_VARINT_BYTES, 7):
        if position >= len(data):
            return None, position
        value |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
    return value, position


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def length_delimited(number: int, size: int) -> bytes:
    """What stands before the payload of a field of `size` bytes."""
    return varint(number << 3 | _BYTES) + varint(size)


def _message(data: Buffer, kind: str, begin: int, end: int, location: str, depth: int) -> Iterator[bytes]:
    """The parts of a message in order; most are copied in one piece, up to the next field that changes."""
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
    """A tensor without its data; None where these are small, or not where they are expected."""
    fields = list(_fields(data, begin, end))
    raw = [(start, payload, stop) for number, start, payload, stop in fields if number == _RAW_DATA]
    if len(raw) != 1 or any(number in _EXTERNAL for number, *_ in fields):
        return None
    ((start, payload, stop),) = raw
    if stop - payload < SMALLEST_DETACHED:
        return None
    place = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": payload, "length": stop - payload}.items():
        place.external_data.add(key=key, value=str(value))
    return data[begin:start] + data[stop:end] + place.SerializeToString()


def _large_fields(data: Buffer, begin: int, end: int) -> Iterator[Field]:
    return (field for field in _fields(data, begin, end) if field[3] - field[2] >= SMALLEST_DETACHED)


def _fields(data: Buffer, begin: int, end: int) -> Iterator[Field]:
    """The length-delimited fields of a message, up to the first malformed one."""
    position = begin
    while position < end:
        start = position
        tag, position = read_varint(data, position)
        if tag is None:
            return
        wire_type = tag & 7
        if wire_type == _BYTES:
            size, position = read_varint(data, position)
            if size is None or position + size > end:
                return
            yield tag >> 3, start, position, position + size
            position += size
        elif wire_type == _VARINT:
            _, position = read_varint(data, position)
        elif wire_type in (_FIXED32, _FIXED64):
            position += 4 if wire_type == _FIXED32 else 8
        else:
            return
