"""Reading an ONNX model: every reason why a file cannot be used is one clear `ModelError`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.detached import DetachedModel, detach, for_inference
from taso_ext.onnx_io.dimensions import bind_dims
from taso_ext.onnx_io.element_types import require_consistent_types
from taso_ext.onnx_io.expand_operands import require_bounded_ranks
from taso_ext.onnx_io.function_calls import require_bounded_expansion
from taso_ext.onnx_io.opsets.oldest import raise_to_oldest
from taso_ext.onnx_io.readable_text import require_text
from taso_ext.onnx_io.weights.mapped_files import MappedFiles, map_file
from taso_ext.onnx_io.wire_format import DEEPEST_MESSAGE, ends_inside_a_model, without_weights

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | DetachedModel
"""A path, the bytes of a file, or a model."""


def read_model(
    source: Source,
    dims: Mapping[str, int] | None = None,
    freeze_initializers: bool = False,
) -> DetachedModel:
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
    if isinstance(source, (onnx.ModelProto, DetachedModel)):
        model, files = source, MappedFiles()
    else:
        model, files = _parse_bytes(source) if isinstance(source, bytes) else _open(Path(source))
    name = name_of(source)
    detached = _detach(model, name, freeze_initializers, files)
    if detached is not source:
        _check(detached, name)
        require_bounded_expansion(detached.skeleton, name)
        require_bounded_ranks(for_inference(detached), name)
        require_consistent_types(detached, name)
    return bind_dims(raise_to_oldest(detached, name), dims or {}, name)


def name_of(source: Source) -> str:
    """What to call a model in an error."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the given model"


def _open(path: Path) -> tuple[onnx.ModelProto, MappedFiles]:
    """The structure of a model whose larger weights stay in its file, and the files that hold them."""
    data, files = _map(path), MappedFiles(path.parent)
    files.add(path.name, data)
    return _parse(data, str(path), path.name), files


def _parse_bytes(data: bytes) -> tuple[onnx.ModelProto, MappedFiles]:
    files = MappedFiles()
    files.add("", data)  # a name that no file has
    return _parse(data, "the given model", ""), files


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


def _detach(
    model: onnx.ModelProto | DetachedModel, name: str, freeze_initializers: bool, files: MappedFiles
) -> DetachedModel:
    """Takes the model apart, and checks what the checker does not: text, element types, sizes."""
    try:
        detached = detach(model, freeze_initializers, files)
        require_text(detached.skeleton)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    except (ValueError, TypeError) as error:  # bytes that are no text, copied into another message
        raise ModelError(f"{name} is damaged: {one_paragraph(error)}. Export or download it again.") from error
    return detached


def _check(detached: DetachedModel, name: str) -> None:
    """Runs `onnx.checker` on the structure; large tensors were checked when they were detached."""
    try:
        model = for_inference(detached)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model; onnx.checker reports: {one_paragraph(error)} "
            f"Correct the exporter, or the file, until onnx.checker accepts it."
        ) from error
