"""Evidence that one program is faster than another, which may be looked at after every pair of samples.

Two programs are timed in pairs, and a coin decides which of the two comes first. If both take equally long, whatever
disturbs the machine (drift, bursts, outliers) disturbs either with the same probability. The logarithm of the ratio of
a pair is then positive as often as negative, whatever its size and whatever came before. `Evidence` is the capital of a
player who bets on the sign. The player wins nothing in the mean if the sign is that of a fair coin, so that the capital
ever reaches 1 / error with a probability of at most `error`: one may stop whenever one likes.

Source: Ville 1939 (the inequality); Ramdas et al. 2023, "Game-Theoretic Statistics and Safe Anytime-Valid Inference".
"""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import numpy as np

STAKES = (0.2, 0.5, 0.98)
"""Parts of the capital that are bet on a pair of usual size; a third of the capital follows each.

The smallest one finds small effects in much noise. With the largest one, six pairs that agree are evidence at 5 %."""

Direction = Literal["below", "above"]
FALSE_ALARMS = 0.0025
"""Largest probability of a wrong verdict: 1 in 400."""


class Verdict(StrEnum):
    """What samples say about the time of a program, compared with that of a reference."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_FASTER = "not faster"
    UNDECIDED = "undecided"


class Evidence:
    """Evidence that the typical ratio of pairs lies below, or above, a given one.

    The bet on a pair is smaller if its ratio is nearer to the given one than that of half the pairs so far, as such a
    pair says little. This uses the size of a difference alone, so that the sign stays that of a fair coin.

    Attributes:
      pairs: number of pairs so far.
    """

    def __init__(self, threshold: float, direction: Direction) -> None:
        """
        Args:
          threshold: the given ratio, above 0.
          direction: on which side of it the ratio is supposed to lie.
        Raises:
          ValueError: the threshold is not above 0.
        """
        if not 0 < threshold < math.inf:
            raise ValueError(f"expected a finite threshold above 0, got {threshold}")
        self._threshold, self._sign = math.log(threshold), 1.0 if direction == "above" else -1.0
        self._log_capital = np.zeros(len(STAKES))
        self._sizes: list[float] = []
        self._most = 1.0

    @property
    def pairs(self) -> int:
        """Number of pairs so far."""
        return len(self._sizes)

    def add(self, ratio: float) -> None:
        """Takes the ratio of one more pair; it is above 0."""
        distance = self._sign * (math.log(ratio) - self._threshold)
        bisect.insort(self._sizes, abs(distance))
        usual = (self._sizes[(self.pairs - 1) // 2] + self._sizes[self.pairs // 2]) / 2
        weight = math.copysign(min(1.0, abs(distance) / usual), distance) if usual > 0 else math.copysign(1.0, distance)
        if distance:
            self._log_capital += np.log1p(np.array(STAKES) * weight)
        self._most = max(self._most, float(np.exp(self._log_capital).mean()))

    def reaches(self, error: float) -> bool:
        """Returns whether the evidence was ever so strong that it is mistaken with a probability of at most `error`."""
        return self._most >= 1 / error


def both_sides(floor: float) -> tuple[Evidence, Evidence]:
    """Returns the evidence, without any pair so far, that the typical ratio lies below and above 1 by more than noise.

    Args:
      floor: ratios closer to 1 than this are noise. If it is 1 or more, no ratio lies below.
    """
    return Evidence(max(1 - floor, sys.float_info.min), "below"), Evidence(1 + floor, "above")


def verdict_of(ratios: Iterable[float], floor: float, error: float = FALSE_ALARMS) -> Verdict:
    """Returns what the ratios of a finished measurement say: faster, slower or undecided.

    Args:
      ratios: ratios of pairs in the order of time, however many, and whatever has decided how many.
      floor: ratios closer to 1 than this are noise.
      error: largest probability that a program that is not faster is called so, and the same for slower.
    """
    faster, slower = both_sides(floor)
    for ratio in ratios:
        faster.add(ratio)
        slower.add(ratio)
    if faster.reaches(error):
        return Verdict.FASTER
    return Verdict.SLOWER if slower.reaches(error) else Verdict.UNDECIDED
