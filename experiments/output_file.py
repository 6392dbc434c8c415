"""Files the user asked for: checked before any work, written complete or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError

if TYPE_CHECKING:
    import onnx

LARGEST_PROTOBUF_BYTES = 2**31 - 2**24
"""Protobuf ends at 2 GiB; the margin is for everything that is not a weight."""


def require_writable(output: Path, *, force: bool) -> None:
    """Checks that `output` can be written, leaving nothing behind.

    Raises:
      UserError: it exists and `force` is not set, it is a directory, or its directory cannot be written.
    """
    if output.is_dir():
        raise UserError(f"{output} is a directory: name the file to write, in it or elsewhere.")
    if output.exists() and not force:
        raise UserError(f"{output} exists. Use --force to overwrite it, or name another file.")
    require_writable_directory(output.parent)


def require_writable_directory(directory: Path) -> None:
    """Checks that files can be made in `directory`, or in its nearest existing parent where it does not exist yet.

    Raises:
      UserError: if not.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:  # a real file tells the truth for root, read-only mounts and quotas, where permission bits do not
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot write into {existing}: {error.strerror or error}. Name a directory that you can write."
        ) from error


def write_model(model: onnx.ModelProto, output: Path) -> None:
    """Writes an ONNX file, complete or not at all; weights over 2 GB go to `<name>.data` beside it."""
    from taso_ext.onnx_io.detached import detach
    from taso_ext.onnx_io.writing import write_model as write

    write(detach(model), output)
