"""Files that the user asked for, checked before any work."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.errors import UserError


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
