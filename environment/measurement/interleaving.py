"""Samples of sessions, and rounds of samples of several variants in random order until they are precise enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from environment.measurement.effort import FEWEST_PAIRS, Clock, ClockError, Effort, Ended
from environment.runtimes import Session
from environment.statistics.intervals import Estimate, median_of_groups
from environment.statistics.sequential import FALSE_ALARMS, both_sides

_SHORTEST_SAMPLE_S = 0.002
"""Shortest sample: faster models run several times per sample, since clocks and caches make short samples noisy."""
_MOST_REPEATS = 1000
_ATTEMPTS = 3
"""Largest number of attempts at a sample that other processes interrupt; the last one counts.

A session of which all attempts are interrupted gets one attempt fewer for each further sample: on a busy machine they
would take three times as long, and come to the same."""
_LONG_SAMPLE_S = 0.05
"""Longer samples are kept even if they are interrupted, because most machines interrupt for a small part of the time.

Inferences of that length need little warm-up: the first inference of BERT-Base takes as long as its sixth."""
_SETTLING_S = 0.02
"""Time for uncounted inferences before each sample, at most `Effort.settling` of them. They bring the caches to the
state in which the model's own last inference left them. One inference is not enough if weights stay in the cache that
all cores share: after another session had run, the inferences of a NasRNN rewritten to read 64 MB instead of 17 took
4.9, 4.7, 4.4, 3.9, 3.6 … 3.4 ms, and those of NasRNN itself 4.4, 3.7, 3.6 … 3.6 ms. The first inference of ResNet-18
(25 ms) took as long as the 20th."""


PROBES = 2
"""Number of warm-up inferences, the last ones, that are timed to choose the repeats; one is enough if it is long."""


class Sampler:
    """A source of samples of a session, which it warms up first.

    Args:
      warmup: number of uncounted inferences; at least one beside the probes.
      settling: largest number of uncounted inferences before each sample.
      before_each: called before each inference and not timed; a sample is then one inference. If it is None, a sample
        is as many inferences in a row as make it long enough.
    """

    def __init__(
        self, session: Session, clock: Clock, warmup: int, settling: int, before_each: Callable[[], object] | None
    ) -> None:
        self._session, self._clock, self._before_each = session, clock, before_each
        for _ in range(max(warmup - PROBES, 1)):
            session.run()
        fastest = self._forward(1)
        if fastest < _LONG_SAMPLE_S:
            fastest = min(fastest, *(self._forward(1) for _ in range(PROBES - 1)))
        self._settling = 0 if before_each else min(settling, int(_SETTLING_S / fastest))
        shortest = max(_SHORTEST_SAMPLE_S, fastest * self._settling / 2)  # at least half as long as settling
        self._repeats = 1 if before_each else int(np.clip(np.ceil(shortest / fastest), 1, _MOST_REPEATS))
        self._attempts = _ATTEMPTS if fastest * self._repeats < _LONG_SAMPLE_S else 1

    def sample(self) -> float:
        """Takes a sample and returns the seconds per inference.

        Raises:
          ClockError: the clock stands still or runs backwards.
        """
        for _ in range(self._attempts):
            for _ in range(self._settling):
                self._session.run()
            interruptions = self._clock.interruptions()
            elapsed = self._forward(self._repeats)
            if self._clock.interruptions() == interruptions:
                break
        else:
            self._attempts = max(self._attempts - 1, 1)
        return elapsed / self._repeats

    def _forward(self, repeats: int) -> float:
        """Returns the seconds of `repeats` inferences in a row, of which a jump of the clock backwards costs one try.

        Raises:
          ClockError: see `sample`.
        """
        for _ in range(_ATTEMPTS):
            if (elapsed := self._elapsed(repeats)) > 0:
                return elapsed
        raise ClockError(
            f"The {self._clock.name} does not go forward: an inference that takes time has taken {elapsed:g} s by it, "
            f"{_ATTEMPTS} times in a row. Nothing can be timed by such a clock. Mend the clock of this machine and "
            f"repeat the command; what was finished is kept."
        )

    def _elapsed(self, repeats: int) -> float:
        """Returns the seconds of `repeats` inferences in a row."""
        run, now = self._session.run, self._clock.now
        if self._before_each is not None:
            self._before_each()
        start = now()
        for _ in range(repeats):
            run()
        return now() - start


BLOCK = 3
"""Most candidates that share a sample of the reference: the closer two samples in time, the less their ratio drifts."""
FEWEST_PRECISE, FEWEST_OF_SESSION, ENOUGH_OF_SESSION = 15, 3, 5
"""Fewest pairs before the precision may count as reached: in all sessions, in each of many, and in each of few.

In simulations that stopped as soon as possible, intervals of 15 pairs in five sessions covered 94 to 99 % (five
mixtures of noise, 300 measurements each), as those of 25 pairs did. The range of three samples contains the median
three times out of four, that of five samples 15 times out of 16.
"""
_RECHECK = 1.1
"""Factor by which the number of pairs grows before the intervals are computed again."""

Groups = list[list[float]]
"""Samples of each session."""


class Interleaving:
    """The samples of a reference (variant 0) and of the variants that are compared with it.

    Attributes:
      seconds: seconds per inference of each sample, by variant.
      ratios: ratio of each sample to that of the reference in the same block, by variant; none for the reference.
      pairs: number of rounds so far, which is the number of samples of each variant except the reference.
    """

    def __init__(
        self,
        open_sampler: Callable[[int], Sampler],
        num_variants: int,
        judged: Sequence[int],
        effort: Effort,
        on_pair: Callable[[int, int], object] | None,
        now: Callable[[], float],
    ) -> None:
        """
        Args:
          open_sampler: opens a session of a variant, given by its number.
          judged: variants whose precision counts; if there are none, the precision of the reference's time counts.
          on_pair: called with (pairs done, most pairs) after each round.
          now: wall-clock seconds.
        """
        self.seconds: list[Groups] = [[] for _ in range(num_variants)]
        self.ratios: list[Groups] = [[] for _ in range(num_variants)]
        self.pairs = 0
        self._open, self._judged, self._effort, self._on_pair, self._now = open_sampler, judged, effort, on_pair, now
        self._sessions = min(effort.sessions, effort.pairs)
        self._fewest = int(np.clip(math.ceil(FEWEST_PRECISE / self._sessions), FEWEST_OF_SESSION, ENOUGH_OF_SESSION))
        self._deadline = now() + effort.seconds if effort.seconds else math.inf
        self._rng = np.random.default_rng(effort.seed)
        self._opening_s = self._round_s = 0.0  # how long the last opening and round took
        self._evidence = {} if effort.floor is None else {each: both_sides(effort.floor) for each in judged}
        self._judged_at, self._precision = 0, math.inf
        self._recheck_at = 0.0

    @property
    def sessions(self) -> int:
        """Number of sessions of each variant so far."""
        return len(self.seconds[0])

    def run(self) -> Ended:
        """Takes samples until the resolution is reached, or the pairs or the time are used up; returns which."""
        while (ended := self._ended()) is None:
            self._use_session()
        return ended

    def ratio(self, variant: int) -> Estimate:
        """Returns the ratio of a variant's time to the reference's."""
        return median_of_groups(self.ratios[variant], self._effort.seed)

    def time(self, variant: int) -> Estimate:
        """Returns the seconds of one inference."""
        return median_of_groups(self.seconds[variant], self._effort.seed)

    def precision(self) -> float:
        """Returns half the width of the widest interval that counts, as a fraction of its value."""
        if self._judged_at != self.pairs:
            self._precision, self._judged_at = self._widest(self._judged_samples()), self.pairs
        return self._precision

    def _ended(self) -> Ended | None:
        if self.sessions >= self._sessions and self._reaches(self.precision()):
            return "resolution"
        if self.pairs >= self._effort.pairs:
            return "pairs"
        if self.pairs >= FEWEST_PAIRS and self._now() + self._opening_s + self._round_s > self._deadline:
            return "time"
        return None

    def _says_enough(self) -> bool:
        """Returns whether all sessions together, or the open ones alone, are precise enough."""
        self._recheck_at = _RECHECK * self.pairs
        of_these = [groups[-1:] for groups in self._judged_samples()]
        return self._reaches(self.precision()) or self._reaches(self._widest(of_these))

    def _reaches(self, precision: float) -> bool:
        """Returns whether the precision is that of the effort, and, if asked for, all candidates decided."""
        if self._effort.resolution is None or precision > self._effort.resolution:
            return False
        return all(any(side.reaches(FALSE_ALARMS) for side in sides) for sides in self._evidence.values())

    def _judged_samples(self) -> list[Groups]:
        return [self.ratios[variant] for variant in self._judged] or [self.seconds[0]]

    def _widest(self, samples: Sequence[Groups]) -> float:
        """Returns half the width of the widest interval, as a fraction of its value."""
        return max(median_of_groups(groups, self._effort.seed).half_width for groups in samples)

    def _use_session(self) -> None:
        """Opens one more session of each variant, uses its share of the pairs and of the time, and closes it."""
        begin = self._now()
        # In random order: the place of a session's memory depends on earlier sessions and can change times by 1 %.
        samplers = {variant: self._open(variant) for variant in self._rng.permutation(len(self.seconds)).tolist()}
        self._opening_s = self._now() - begin
        left = self._sessions - self.sessions
        most = math.ceil((self._effort.pairs - self.pairs) / left) if left > 0 else self._fewest
        until = begin + (self._deadline - begin) / left if left > 0 else self._deadline
        for groups in (*self.seconds, *self.ratios):
            groups.append([])
        for done in range(1, min(most, self._effort.pairs - self.pairs) + 1):
            begin = self._now()
            self._round(samplers)
            self._round_s = self._now() - begin
            if done >= self._fewest and self.pairs >= self._recheck_at and self._says_enough():
                break
            if self.pairs >= FEWEST_PAIRS and self._now() + self._round_s > until:
                break

    def _round(self, samplers: Mapping[int, Sampler]) -> None:
        """Takes one sample of every variant, and adds the samples and their ratios."""
        for found in sampled_round(samplers, self._rng):
            for variant, seconds in found.items():
                self.seconds[variant][-1].append(seconds)
                if variant:
                    self.ratios[variant][-1].append(seconds / found[0])
                for side in self._evidence.get(variant, ()):
                    side.add(seconds / found[0])
        self.pairs += 1
        if self._on_pair is not None:
            self._on_pair(self.pairs, self._effort.pairs)


def sampled_round(samplers: Mapping[int, Sampler], rng: np.random.Generator) -> Iterator[dict[int, float]]:
    """Takes one sample of every variant, in blocks that each hold one of the reference, which is variant 0.

    Args:
      samplers: the samplers by variant.
      rng: decides which variants share a block, and their order.
    Yields:
      The seconds per inference of the variants of a block, in the order in which they ran.
    """
    others = rng.permutation(sorted(variant for variant in samplers if variant))
    for block in np.array_split(others, max(math.ceil(len(others) / BLOCK), 1)):
        yield {variant: samplers[variant].sample() for variant in rng.permutation([0, *block]).tolist()}
