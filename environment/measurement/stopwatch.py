"""A stopwatch that the jumps of a clock do not disturb."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Seconds that have passed, also over several commands.

    A step of the clock backwards counts nothing, and neither does one forwards that is longer than any work between two
    readings: a machine was asleep, or someone has set its clock.
    """

    def __init__(
        self, before_s: float = 0.0, *, longest_step_s: float = 600.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
          before_s: seconds that have passed before.
          longest_step_s: longest step between two readings that counts.
          now: returns seconds since some fixed moment.
        """
        self._now, self._longest_s = now, longest_step_s
        self._passed_s, self._last = before_s, now()

    def elapsed(self) -> float:
        """Returns the seconds that have passed."""
        now = self._now()
        step = now - self._last
        self._last = now
        if 0 < step <= self._longest_s:
            self._passed_s += step
        return self._passed_s
