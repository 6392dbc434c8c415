"""Files that are either old or new, never half written: whatever stops the process, the last one stays readable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np


class StoredControllerError(ValueError):
    """A stored controller that cannot be used here; the message says why and what to do."""


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Lets `write` fill a temporary neighbour of `path`, then renames it over `path`."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: a rename is atomic within one file system only.
    neighbour = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(neighbour, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(neighbour, target)
    finally:
        neighbour.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file, atomically and under exactly that name."""
    write_atomically(path, lambda file: np.savez(file, **dict(arrays)))  # type: ignore[arg-type]  # stub wants no **kwargs
