"""When a dream is too good to be true: better than all that is known to be real. Percent of the start graph's cost."""

from __future__ import annotations

PRINTED = 0.01
"""Points: percents that differ by less are printed alike."""


def is_too_good(dreamed_percent: float, real_percent: float) -> bool:
    """Whether a dreamed improvement is more than the best real one that is known."""
    return dreamed_percent - real_percent >= PRINTED
