"""What libraries print themselves, past Python's own streams."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def discarded(descriptor: int) -> Iterator[None]:
    """Discards what is written to a file descriptor of this process inside the block: 1, standard output, or 2.

    Messages of C++ go there, where redirecting `sys.stdout` or `sys.stderr` would not catch them.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept, nowhere = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(nowhere)
