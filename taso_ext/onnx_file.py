"""Reading an ONNX model: every reason why a file cannot be used is one clear `ModelError`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from taso_ext.detached import DetachedModel, detach, for_inference
from taso_ext.dimensions import bind_dims, require_static_inputs
from taso_ext.errors import ModelError, one_paragraph

_LARGEST_SERIALISED = 2**31 - 2**20
"""Protobuf serialises at most 2 GiB; the structure around the weights takes the rest."""
OLDEST_OPSET = 7
"""Opset 7 brought NumPy broadcasting; before it, elementwise operators mean something else."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of the protobuf encoding
_MODEL_FIELDS = {
    field.number: _VARINT if field.type == field.TYPE_INT64 else _BYTES for field in onnx.ModelProto.DESCRIPTOR.fields
}


def read_model(
    source: str | os.PathLike[str] | onnx.ModelProto, dims: Mapping[str, int] | None = None
) -> onnx.ModelProto:
    """A checked model whose inputs all have static shapes.

    Args:
      source: a path to an ONNX file (external data is read from beside it) or a model, which is not changed.
      dims: sizes of symbolic dimensions by name; an unnamed one is called `<input>:<axis>`.
    Returns:
      The model with its weights in memory and `dims` bound; `source` itself where nothing had to change.
    Raises:
      ModelError: a missing, empty, truncated or foreign file, a directory, missing external data, a model that fails
        `onnx.checker`, an opset below 7, an unknown name in `dims` or a symbolic dimension that `dims` leaves open.
    """
    if isinstance(source, onnx.ModelProto):
        name, model = "the given model", source
        detached = _detach(model, name)
        large = sum(tensor.nbytes for tensor in detached.tensors.values()) > _LARGEST_SERIALISED
        _check(for_inference(detached) if large else model, name)
    else:
        path = Path(source)
        name = str(path)
        model = _parse(path)
        _load_external_data(model, path)
        _check(path, name)
        _detach(model, name)
    _require_opset(model, name)
    model = bind_dims(model, dims or {}, name)
    require_static_inputs(model, name)
    return model


def _parse(path: Path) -> onnx.ModelProto:
    data = _read_bytes(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise _unreadable(path, data) from None
    if not model.HasField("graph"):
        raise _unreadable(path, data)
    return model


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        inside = sorted(file.name for file in path.glob("*.onnx"))
        hint = f" It holds {', '.join(inside[:5])}." if inside else ""
        raise ModelError(f"{path} is a directory; expected one ONNX file.{hint} Give the path of the file itself.")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; expected the path of an ONNX file.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); expected a readable ONNX file.") from error
    if not data:
        raise ModelError(f"{path} is empty (0 bytes); expected an ONNX model. Export or download it again.")
    return data


def _unreadable(path: Path, data: bytes) -> ModelError:
    if data.startswith(b"version https://git-lfs"):
        return ModelError(f"{path} is a Git LFS pointer, not the model itself; run `git lfs pull` beside it first.")
    if _ends_inside_a_model(data):
        return ModelError(
            f"{path} is truncated: it begins like an ONNX model but ends after {len(data):,} bytes in the middle of a "
            f"field. Export or download it again."
        )
    return ModelError(
        f"{path} is not an ONNX model: its {len(data):,} bytes are not a serialised ModelProto with a graph. "
        f"Export the network to ONNX first and give that file."
    )


def _ends_inside_a_model(data: bytes) -> bool:
    """Whether `data` is a proper prefix of top-level ModelProto fields."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if tag is None:
            return True
        if _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return False
        size, position = _varint(data, position)
        if size is None:
            return True
        if tag & 7 == _BYTES:
            position += size
    return position > len(data)


def _varint(data: bytes, position: int) -> tuple[int | None, int]:
    """The number that begins at `position` and the position after it; None where the data end inside it."""
    value = 0
    for shift in range(0, 70, 7):  # ten groups of seven bits hold 64 bits
        if position >= len(data):
            return None, position
        value |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
    return value, position


def _check(model: onnx.ModelProto | Path, name: str) -> None:
    """Runs `onnx.checker`; a path lets it find external data and models over 2 GB."""
    try:
        onnx.checker.check_model(str(model) if isinstance(model, Path) else model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:  # ValueError: text that is not UTF-8
        raise ModelError(
            f"{name} is not a valid ONNX model; onnx.checker reports: {one_paragraph(error)} "
            f"Correct the exporter, or the file, until onnx.checker accepts it."
        ) from error


def _detach(model: onnx.ModelProto, name: str) -> DetachedModel:
    """Takes the model apart, which reads what the checker does not: all text, all element types."""
    try:
        return detach(model)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{name} is damaged: {one_paragraph(error)} Export or download it again.") from error


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{path} keeps weights in a separate file that cannot be read: {one_paragraph(error)} "
            f"Put the external data file beside the model, where the exporter wrote it."
        ) from error


def _require_opset(model: onnx.ModelProto, name: str) -> None:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < OLDEST_OPSET:
            raise ModelError(
                f"{name} uses opset {entry.version}; at least opset {OLDEST_OPSET} is needed, because older "
                f"elementwise operators broadcast differently. Convert it first, for example with "
                f"onnx.version_converter.convert_version(model, 13)."
            )
