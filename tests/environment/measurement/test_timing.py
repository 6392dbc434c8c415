"""Timing finds ratios that are known, says how well, and keeps to its budgets. No test asserts on a real clock."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import pytest

from environment import zoo
from environment.measurement.effort import PROCESS_CPU, THREAD_CPU, WALL, Effort, common_clock
from environment.measurement.interleaving import BLOCK
from environment.measurement.timing import Variant, VariantTiming, measure
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.environment.measurement.fake_machine import INFERENCE_S, FakeMachine

ALL = {"resolution": None}
WARMUP = 3  # inferences of a new session; the last two also show how long one takes


@pytest.mark.parametrize("ratio", [0.7, 0.98, 1.0, 1.1])
def test_ratio_is_found_under_drift(ratio: float) -> None:
    """Speed drifts by 5 % a step, 7 % over two; the median of 100 ratios errs by 0.9 %; 4.5 % is five times that."""
    found = FakeMachine(drift=0.05).measure([ratio], Effort(pairs=100, **ALL))
    assert found.ratio.value == pytest.approx(ratio, rel=0.045)


def test_candidates_keep_their_order_and_their_names() -> None:
    ratios = [3.0, 0.5, 1.2, 0.9, 2.0]
    machine = FakeMachine(noise=0.001)
    found = machine.measure(ratios, Effort(pairs=20, **ALL))
    assert [each.name for each in found.candidates] == ["0", "1", "2", "3", "4"]
    assert [each.runtime for each in found.candidates] == [f"runtime of {index}" for index in range(5)]
    for each, ratio in zip(found.candidates, ratios, strict=True):
        assert each.ratio.value == pytest.approx(ratio, rel=0.01)
        assert each.ms.value == pytest.approx(1e3 * INFERENCE_S * ratio, rel=0.01)
    assert found.reference.ratio.value == 1
    assert found.control is not None and found.control.ratio.value == pytest.approx(1.0, abs=0.01)


def test_the_control_is_the_reference_once_more() -> None:
    machine = FakeMachine(noise=0.01)
    found = machine.measure([0.5], Effort(pairs=50, **ALL))
    assert found.control is not None and found.control.name == "r, again"
    assert found.control.ratio.value == pytest.approx(1.0, abs=0.02)
    assert machine.opened.count("r") == 2 * machine.opened.count("0")
    assert FakeMachine().measure([0.5], Effort(pairs=2, control=False)).control is None


def test_intervals_cover_the_ratio_although_it_stops_when_it_likes() -> None:
    """The machine drifts, is noisy, and its sessions differ. At 90 % coverage, fewer than 46 cover once in 1,000."""
    hits = 0
    for seed in range(60):
        machine = FakeMachine(drift=0.002, noise=0.01, session_noise=0.002, seed=seed)
        hits += machine.measure([0.9], Effort(resolution=0.01, sessions=5, seed=seed)).ratio.covers(0.9)
    assert hits >= 46


def samples_of(machine: FakeMachine, sessions: int = 1) -> list[str]:
    """Returns what ran after all sessions were opened and warmed up, in order."""
    return machine.ran[len(machine.opened) * WARMUP :]


def test_order_is_random_within_pairs_and_of_opening() -> None:
    """Counts of Binomial(200, ½) and Binomial(50, ½) are outside with a probability below 1e-7 and 1e-5."""
    machine = FakeMachine()
    machine.measure([1.0], Effort(pairs=200, sessions=1, control=False, **ALL))
    assert 60 < samples_of(machine)[::2].count("r") < 140
    machine = FakeMachine()
    machine.measure([1.0], Effort(pairs=50, sessions=50, control=False, **ALL))
    assert 10 < machine.opened[::2].count("r") < 40


@pytest.mark.parametrize("candidates", [1, 2, 3, 4, 7])
def test_every_candidate_is_near_a_sample_of_the_reference(candidates: int) -> None:
    machine = FakeMachine()
    machine.measure([1.0] * candidates, Effort(pairs=12, sessions=1, control=False, **ALL))
    blocks = math.ceil(candidates / BLOCK)
    ran = samples_of(machine)
    rounds = [ran[i : i + candidates + blocks] for i in range(0, len(ran), candidates + blocks)]
    assert len(rounds) == 12
    for each in rounds:
        assert Counter(each) == Counter({"r": blocks, **{str(index): 1 for index in range(candidates)}})
        assert longest_run_without(each, "r") <= 2 * BLOCK
    assert len({tuple(each) for each in rounds}) > 1


def longest_run_without(names: Sequence[str], name: str) -> int:
    return max(len(part) for part in "".join("|" if each == name else "." for each in names).split("|"))


def test_it_stops_at_the_asked_resolution() -> None:
    found = FakeMachine(noise=0.01).measure([0.9], Effort(resolution=0.02, pairs=500, sessions=3))
    assert found.ended == "resolution" and found.sessions == 3
    assert 15 <= found.pairs < 100
    assert found.precision <= 0.02 and found.ratio.half_width == found.precision
    assert found.ending.startswith("Measured to ±") and "15 pairs" in found.ending


@pytest.mark.parametrize(("sessions", "pairs"), [(1, 5), (2, 10), (3, 15), (4, 16), (5, 15), (8, 24)])
def test_where_all_agree_few_pairs_do(sessions: int, pairs: int) -> None:
    machine = FakeMachine(noise=1e-4)
    found = machine.measure([0.9], Effort(resolution=0.01, sessions=sessions, control=False))
    assert (found.ended, found.pairs, found.sessions) == ("resolution", pairs, sessions)
    assert len(machine.ran) == 2 * (WARMUP * sessions + pairs)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("warmup", [1, 3, 7])
def test_sessions_are_warmed_up(warmup: int, long: bool) -> None:
    machine = FakeMachine()
    variants = [machine.variant(name, inference_s=0.2 if long else INFERENCE_S) for name in "r0"]
    effort = Effort(pairs=2, sessions=1, warmup=warmup, control=False, **ALL)
    found = measure(variants[0], variants[1:], effort, feeds={}, now=machine.now)
    assert len(machine.ran) == 2 * (max(warmup, WARMUP) - long + found.pairs)


def test_a_finer_resolution_takes_more_pairs() -> None:
    pairs = [
        FakeMachine(noise=0.02).measure([0.9], Effort(resolution=resolution, pairs=2000)).pairs
        for resolution in (0.02, 0.01, 0.005)
    ]
    assert pairs[0] < pairs[1] < pairs[2] < 2000


def test_sessions_that_differ_are_made_up_for_by_more_of_them() -> None:
    """More pairs of the same sessions could not narrow the interval; four sessions are too few unless by chance."""
    sessions = []
    for seed in range(7):
        machine = FakeMachine(session_noise=0.02, seed=seed)
        found = machine.measure([0.9], Effort(resolution=0.015, pairs=1000, sessions=4))
        assert found.ended == "resolution" and found.pairs < 500
        assert machine.most_alive == 3  # the reference, the candidate and the control, never two groups at once
        sessions.append(found.sessions)
    assert sorted(sessions)[3] > 6


def test_a_clock_too_noisy_says_so_and_gives_the_interval() -> None:
    found = FakeMachine(noise=0.3).measure([0.9], Effort(resolution=0.01, pairs=20))
    assert (found.ended, found.pairs) == ("pairs", 20)
    assert found.ratio.low < 0.9 < found.ratio.high and found.precision > 0.05
    assert found.reference.noise > 0.2
    for part in ("too noisy for ±1 %", "clock 0", "pairs were used up", "20 pairs"):
        assert part in found.ending


@pytest.mark.parametrize("opening_s", [0.0, 0.2])
@pytest.mark.parametrize("seconds", [2.0, 5.0, 20.0])
def test_the_time_budget_holds(seconds: float, opening_s: float) -> None:
    machine = FakeMachine(noise=0.2, opening_s=opening_s)
    found = machine.measure([1.0, 2.0], Effort(resolution=0.0001, pairs=10**6, seconds=seconds, sessions=3))
    assert found.ended == "time" and found.seconds == machine.time_s
    assert machine.time_s <= 1.1 * seconds  # one round may be longer than the one it was judged by
    assert machine.time_s >= 0.9 * seconds - 4 * opening_s
    assert found.sessions >= 3 or opening_s * 3 * 4 > seconds
    assert "the time was up" in found.ending


def test_a_time_budget_of_nothing_still_gives_an_interval() -> None:
    found = FakeMachine(noise=0.1).measure([1.0], Effort(seconds=1e-6))
    assert (found.ended, found.pairs) == ("time", 2)
    assert found.ratio.low <= found.ratio.high


def test_pairs_are_spread_over_the_sessions() -> None:
    done: list[tuple[int, int]] = []
    machine = FakeMachine(noise=0.1)
    found = machine.measure([1.0], Effort(pairs=7, sessions=3, **ALL), on_pair=lambda *each: done.append(each))
    assert (found.pairs, found.sessions, found.ended) == (7, 3, "pairs")
    assert done == [(count, 7) for count in range(1, 8)]
    assert FakeMachine().measure([1.0], Effort(pairs=2, sessions=5)).sessions == 2


def test_a_reference_alone_is_timed() -> None:
    machine = FakeMachine(noise=0.01)
    found = measure(machine.variant("r"), effort=Effort(resolution=0.005, pairs=1000), feeds={}, now=machine.now)
    assert found.candidates == () and found.control is None and found.ended == "resolution"
    assert found.reference.ms.value == pytest.approx(1e3 * INFERENCE_S, rel=0.02)
    assert found.precision == pytest.approx(found.reference.ms.half_width) and found.precision <= 0.005


def test_what_comes_before_each_inference_is_not_timed() -> None:
    machine = FakeMachine()
    calls = 0

    def flush() -> None:
        nonlocal calls
        calls += 1
        machine.time_s += 1.0

    flushed = dataclasses.replace(machine.variant("0", inference_s=0.001), before_each=flush)
    effort = Effort(pairs=3, control=False, **ALL)
    found = measure(machine.variant("r", inference_s=0.002), [flushed], effort, feeds={}, now=machine.now)
    assert found.candidates[0].ms.value == pytest.approx(1.0) and found.reference.ms.value == pytest.approx(2.0)
    assert calls == machine.ran.count("0") - found.sessions  # the first inference of each session only warms it up
    probes = 2 * found.sessions
    assert calls == probes + found.pairs, "a sample is one inference, however short"


@pytest.mark.parametrize("inference_s", [2e-5, 4e-4, 3e-3])
def test_short_inferences_are_repeated_with_settled_caches(inference_s: float) -> None:
    """They run as in a user's loop: the first ones after those of another session are not counted."""
    machine = FakeMachine(cold=(3.0, 2.0, 1.2, 1.1))
    variants = [machine.variant(name, inference_s=inference_s) for name in ("r", "0")]
    found = measure(*variants[:1], variants[1:], Effort(pairs=4, control=False), feeds={}, now=machine.now)
    assert found.reference.ms.value == pytest.approx(1e3 * inference_s)
    samples = (2 * found.pairs) * max(0.002, inference_s)
    assert machine.time_s >= 0.8 * samples  # the time of one was estimated while it was still cold


@pytest.mark.parametrize(("inference_s", "settled"), [(0.003, 5), (0.008, 2), (0.015, 1), (0.03, 0)])
def test_the_longer_an_inference_the_fewer_settle_the_caches(inference_s: float, settled: int) -> None:
    machine = FakeMachine()
    effort = Effort(pairs=4, sessions=1, control=False, **ALL)
    measure(*(machine.variant("r", inference_s=inference_s), [machine.variant("0")]), effort, feeds={}, now=machine.now)
    counted = max(math.ceil(settled / 2), 1)
    assert samples_of(machine).count("r") == 4 * (settled + counted)


def test_samples_that_were_interrupted_are_taken_again() -> None:
    """Every third inference is interrupted and takes ten times as long."""
    machine = FakeMachine()
    passed = machine.factor

    def factor(spread: float) -> float:
        interrupted = len(machine.ran) % 3 == 2
        machine.interruptions += interrupted
        return passed(spread) * (10.0 if interrupted and spread else 1.0)

    machine.noise, machine.factor = 1e-9, factor  # type: ignore[method-assign]
    found = machine.measure([0.8], Effort(pairs=30, **ALL))
    assert found.ratio.value == pytest.approx(0.8) and found.reference.noise < 1e-6


def test_one_clock_is_read_for_all() -> None:
    machine = FakeMachine()
    candidates = [machine.variant("0"), machine.variant("1", scope=2), machine.variant("2", scope=1)]
    found = measure(machine.variant("r"), candidates, Effort(pairs=2), feeds={}, now=machine.now)
    assert found.clock == "clock 2"
    assert common_clock([THREAD_CPU, PROCESS_CPU]) is PROCESS_CPU
    assert common_clock([WALL, THREAD_CPU]) is WALL


def test_real_clocks_advance_and_count_interruptions() -> None:
    for clock in (THREAD_CPU, PROCESS_CPU, WALL):
        before = clock.now(), clock.interruptions()
        sum(range(10**5))
        assert clock.now() > before[0] and clock.interruptions() >= before[1]


def test_the_same_seed_measures_the_same() -> None:
    found = [FakeMachine(noise=0.05).measure([0.9], Effort(pairs=20, seed=seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_model_that_cannot_be_run_is_an_error() -> None:
    with pytest.raises(ModelError, match="operator Foo"):
        FakeMachine().measure([math.inf], Effort(pairs=2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pairs": 1}, "at least 2 pairs"),
        ({"sessions": 0}, "1 session"),
        ({"seconds": -1.0}, "at least 0 seconds"),
        ({"warmup": 0}, "1 warm-up"),
        ({"resolution": 0.0}, "resolution above 0"),
    ],
)
def test_efforts_that_make_no_sense_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Effort(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny"])
def test_real_sessions_are_measured(name: str) -> None:
    model = CheckedModel.from_proto(zoo.build(name))
    levels = [Variant(level, OnnxRuntime(level=level), model) for level in ("all", "disabled")]
    found = measure(levels[0], levels[1:], Effort(pairs=7, sessions=3, **ALL))
    assert (found.pairs, found.sessions, found.clock) == (7, 3, THREAD_CPU.name)
    for each in (found.reference, *found.candidates, found.control):
        assert each is not None and 0 < each.ms.low <= each.ms.value <= each.ms.high
        assert 0 < each.ratio.low <= each.ratio.value <= each.ratio.high


def test_several_threads_are_timed_by_the_wall_clock() -> None:
    runtime, model = OnnxRuntime(threads=2), CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    found = measure(Variant("two threads", runtime, model), effort=Effort(pairs=2, sessions=1))
    assert found.clock == WALL.name and "2 threads" in found.reference.runtime


def test_a_verdict_needs_pairs_and_an_interval_that_agree() -> None:
    def timing(value: float, low: float, high: float) -> VariantTiming:
        return VariantTiming("variant", "fake", Estimate(5, 4, 6), Estimate(value, low, high), 0.0, (value,) * 60)

    assert timing(0.9, 0.85, 0.95).verdict(0.01) is Verdict.FASTER
    assert timing(1.1, 1.05, 1.15).verdict(0.01) is Verdict.SLOWER
    for value, low, high in ((0.9, 0.85, 1.05), (1.1, 0.95, 1.15), (0.995, 0.99, 0.999)):
        assert timing(value, low, high).verdict(0.01) is Verdict.UNDECIDED
