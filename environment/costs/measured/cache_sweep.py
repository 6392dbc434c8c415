"""Reads memory that nobody needs, so that what was in the processor's caches makes room for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_FLOATS_PER_MB = 250_000

_memory = np.zeros(0, np.float32)


def sweep(mb: float) -> Callable[[], object]:
    """What reads so much, at some 15 MB a millisecond; the memory is kept for those that come next."""
    global _memory
    count = round(mb * _FLOATS_PER_MB)
    if len(_memory) < count:
        _memory = np.ones(count, np.float32)  # written: pages of zeros would all be one page
    return _memory[:count].max
