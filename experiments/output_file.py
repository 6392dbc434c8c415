"""Files the user asked for: checked before any work, written complete or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from controller.storage import write_atomically
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
    """Writes an ONNX file, complete or not at all; weights over 2 GB go to `<name>.data` beside it.

    Args:
      model: loses its weights where they are written beside it.
      output: the file; its directory is created.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < LARGEST_PROTOBUF_BYTES:
        write_atomically(output, lambda file: file.write(model.SerializeToString()))
        return
    import onnx

    data_name = f"{output.name}.data"
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as directory:
        onnx.save_model(model, Path(directory) / output.name, save_as_external_data=True, location=data_name)
        for name in (data_name, output.name):  # the model last: it must not be there without its weights
            (Path(directory) / name).replace(output.parent / name)
