"""Tests of displays of progress: plain lines are few and carry the ETA, and warnings of cost models are noted."""

from __future__ import annotations

import io
import warnings

import pytest

from environment.costs.limits import NoisyClockWarning, UnpricedWarning
from experiments.runs.progress import (
    SECONDS_BETWEEN_LINES,
    LineProgress,
    TerminalProgress,
    format_duration,
    make_progress,
    warnings_noted,
)
from taso_ext import ModelWarning


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_spaced_and_tell_the_remaining_time() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).stage("collect", 100) as bar:
        for done in range(1, 101):
            clock.now += 1
            bar.update(done, best_percent=12.3)
    lines = stream.getvalue().splitlines()
    assert len(lines) == pytest.approx(100 / SECONDS_BETWEEN_LINES, abs=3)
    assert "ETA 50 s" in next(line for line in lines if ": 50/100" in line)
    assert lines[-1].startswith("collect: finished in 1 min 40 s") and "12.3" in lines[-1]


def test_a_resumed_stage_estimates_from_its_own_steps() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).stage("train", 100) as bar:
        for done in range(91, 101):
            clock.now += 2
            bar.update(done)
    assert "93/100  ETA 14 s" in stream.getvalue()


def test_a_first_portion_of_steps_says_nothing_of_the_time_that_remains() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).stage("collect", 200) as bar:
        for done in (50, 100, 150):
            clock.now += 30
            bar.update(done)
    lines = stream.getvalue().splitlines()
    assert "collect: 50/200" in lines, "a stage that was resumed at 49 looks the same"
    assert "collect: 100/200  ETA 1 min 00 s" in lines


def test_a_first_step_that_takes_long_says_nothing_of_the_others() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).stage("train", 100) as bar:
        for done in range(1, 101):
            clock.now += 60 if done == 1 else 1
            bar.update(done)
    lines = stream.getvalue().splitlines()
    assert "train: 1/100  ETA 1 h 39 min" in lines, "nothing else is known yet"
    assert "train: 51/100  ETA 49 s" in lines


def test_no_more_time_remains_than_is_left_until_a_limit() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).stage("train", 1_000, limit_s=100) as bar:
        for done in (10, 20, 990):
            clock.now += 30
            bar.update(done)
    lines = stream.getvalue().splitlines()
    assert "train: 20/1000  ETA 40 s" in lines
    assert "train: 990/1000  ETA 0.6 s" in lines
    stream = io.StringIO()
    with TerminalProgress(stream).stage("train", 1_000_000, limit_s=100) as bar:
        bar.update(1)
    assert "ETA 0:01:40" in stream.getvalue()


def test_a_stream_that_is_no_terminal_gets_lines() -> None:
    assert isinstance(make_progress(io.StringIO()), LineProgress)


def test_bars_show_figures() -> None:
    stream = io.StringIO()
    display = TerminalProgress(stream)
    with display.stage("train", 2) as bar:
        bar.update(1, loss=0.5)
        bar.update(2, loss=0.25)
    display.note("50% [done]")
    assert "loss 0.25" in stream.getvalue() and "50% [done]" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (65, "1 min 05 s"), (3725, "1 h 02 min")]
)
def test_durations_read_naturally(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("category", [ModelWarning, NoisyClockWarning, UnpricedWarning])
def test_warnings_for_the_user_are_noted(category: type[Warning]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings(), warnings_noted(make_progress(stream)):
        warnings.simplefilter("always")
        warnings.warn("All is not well.", category, stacklevel=1)
    assert stream.getvalue() == "Warning: All is not well.\n"


def test_other_warnings_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, warnings_noted(make_progress(stream)):
        warnings.simplefilter("always")
        warnings.warn("Something else.", UserWarning, stacklevel=1)
    assert not stream.getvalue() and [str(each.message) for each in caught] == ["Something else."]
