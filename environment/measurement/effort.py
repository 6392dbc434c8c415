"""How much is done for a measurement, and what may end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FEWEST_PAIRS = 2
"""One pair has no interval."""

Ended = Literal["resolution", "time", "pairs"]
"""What ended a measurement: the asked resolution was reached, or the time or the pairs were used up."""


@dataclass(frozen=True)
class Effort:
    """How much is done for a measurement.

    Attributes:
      resolution: stop once half the width of every candidate's interval is below this part of its ratio (0.01: one
        percent); None: only when the pairs or the time are used up.
      pairs: samples of each candidate, at most.
      seconds: wall-clock time for everything, also for making sessions; 0: no limit. Two pairs are always taken.
      sessions: of each variant, one after the other, so that only one of each is in memory; more are made while the
        interval is too wide and neither pairs nor time are used up.
      warmup: inferences of a new session that are not counted; fewer than three count as three. There is one less where
        one inference takes over 50 ms.
      settling: inferences before each sample that are not counted, at most; see `environment.measurement.sampling`.
      control: whether a second session of the reference is measured like a candidate.
      seed: of the inputs, the order and the bootstrap.
    Raises:
      ValueError: a number that makes no sense.
    """

    resolution: float | None = 0.01
    pairs: int = 60
    seconds: float = 0.0
    sessions: int = 5
    warmup: int = 3
    settling: int = 5
    control: bool = True
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
