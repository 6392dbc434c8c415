"""Races: which of several programs are faster than a reference, by as few samples as that takes.

This is how all parts of the program decide what is faster. The candidates of a race run interleaved with the reference,
in two heats of sessions of their own. A candidate leaves the race as soon as enough evidence says that it is not worth
having. It wins the first heat as soon as enough evidence says that it is faster, and is then timed afresh in the second
heat, with other sessions and without regard to the first: sessions of one and the same file differ, and who wins has
often been lucky. A candidate that wins both heats is faster. A heat may end once its leader has won it: those that are
behind stay undecided.

In each heat, a program that is not faster than the reference by `margin` wins with a probability of at most
`Rule.error`, whatever noise there is and whenever a heat ends (`environment.statistics.sequential`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from environment.counting import count
from environment.inputs import Feeds, input_specs, timing_feeds
from environment.measurement.effort import FEWEST_PAIRS, common_clock
from environment.measurement.interleaving import Groups, Sampler, sampled_round
from environment.measurement.timing import Variant
from environment.statistics.intervals import Estimate, median_of_groups
from environment.statistics.sequential import Evidence, Verdict

HEATS = 2
"""Number of heats that a faster candidate wins."""
LONG = 6
"""Number of pairs by which a clear difference is proved; a candidate without a verdict is then looked at."""


@dataclass(frozen=True)
class Rule:
    """The rule by which a race decides.

    Attributes:
      margin: a candidate is faster if its ratio lies below 1 - margin: sessions of one file differ by about as much.
      worth: a candidate leaves the race if its ratio lies above 1 - worth.
      error: largest probability that one heat is won by a candidate that is not faster.
      miss: largest probability that one heat sends a candidate away that would be worth having.
      pairs: largest number of samples of each candidate in one heat; a heat that ends so decides nothing.
      warmup, settling: see `Effort`.
      seed: seed of the inputs, the order and the intervals.
    Raises:
      ValueError: a number is out of its range.
    """

    margin: float = 0.005
    worth: float = 0.01
    error: float = 0.05
    miss: float = 0.1
    pairs: int = 40
    warmup: int = 3
    settling: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.margin < 1 and 0 <= self.worth < 1 and 0 < self.error < 1 and 0 < self.miss < 1):
            raise ValueError(f"expected a margin, a worth, an error and a miss from 0 to 1, got {self}")
        if self.pairs < FEWEST_PAIRS:
            raise ValueError(f"expected at least {FEWEST_PAIRS} pairs, got {self.pairs}")

    @property
    def false_alarms(self) -> float:
        """The largest probability that a candidate that is not faster wins the race."""
        return self.error**HEATS


@dataclass(frozen=True)
class Outcome:
    """What a race says of one candidate.

    Attributes:
      verdict: faster, not faster or undecided.
      ratio: its time over the reference's; the last heat alone decides, because the earlier ones are biased.
      pairs: number of its samples in all heats.
      sessions: number of its sessions.
    """

    verdict: Verdict
    ratio: Estimate
    pairs: int
    sessions: int


@dataclass
class _Runner:
    """A candidate in a race.

    Attributes:
      ratios: ratios of its pairs, by heat.
      verdict: the verdict so far; None while it runs in a heat.
    """

    rule: Rule
    ratios: Groups = field(default_factory=list)
    verdict: Verdict | None = None

    def begin_heat(self) -> None:
        self.ratios.append([])
        self.verdict = None
        self._faster = Evidence(1 - self.rule.margin, "below")
        self._idle = Evidence(1 - self.rule.worth, "above")

    def add(self, ratio: float) -> None:
        if not any(self.ratios):
            count(end_to_end_timings=1)
        self.ratios[-1].append(ratio)
        self._faster.add(ratio)
        self._idle.add(ratio)
        if self._faster.reaches(self.rule.error):
            self.verdict = Verdict.FASTER
        elif self._idle.reaches(self.rule.miss):
            self.verdict = Verdict.NOT_FASTER
        elif len(self.ratios[-1]) >= self.rule.pairs:
            self.verdict = Verdict.UNDECIDED

    @property
    def is_running(self) -> bool:
        return self.verdict is None

    def is_ahead_of(self, other: _Runner) -> bool:
        """Returns whether it has the smaller median of ratios in this heat."""
        return float(np.median(self.ratios[-1])) < float(np.median(other.ratios[-1]))

    def outcome(self) -> Outcome:
        groups = [group for group in self.ratios if group]
        verdict = self.verdict or Verdict.UNDECIDED
        ratio = median_of_groups(groups[-1:], self.rule.seed) if groups else Estimate.without_interval(math.nan)
        return Outcome(verdict, ratio, sum(map(len, groups)), len(groups))


def race(
    reference: Variant,
    candidates: Sequence[Variant],
    rule: Rule | None = None,
    *,
    feeds: Feeds | None = None,
    seconds: float = math.inf,
    ends_with_leader: bool = False,
    is_same: Callable[[int], bool] = lambda candidate: False,
    on_round: Callable[[], object] = lambda: None,
    is_asked_to_end: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Returns which candidates are faster than the reference.

    A candidate counts as a timing (`environment.counting`) from its first sample on, however the race ends.

    Args:
      rule: None means the defaults of `Rule`.
      feeds: arrays by input name; None means `timing_feeds` of the reference.
      seconds: limit of time of each heat; what is not decided by then, and by `LONG` pairs, stays undecided.
      ends_with_leader: whether a heat ends once a candidate has won it and no other one is ahead of that.
      is_same: called once, in the first heat, with each candidate that has no verdict after `LONG` pairs; returns
        whether it is known that it does the same as the reference, so that it is not faster.
      on_round: called after each round of samples.
      is_asked_to_end: returns whether to end at once; asked between rounds.
      now: returns wall-clock seconds, for the limit of time.
    Raises:
      UnavailableError: a runtime or device is not here.
      ModelError: a runtime cannot run a model.
      ClockError: the clock does not go forward.
    """
    rule = rule or Rule()
    if feeds is None:
        feeds = timing_feeds(input_specs(reference.model), np.random.default_rng(rule.seed))
    rng, clock = np.random.default_rng(rule.seed), common_clock(each.runtime.clock for each in (reference, *candidates))
    variants, runners = [reference, *candidates], {index: _Runner(rule) for index in range(1, 1 + len(candidates))}

    def open_sampler(index: int) -> Sampler:
        session = variants[index].runtime.open(variants[index].model, feeds)
        return Sampler(session, clock, rule.warmup, rule.settling, variants[index].before_each)

    def look_at(index: int, runner: _Runner) -> None:
        if len(runner.ratios) == 1 and len(runner.ratios[0]) == LONG and is_same(index - 1):
            runner.verdict = Verdict.NOT_FASTER

    running = runners
    for _ in range(HEATS):
        until = now() + seconds

        def is_over(heat: dict[int, _Runner] = running, until: float = until) -> bool:
            is_late = now() >= until and all(len(each.ratios[-1]) >= LONG for each in heat.values() if each.is_running)
            return is_asked_to_end() or is_late or (ends_with_leader and _has_leader(heat.values()))

        if not running or is_asked_to_end():
            break
        _heat(running, open_sampler, rng, look_at, on_round, is_over)
        running = {index: runner for index, runner in running.items() if runner.verdict is Verdict.FASTER}
    for runner in running.values():
        if len(runner.ratios) < HEATS:  # it has won a heat, but the race was ended
            runner.verdict = Verdict.UNDECIDED
    return [runner.outcome() for runner in runners.values()]


def _has_leader(runners: Iterable[_Runner]) -> bool:
    """Returns whether a runner has won the heat, and none that still runs is ahead of it."""
    runners = list(runners)
    won = [each for each in runners if each.verdict is Verdict.FASTER]
    return any(not any(other.is_running and other.is_ahead_of(each) for other in runners) for each in won)


def _heat(
    runners: dict[int, _Runner],
    open_sampler: Callable[[int], Sampler],
    rng: np.random.Generator,
    look_at: Callable[[int, _Runner], object],
    on_round: Callable[[], object],
    is_over: Callable[[], bool],
) -> None:
    """Runs one heat, in which each runner leaves, with its session, as soon as it has a verdict."""
    for runner in runners.values():
        runner.begin_heat()
    # In random order: the place of a session's memory depends on earlier sessions and can change times by 1 %.
    samplers = {index: open_sampler(index) for index in rng.permutation([0, *runners]).tolist()}
    while len(samplers) > 1 and not is_over():
        for found in sampled_round(samplers, rng):
            for index, seconds in found.items():
                if index:
                    runners[index].add(seconds / found[0])
        for index, runner in runners.items():
            if runner.is_running:
                look_at(index, runner)
            if not runner.is_running:
                samplers.pop(index, None)
        on_round()
