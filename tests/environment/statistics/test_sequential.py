"""Sequential evidence keeps its error rate whatever the noise is and whenever one looks. Every draw is seeded."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from environment.measurement.racing import Rule
from environment.statistics.sequential import FALSE_ALARMS, Evidence, Verdict, verdict_of

Noise = Callable[[np.random.Generator, int], np.ndarray]
"""Returns the logarithms of the factors by which a number of inferences, one after the other, take longer."""


def quiet(rng: np.random.Generator, count: int) -> np.ndarray:
    return 0.005 * rng.standard_normal(count)


def heavy_tailed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Without a variance: Student's t with 1.5 degrees of freedom."""
    return 0.01 * rng.standard_t(1.5, count)


def drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.cumsum(0.02 * rng.standard_normal(count)) + quiet(rng, count)


def bursty(rng: np.random.Generator, count: int) -> np.ndarray:
    """A neighbour comes and goes, for ten inferences in the mean, and makes each of them take 35 % longer or so."""
    busy = np.cumsum(rng.random(count) < 0.1) % 2
    return quiet(rng, count) + busy * rng.gamma(2.0, 0.15, count)


NOISES: list[Noise] = [quiet, heavy_tailed, drifting, bursty]


def ratios(noise: Noise, ratio: float, pairs: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the ratios of pairs whose order a coin decides."""
    both = noise(rng, 2 * pairs).reshape(pairs, 2)
    swapped = rng.random(pairs) < 0.5
    difference = np.where(swapped, both[:, 1] - both[:, 0], both[:, 0] - both[:, 1])
    return ratio * np.exp(difference)


def pairs_until(found: np.ndarray, threshold: float, error: float) -> float:
    evidence = Evidence(threshold, "below")
    for ratio in found:
        evidence.add(ratio)
        if evidence.reaches(error):
            return evidence.pairs
    return math.inf


@pytest.mark.parametrize("noise", NOISES)
def test_false_alarms_are_as_rare_as_stated_although_one_looks_after_every_pair(noise: Noise) -> None:
    """At 5 %, more than 33 alarms of 400 come once in 300 such tests."""
    rng = np.random.default_rng(0)
    alarms = sum(pairs_until(ratios(noise, 1.0, 100, rng), 1.0, 0.05) < math.inf for _ in range(400))
    assert alarms <= 33


@pytest.mark.parametrize("noise", NOISES)
def test_a_faster_program_is_found_by_fewer_pairs_than_a_fixed_effort_takes(noise: Noise) -> None:
    """The effort before took 24 pairs, twice. Even among bursts, half of the tests end earlier, and one in 20 fails."""
    rng = np.random.default_rng(1)
    taken = [pairs_until(ratios(noise, 0.9, 200, rng), 1 - Rule().margin, Rule().error) for _ in range(60)]
    assert np.median(taken) < 24
    assert sum(math.isinf(each) for each in taken) <= 3


def test_six_pairs_that_agree_are_evidence_and_five_are_not() -> None:
    evidence = Evidence(1.0, "below")
    for _ in range(5):
        evidence.add(0.9)
    assert not evidence.reaches(0.05)
    evidence.add(0.9)
    assert evidence.reaches(0.05) and evidence.pairs == 6


def test_one_outlier_counts_no_more_than_any_other_pair() -> None:
    evidence = Evidence(1.0, "below")
    for ratio in (1e-6, 1.01, 1.01, 1.01):
        evidence.add(ratio)
    assert not evidence.reaches(0.5)


def test_what_was_proved_stays_proved() -> None:
    evidence = Evidence(1.0, "above")
    for ratio in [1.1] * 10 + [0.9] * 50:
        evidence.add(ratio)
    assert evidence.reaches(0.05)


def test_equal_times_are_evidence_of_nothing() -> None:
    assert verdict_of([1.0] * 1000, 0.0) is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(0.9, Verdict.FASTER), (1.1, Verdict.SLOWER), (0.995, Verdict.UNDECIDED)]
)
def test_the_verdict_of_many_pairs(ratio: float, verdict: Verdict) -> None:
    rng = np.random.default_rng(2)
    assert verdict_of(ratios(quiet, ratio, 60, rng), 0.01) is verdict
    assert verdict_of([ratio] * 2, 0.01) is Verdict.UNDECIDED


def test_a_race_and_a_measurement_are_equally_sure() -> None:
    assert Rule().false_alarms == pytest.approx(FALSE_ALARMS)


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.inf, math.nan])
def test_a_threshold_is_a_ratio(threshold: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Evidence(threshold, "below")


@pytest.mark.parametrize("floor", [1.0, 1.27, 50.0])
def test_where_noise_is_as_large_as_the_time_no_ratio_is_called_faster(floor: float) -> None:
    assert verdict_of([1e-6] * 40, floor) is Verdict.UNDECIDED
    assert verdict_of([2 + floor] * 40, floor) is Verdict.SLOWER
