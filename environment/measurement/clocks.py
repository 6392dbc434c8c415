"""What run times are read from."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """A source of seconds.

    Attributes:
      name: as a result calls it.
      scope: how much it sees: of two clocks, the one of the larger scope is right wherever the other is.
      now: seconds since some fixed moment.
      interruptions: how often those whose time is read were made to wait while they had work to do.
    """

    name: str
    scope: int
    now: Callable[[], float]
    interruptions: Callable[[], int]


def _interruptions(of: int) -> Callable[[], int]:
    return lambda: resource.getrusage(of).ru_nivcsw


THREAD_CPU = Clock("CPU time of the calling thread", 0, time.thread_time, _interruptions(resource.RUSAGE_THREAD))
"""Blind to other threads and processes; right only where the calling thread does all the work itself."""
PROCESS_CPU = Clock("CPU time of the process", 1, time.process_time, _interruptions(resource.RUSAGE_SELF))
"""Blind to other processes; right where one thread at a time works, whichever it is."""
WALL = Clock("wall clock", 2, time.perf_counter, _interruptions(resource.RUSAGE_SELF))
"""Right everywhere, and disturbed by everything."""


def common_clock(clocks: Iterable[Clock]) -> Clock:
    """The clock by which all can be compared: times of different clocks are not."""
    return max(clocks, key=lambda clock: clock.scope)
