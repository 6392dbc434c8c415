"""Seeds: one for each purpose, all from the one that the user gives."""

from __future__ import annotations

import zlib

import numpy as np


def seed_for(seed: int, purpose: str) -> int:
    """Seed of one purpose: independent of all others, the same in a resumed run; fits into int32."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    return int(sequence.generate_state(1)[0] >> 1)
