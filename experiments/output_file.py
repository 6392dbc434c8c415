"""Checks, before any work, that the files which the user asked for can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.errors import UserError


def require_writable(output: Path, *, force: bool) -> None:
    """Checks that `output` can be written; leaves nothing behind.

    Raises:
      UserError: `output` exists and `force` is not set, it is a directory, or its directory cannot be written.
    """
    if output.is_dir():
        raise UserError(f"{output} is a directory: name the file to write, in it or elsewhere.")
    if output.exists() and not force:
        raise UserError(f"{output} exists. Use --force to overwrite it, or name another file.")
    require_writable_directory(output.parent)


def require_writable_directory(directory: Path) -> None:
    """Checks that files can be created in `directory`, or in its nearest existing parent if it does not exist yet.

    Raises:
      UserError: no file can be created there.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:  # a real file, because permission bits mislead for root, read-only mounts and quotas
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot write into {existing}: {error.strerror or error}. Name a directory that you can write."
        ) from error
