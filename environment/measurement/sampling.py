"""Samples of the run time of one session."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environment.measurement.clocks import Clock
from environment.runtimes import Session

_SHORTEST_SAMPLE_S = 0.002
"""Faster models are run several times per sample: clocks and caches make shorter ones noisy."""
_MOST_REPEATS = 1000
_ATTEMPTS = 3
"""How often a sample is taken again when another process interrupted it; on a busy machine the last one has to do."""
_LONG_SAMPLE_S = 0.05
"""Samples that should take longer are interrupted on most machines, by a small part of their time: they are kept.

Nor do inferences that long need to be warmed up for long: BERT-Base's first one takes as long as its sixth."""
_SETTLING_S = 0.02
"""Before each sample a model is run anew for as long, or `Effort.settling` times, to find the caches as its own last
inference left them. One is not enough where weights stay in the cache that all cores share: of NasRNN rewritten to read
64 MB instead of 17, inferences after another session's took 4.9, 4.7, 4.4, 3.9, 3.6 … 3.4 ms, of NasRNN itself 4.4,
3.7, 3.6 … 3.6. Of ResNet-18 (25 ms) the first took as long as the twentieth."""


PROBES = 2
"""Of the inferences that warm a session up, the last ones, which tell how long one takes; of long ones the last."""


class Sampler:
    """A session that has been warmed up, and how often it is run for one sample.

    Args:
      warmup: inferences that are not counted; at least one beside the probes.
      settling: inferences before each sample that are not counted, at most.
      before_each: called before each inference, not timed; a sample is one inference then. None: they follow one
        another, and as many are timed together as make a sample long enough.
    """

    def __init__(
        self, session: Session, clock: Clock, warmup: int, settling: int, before_each: Callable[[], object] | None
    ) -> None:
        self._session, self._clock, self._before_each = session, clock, before_each
        for _ in range(max(warmup - PROBES, 1)):
            session.run()
        fastest = self._elapsed(1)
        if fastest < _LONG_SAMPLE_S:
            fastest = min(fastest, *(self._elapsed(1) for _ in range(PROBES - 1)))
        fastest = max(fastest, 1e-9)
        self._settling = 0 if before_each else min(settling, int(_SETTLING_S / fastest))
        shortest = max(_SHORTEST_SAMPLE_S, fastest * self._settling / 2)  # what was settled for is made use of
        self._repeats = 1 if before_each else int(np.clip(np.ceil(shortest / fastest), 1, _MOST_REPEATS))
        self._attempts = _ATTEMPTS if fastest * self._repeats < _LONG_SAMPLE_S else 1

    def sample(self) -> float:
        """Seconds per inference."""
        for _ in range(self._attempts):
            for _ in range(self._settling):
                self._session.run()
            interruptions = self._clock.interruptions()
            elapsed = self._elapsed(self._repeats)
            if self._clock.interruptions() == interruptions:
                break
        return elapsed / self._repeats

    def _elapsed(self, repeats: int) -> float:
        """Seconds of several inferences; of one, if something comes before each."""
        run, now = self._session.run, self._clock.now
        if self._before_each is not None:
            self._before_each()
        start = now()
        for _ in range(repeats):
            run()
        return now() - start
