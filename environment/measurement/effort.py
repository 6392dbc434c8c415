"""The effort of a measurement, what may end it, and the clock that it reads."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

FEWEST_PAIRS = 2
"""Fewest pairs of a measurement: one pair has no interval."""

Ended = Literal["resolution", "time", "pairs"]
"""The cause that ended a measurement: the requested resolution was reached, or the time or the pairs were used up."""


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement.

    Attributes:
      resolution: the measurement ends once half the width of every candidate's interval is below this fraction of its
        ratio (0.01 is one percent); None ends it only when the pairs or the time are used up.
      pairs: largest number of samples of each candidate.
      seconds: wall-clock limit of everything, sessions included; 0 means none. Two pairs are always taken.
      sessions: number of sessions of each variant, one after the other, so that only one of each is in memory. More
        follow while the interval is too wide and neither pairs nor time are used up.
      warmup: number of uncounted inferences of a new session; fewer than three count as three. One fewer is run if one
        inference takes over 50 ms.
      settling: largest number of uncounted inferences before each sample; see `environment.measurement.interleaving`.
      control: whether a second session of the reference is measured like a candidate.
      floor: if it is not None, the resolution does not end the measurement before it is also decided on which side of
        1 - floor, or of 1 + floor, the ratio of every candidate lies. Candidates that lie between use up the pairs.
      seed: seed of the inputs, the order and the bootstrap.
    Raises:
      ValueError: a number is out of its range.
    """

    resolution: float | None = 0.01
    pairs: int = 60
    seconds: float = 0.0
    sessions: int = 5
    warmup: int = 3
    settling: int = 5
    control: bool = True
    floor: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pairs < FEWEST_PAIRS or self.sessions < 1:
            raise ValueError(
                f"expected at least {FEWEST_PAIRS} pairs and 1 session, got {self.pairs} and {self.sessions}"
            )
        if self.seconds < 0 or self.warmup < 1 or (self.resolution is not None and self.resolution <= 0):
            raise ValueError(
                f"expected a time limit of at least 0 seconds, at least 1 warm-up and a resolution above 0, got "
                f"{self.seconds}, {self.warmup} and {self.resolution}"
            )


class ClockError(ValueError):
    """A clock that stands still or runs backwards, by which nothing can be timed; the message says what to do."""


@dataclass(frozen=True)
class Clock:
    """A source of seconds.

    Attributes:
      name: name in results.
      scope: rank among clocks; the clock of the larger scope is right wherever the other one is.
      now: returns seconds since some fixed moment.
      interruptions: returns how often the system made the timed threads wait while they had work to do.
    """

    name: str
    scope: int
    now: Callable[[], float]
    interruptions: Callable[[], int]


def _interruptions(of: int) -> Callable[[], int]:
    return lambda: resource.getrusage(of).ru_nivcsw


THREAD_CPU = Clock("CPU time of the calling thread", 0, time.thread_time, _interruptions(resource.RUSAGE_THREAD))
"""It does not see other threads and processes, so that it is right only if the calling thread does all the work."""
PROCESS_CPU = Clock("CPU time of the process", 1, time.process_time, _interruptions(resource.RUSAGE_SELF))
"""It does not see other processes. It is right if one thread at a time works, whichever it is."""
WALL = Clock("wall clock", 2, time.perf_counter, _interruptions(resource.RUSAGE_SELF))
"""It is right everywhere, but everything disturbs it."""


def common_clock(clocks: Iterable[Clock]) -> Clock:
    """Returns the clock of the largest scope, because times of different clocks cannot be compared."""
    return max(clocks, key=lambda clock: clock.scope)
