"""Tests of which measured ratios cannot both be right."""

from __future__ import annotations

import pytest

from environment.statistics.sequential import Verdict
from experiments.runs.result import MeasuredRatio
from experiments.validation.compared_times import time_differences


def ratio(
    value: float,
    half_width: float,
    verdict: Verdict = Verdict.UNDECIDED,
    sessions: int = 3,
    control: float | None = None,
    pairs: int = 12,
) -> MeasuredRatio:
    itself = {} if control is None else {"control_ratio": control, "control_low": control, "control_high": control}
    return MeasuredRatio(
        ratio=value,
        low=value - half_width,
        high=value + half_width,
        before_ms=1.0,
        after_ms=value,
        noise=0.0,
        device="cpu",
        runtime="",
        clock="",
        pairs=pairs,
        sessions=sessions,
        ending="",
        verdict=verdict,
        **itself,
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (ratio(0.10, 0.01), ratio(0.80, 0.02)),
        (ratio(0.80, 0.02), ratio(0.10, 0.01)),
        (ratio(0.80, 0.01), ratio(0.90, 0.01)),
        (ratio(0.95, 0.5, Verdict.FASTER, sessions=1), ratio(1.05, 0.5, Verdict.SLOWER, sessions=1)),
    ],
    ids=["faster", "slower", "near", "one session"],
)
def test_a_ratio_that_cannot_be_right_is_named(then: MeasuredRatio, now: MeasuredRatio) -> None:
    (found,) = time_differences(then, now)
    assert str(then.interval) in found.expected and str(now.interval) in found.found


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (ratio(0.80, 0.02), ratio(0.81, 0.02)),
        (ratio(0.80, 0.00), ratio(0.81, 0.00)),  # sessions of identical bytes differ as much
        (ratio(0.80, 0.03), ratio(0.87, 0.03)),  # those of 95 % do not overlap
        (ratio(0.80, 0.00, control=1.1), ratio(0.87, 0.00)),  # the model differs from itself
        (ratio(0.80, 0.01, sessions=1), ratio(0.95, 0.01)),  # the interval of one session describes that one alone
        (ratio(0.97, 0.05, Verdict.FASTER), ratio(1.00, 0.05)),
        (ratio(0.50, 0.00, Verdict.FASTER, pairs=2), ratio(1.50, 0.00, Verdict.SLOWER)),
    ],
    ids=["alike", "floor", "level", "control", "one session", "undecided", "two pairs"],
)
def test_noise_is_no_difference(then: MeasuredRatio, now: MeasuredRatio) -> None:
    assert not list(time_differences(then, now))
