"""Reading an ONNX model: every reason why a file cannot be used is one clear `ModelError`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.checks import (
    require_bounded_expansion,
    require_bounded_ranks,
    require_consistent_types,
    require_text,
)
from taso_ext.onnx_io.dimensions import bind_dims
from taso_ext.onnx_io.opsets import raise_to_oldest
from taso_ext.onnx_io.weights.handles import MappedFiles, map_file
from taso_ext.onnx_io.wire_format import DEEPEST_MESSAGE, ends_inside_a_model, without_weights

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | CheckedModel
"""A path, the bytes of a file, or a model."""


def read_model(
    source: Source,
    dims: Mapping[str, int] | None = None,
    freeze_initializers: bool = False,
) -> CheckedModel:
    """A checked model, its weights where they are: in the mapped file, in files beside it, or in the given model.

    Args:
      source: a path to an ONNX file (external data is read from beside it), the bytes of one, or a model, which is not
        changed.
      dims: sizes of symbolic dimensions by name; an unnamed one is called `<input>:<axis>`.
      freeze_initializers: treat initializers that a caller could override as constants.
    Raises:
      ModelError: a missing, empty, truncated or foreign file, a directory, missing external data, a model that fails
        `onnx.checker`, an opset below 7 that cannot be raised, or an unknown name in `dims`.
    """
    name = name_of(source)
    if not isinstance(source, CheckedModel):
        source = _checked(*_parsed(source), name, freeze_initializers)
    return bind_dims(raise_to_oldest(source, name), dims or {}, name)


def name_of(source: Source) -> str:
    """What to call a model in an error."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the given model"


def _parsed(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, MappedFiles]:
    """The structure of a model whose larger weights stay where they are, and the files that hold them."""
    if isinstance(source, onnx.ModelProto):
        return source, MappedFiles()
    path = None if isinstance(source, bytes) else Path(source)
    data = source if isinstance(source, bytes) else _map(Path(source))
    files = MappedFiles(path and path.parent)
    location = path.name if path else ""  # no file has an empty name
    files.add(location, data)
    return _parse(data, name_of(source), location), files


def _parse(data: mmap.mmap | bytes, name: str, location: str) -> onnx.ModelProto:
    """The model, its larger weights as references to `location`."""
    if ends_inside_a_model(data):
        raise ModelError(
            f"{name} is truncated: it begins like an ONNX model but ends after {len(data):,} bytes in the middle of a "
            f"field. Export or download it again."
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(without_weights(data, location))
    except DecodeError as error:
        if "MaxDepth" in str(error):
            raise ModelError(
                f"{name} nests graphs inside graphs deeper than protobuf reads: {DEEPEST_MESSAGE} messages, about "
                f"{DEEPEST_MESSAGE // 3} graphs. Export the network with less nesting."
            ) from None
        raise _unreadable(name, data) from None
    if not model.HasField("graph"):
        raise _unreadable(name, data)
    return model


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            data = map_file(file)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; expected the path of an ONNX file.") from None
    except IsADirectoryError:
        inside = sorted(file.name for file in path.glob("*.onnx"))
        hint = f" It holds {', '.join(inside[:5])}." if inside else ""
        raise ModelError(
            f"{path} is a directory; expected one ONNX file.{hint} Give the path of the file itself."
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise ModelError(f"{path} cannot be read ({error}); expected a readable ONNX file.") from error
    if not data:
        raise ModelError(f"{path} is empty (0 bytes); expected an ONNX model. Export or download it again.")
    return data


def _unreadable(name: str, data: mmap.mmap | bytes) -> ModelError:
    if data[: len(_LFS_POINTER)] == _LFS_POINTER:
        return ModelError(f"{name} is a Git LFS pointer, not the model itself; run `git lfs pull` beside it first.")
    return ModelError(
        f"{name} is not an ONNX model: its {len(data):,} bytes are not a serialised ModelProto with a graph. "
        f"Export the network to ONNX first and give that file."
    )


_LFS_POINTER = b"version https://git-lfs"


def _checked(proto: onnx.ModelProto, files: MappedFiles, name: str, freeze_initializers: bool) -> CheckedModel:
    """Takes a model apart and checks it, large tensors first: onnx sees the structure alone."""
    try:
        model = CheckedModel.from_proto(proto, freeze_initializers=freeze_initializers, files=files)
        require_text(model.skeleton)
        structure = model.for_onnx()
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    except (ValueError, TypeError) as error:  # bytes that are no text, copied into another message
        raise ModelError(f"{name} is damaged: {one_paragraph(error)}. Export or download it again.") from error
    try:
        onnx.checker.check_model(structure)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model; onnx.checker reports: {one_paragraph(error)} "
            f"Correct the exporter, or the file, until onnx.checker accepts it."
        ) from error
    require_bounded_expansion(structure, name)
    require_bounded_ranks(structure, name)
    require_consistent_types(structure, set(model.tensors), name)
    return model
