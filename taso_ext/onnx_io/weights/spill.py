"""Arrays that do not fit the memory one wants to spend: the rest lies in a temporary file."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np

LARGEST_KEPT = 1 << 28
"""Bytes of arrays that stay in memory."""
_SMALLEST_SPILLED = 1 << 16
"""Bytes; smaller arrays are not worth a mapping of their own."""


class Spill:
    """Keeps arrays in memory up to `largest_kept` bytes in all, and further ones in a temporary file, mapped.

    The file has no name and is gone with the last of its arrays.
    """

    def __init__(self, largest_kept: int = LARGEST_KEPT) -> None:
        self._left = largest_kept
        self._file: IO[bytes] | None = None

    def keep(self, array: np.ndarray) -> np.ndarray:
        """The array itself, or an equal one that takes no memory of its own.

        Raises:
          OSError: the file cannot be written.
        """
        if array.nbytes <= max(self._left, _SMALLEST_SPILLED):
            self._left -= array.nbytes
            return array
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the arrays do
        offset = self._file.tell()
        array.tofile(self._file)
        self._file.flush()
        return np.memmap(self._file, array.dtype, "r", offset, array.shape)
