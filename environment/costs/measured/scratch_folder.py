"""Folders for large files that are read again at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PREFIX = "rlflow-kernels-"
_MEMORY = Path("/dev/shm")
_ROOM = 4
"""Times what is to be written: it may become more, and other processes write there too."""


@contextmanager
def scratch_folder(nbytes: int) -> Iterator[Path]:
    """A folder that is gone afterwards, in memory where the system has a place for that with room enough.

    A process that is killed leaves its folder there; another one removes it before it makes its first.

    Args:
      nbytes: how much is going to be written, about.
    """
    disk = Path(tempfile.gettempdir())
    for place in (_MEMORY, disk):
        remove_abandoned(place)
    fits = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM * nbytes
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=_MEMORY if fits else disk) as folder:
        yield Path(folder)


@cache
def remove_abandoned(place: Path) -> None:
    """Removes the folders of processes that are no more."""
    for folder in place.glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True
