"""Compares the time of a result with the one that its run has recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator

from environment.statistics.sequential import Verdict
from experiments.pipeline.clock.measure import floor_of
from experiments.runs.result import MeasuredRatio
from experiments.validation.recomputed_costs import widened
from experiments.validation.replayed_episodes import Difference

RECORD, WHAT = "result.json", "the measured ratio"
FEWEST_PAIRS = 6
"""Fewest pairs of a measurement that is compared: that n pairs all lie on one side of the truth has the probability
2 / 2^n, which is below 5 % from here on; an interval of fewer pairs may well miss it."""


def time_differences(then: MeasuredRatio, now: MeasuredRatio) -> Iterator[Difference]:
    """Yields a difference if two measurements in one setting cannot both be right.

    They cannot if one says beyond noise that the result is faster and the other that it is slower. Nor can they if
    their intervals do not overlap, for which the intervals are widened in three ways, so that noise alone is not taken
    for a difference:

    - from 95 % to 99 % (`widened`). That two of them do not overlap is then rarer still, by chance 3 times in 10,000;
    - by as much as each of the measurements calls noise (`floor_of`), because sessions of identical bytes differ by
      more than their samples show;
    - without limit if a measurement has one session only, whose interval describes that session alone.

    Measurements of fewer than `FEWEST_PAIRS` pairs are not compared.
    """
    if min(then.pairs, now.pairs) < FEWEST_PAIRS:
        return
    if then.is_faster and now.verdict == Verdict.SLOWER:
        yield Difference(RECORD, None, WHAT, f"{then.interval}, faster", f"{now.interval}, slower")
        return
    if min(then.sessions, now.sessions) < 2:
        return
    high, low = sorted((then, now), key=lambda each: each.ratio, reverse=True)
    reach = widened(1) * (math.log(high.ratio / high.low) + math.log(low.high / low.ratio))
    noise = math.log1p(floor_of(then.control)) + math.log1p(floor_of(now.control))
    if math.log(high.ratio / low.ratio) > reach + noise:
        yield Difference(RECORD, None, WHAT, str(then.interval), str(now.interval))
