"""Checks, before any work, that the files which the user asked for can be written; and what has been written."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from experiments.errors import UserError
from taso_ext.onnx_io.model_file import data_file

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def require_writable(output: Path, *, force: bool) -> None:
    """Checks that `output` can be written; leaves nothing behind.

    Raises:
      UserError: `output` is a regular file and `force` is not set, or it is something else; it cannot be looked up, as
        with a name that is too long; or its directory cannot be written.
    """
    try:
        mode = output.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = None
    except OSError as error:
        raise UserError(f"Cannot write {_shortened(output)}: {error.strerror or error}. Name another file.") from error
    if mode is not None and not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise UserError(f"{output} is {kind}: name a file to write, in a directory that exists or can be made.")
    if mode is not None and not force:
        raise UserError(f"{output} exists. Use --force to overwrite it, or name another file.")
    require_writable_directory(output.parent)


def require_writable_directory(directory: Path) -> None:
    """Checks that files can be created in `directory`, or in its nearest existing parent if it does not exist yet.

    Raises:
      UserError: no file can be created there, or a file has the name of the directory or of one of its parents.
    """
    try:
        existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        if not existing.is_dir():
            raise UserError(f"{_shortened(existing)} is a file and no directory. Name a directory that you can write.")
        # A real file, because permission bits mislead for root, read-only mounts and quotas.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot write into {_shortened(Path(error.filename or directory))}: {error.strerror or error}. Name a "
            "directory that you can write."
        ) from error


def require_not_read(outputs: Iterable[Path], read: Iterable[Path], model: str) -> None:
    """Checks that existing files are none of those that a model is read from, through links or under other names.

    Raises:
      UserError: a file would be replaced while it is in use, and the model would be lost.
    """
    files = [file for file in read if file.exists()]
    for output in outputs:
        if any(os.path.samefile(output, file) for file in files):
            raise UserError(
                f"{output} is a file that {model} is read from, which is never overwritten. Name another file with -o."
            )


def _shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 120 else f"{text[:80]}… ({len(text)} characters)"


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """A model that a run has written.

    Attributes:
      path: the file, relative to the run directory.
      sha256: the hash of the file, and of its data file if it has one.
    """

    path: str
    sha256: str

    @classmethod
    def of(cls, output: Path, run_directory: Path) -> WrittenFile:
        """Returns the record of a file that exists."""
        return cls(os.path.relpath(output.absolute(), run_directory.absolute()), content_hash(output))


def content_hash(model: Path) -> str:
    """Returns the hash (SHA-256) of an ONNX file, and of its data file if it has one."""
    digest = hashlib.sha256()
    for path in (model, data_file(model)):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
