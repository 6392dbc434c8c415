"""Timing yields a ratio of interleaved runs with an interval that covers it. No test asserts on a clock."""

from __future__ import annotations

import math

import numpy as np
import pytest

from environment import runtime, zoo
from environment.runtime import DeviceError, available_devices, measure_pair, median_interval, provider_of

MODEL = "squeezenet1.1-tiny"


class FakeClock:
    """Replaces the timed run: a machine that drifts, with sessions that differ, and candidates `ratio` times slower."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ratio: float, noise: float) -> None:
        self.rng = np.random.default_rng(0)
        self.drift, self.created = 1.0, 0
        self.order: list[int] = []
        clock = self

        def create(runner: object, *arguments: object) -> None:
            runner.which = clock.created % 2  # type: ignore[attr-defined]
            clock.created += 1

        def run(runner: object, repeats: int) -> float:
            which = runner.which  # type: ignore[attr-defined]
            clock.order.append(which)
            clock.drift *= math.exp(0.05 * clock.rng.standard_normal())  # far more than what is to be measured
            speed = ratio if which else 1.0
            return 1e-2 * speed * clock.drift * math.exp(noise * clock.rng.standard_normal())

        monkeypatch.setattr(runtime._Runner, "__init__", create)
        monkeypatch.setattr(runtime._Runner, "run", run)


def test_unknown_device_names_the_available_ones() -> None:
    assert available_devices()[-1] == "cpu"
    for device in ("cppu", "cuda-of-the-future"):
        with pytest.raises(DeviceError, match=f"'{device}' is not available.*has .*cpu.* here") as error:
            measure_pair(zoo.build(MODEL), zoo.build(MODEL), device=device)
        assert "\n" not in str(error.value)
    assert provider_of("cpu") == "CPUExecutionProvider"


def test_real_sessions_are_measured_in_pairs() -> None:
    model, done = zoo.build(MODEL), []
    found = measure_pair(model, model, pairs=7, sessions=3, on_pair=lambda *progress: done.append(progress))
    assert (found.pairs, found.sessions, found.device, found.threads) == (7, 3, "cpu", 1)
    assert done == [(count, 7) for count in range(1, 8)]
    assert 0 < found.ci_low <= found.ratio <= found.ci_high
    assert found.reference_ms > 0 and found.candidate_ms > 0


def test_several_threads_are_timed_by_the_wall_clock() -> None:
    model = zoo.build(MODEL)
    assert measure_pair(model, model, pairs=2, sessions=1, threads=2).threads == 2


def test_token_models_can_be_timed() -> None:
    model = zoo.build("bert-base-tiny")
    assert measure_pair(model, model, pairs=2, sessions=1).pairs == 2


@pytest.mark.parametrize("ratio", [0.7, 0.98, 1.0, 1.1])
def test_ratio_is_found_under_drift(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    FakeClock(monkeypatch, ratio, noise=0.0)
    found = measure_pair(zoo.build(MODEL), zoo.build(MODEL), pairs=100)
    # The drift between the two halves of a pair has a standard deviation of 5 %; the median of 100 has 0.6 %, so that
    # 3 % is five of those (false alarms below one in a million).
    assert found.ratio == pytest.approx(ratio, rel=0.03)


def test_order_within_pairs_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch, 1.0, noise=0.0)
    measure_pair(zoo.build(MODEL), zoo.build(MODEL), pairs=200, sessions=1)
    firsts = clock.order[2::2]  # the first two runs find the number of repeats
    assert 60 < sum(firsts) < 140  # of 200; outside with a probability below 1e-7


def test_measurement_stops_when_it_is_precise_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeClock(monkeypatch, 0.9, noise=0.0)
    everything = measure_pair(zoo.build(MODEL), zoo.build(MODEL), pairs=200, sessions=2)
    enough = measure_pair(zoo.build(MODEL), zoo.build(MODEL), pairs=200, sessions=2, resolution=0.05)
    assert everything.pairs == 200
    assert 10 <= enough.pairs < 200


def test_the_same_seed_gives_the_same_interval() -> None:
    groups = [np.random.default_rng(0).normal(1, 0.1, 10) for _ in range(3)]
    assert median_interval(groups, 1) == median_interval(groups, 1)


def test_interval_covers_the_median_at_its_confidence() -> None:
    """200 intervals of 95 %: with a coverage of 0.93 or more, fewer than 172 hits come once in 10,000 runs."""
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        low, high = median_interval([rng.lognormal(0.0, 0.05, 40)], trial)
        hits += low <= 1.0 <= high
    assert hits >= 172


def test_differences_between_sessions_widen_the_interval() -> None:
    """Ten samples of each of five sessions are not fifty independent samples."""
    rng = np.random.default_rng(0)
    groups = [1.0 + session + rng.normal(0, 0.001, 10) for session in rng.normal(0, 0.02, 5)]
    low, high = median_interval(groups, 0)
    pooled_low, pooled_high = median_interval([np.concatenate(groups)], 0)
    assert high - low > 1.3 * (pooled_high - pooled_low)


@pytest.mark.parametrize(("pairs", "sessions"), [(1, 1), (5, 0)])
def test_too_few_samples_are_refused(pairs: int, sessions: int) -> None:
    with pytest.raises(ValueError, match="at least 2 pairs and 1 session"):
        measure_pair(zoo.build(MODEL), zoo.build(MODEL), pairs=pairs, sessions=sessions)
