"""Atomic writing of files: each is either old or new and never half written, whatever stops the process."""

from __future__ import annotations

import os
import platform
import re
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

UNREADABLE_ARRAYS = (OSError, EOFError, LookupError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""The errors of `np.load`, and of a look-up in its result, if an npz file is missing, damaged or of another version."""


@contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Opens a temporary file beside each path for writing, and renames all of them into place if the block succeeds.

    The files replace the old ones in the given order, after all of them are complete on the disk. If the block raises,
    the old files stay as they were. Missing directories are created.

    Raises:
      OSError: a file cannot be written.
    """
    # A rename is atomic within one file system only, so the temporary files lie in the same directory.
    # Their own names are short, because that of a path may be as long as the file system allows.
    neighbours = [path.with_name(f".rlflow-{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp") for path in paths]
    try:
        with ExitStack() as opened:
            files: list[BinaryIO] = []
            for path, neighbour in zip(paths, neighbours, strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                files.append(opened.enter_context(neighbour.open("wb")))
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for path, neighbour in zip(paths, neighbours, strict=True):
            neighbour.replace(path)
    finally:
        for neighbour in neighbours:
            neighbour.unlink(missing_ok=True)


_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TEMPORARY = re.compile(r"\.rlflow-([0-9a-f]{8})-(\d+)-[0-9a-f]{12}\.tmp")


def is_temporary(path: Path) -> bool:
    """Returns whether `replacing` has made a file."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_abandoned(folder: Path, *, nested: bool = False) -> None:
    """Removes the temporary files of processes of this machine that were killed while they wrote.

    Args:
      nested: whether to look into the folders inside as well.
    """
    for path in folder.rglob(".rlflow-*.tmp") if nested else folder.glob(".rlflow-*.tmp"):
        parts = _TEMPORARY.fullmatch(path.name)
        if parts is not None and parts[1] == _HOST and not _is_alive(int(parts[2])):
            with suppress(OSError):  # another process removes it too, or it may not be removed
                path.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no number of a process
        return True
    return True


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` with a temporary file, which then replaces `path`.

    Raises:
      OSError: the file cannot be written.
    """
    with replacing(Path(path)) as (file,):
        write(file)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` as UTF-8."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Writes an npz file under exactly the given name; compressing takes more time and less space."""
    save = np.savez_compressed if compress else np.savez
    write_atomically(path, lambda file: save(file, **dict(arrays)))  # type: ignore[arg-type]  # the stub wants no **
