"""Progress of long work, by one interface: bars with ETA on a terminal, a plain line every few seconds elsewhere.

with progress.stage("collect episodes", total=200) as bar:
    for episode in range(200):
        bar.update(episode + 1, best_percent=12.3)

Every report of progress raises the exception of a signal that has arrived (signals.py).
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from experiments.runs.signals import raise_if_received

SECONDS_BETWEEN_LINES = 5.0


class Bar(Protocol):
    """The progress of one stage."""

    def update(self, done: int, **figures: float) -> None:
        """Reports that `done` steps of the total are finished, and the newest figures to show beside it."""
        ...


class ProgressDisplay(Protocol):
    """The display that stages report their progress to."""

    def stage(self, title: str, total: int, limit_s: float = math.inf) -> contextlib.AbstractContextManager[Bar]:
        """Shows a stage while the block runs.

        Args:
          title: what it does.
          total: its number of steps.
          limit_s: the time that it takes at most, however many steps are left then.
        """
        ...

    def note(self, text: str) -> None:
        """Shows one line of text."""
        ...


def make_progress(stream: TextIO | None = None) -> ProgressDisplay:
    """Returns a display with bars if the stream (default: standard error) is a terminal, else one with plain lines."""
    stream = stream or sys.stderr
    return TerminalProgress(stream) if stream.isatty() else LineProgress(stream)


def format_figures(figures: dict[str, float]) -> str:
    """Returns figures as `loss 0.123 · best_percent 12.3`, with three significant digits."""
    return " · ".join(f"{name} {value:.3g}" for name, value in figures.items())


def format_duration(seconds: float) -> str:
    """Returns a duration as `8.0 s`, `12 s`, `2 min 05 s` or `1 h 02 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class _TimeLeftColumn(TimeRemainingColumn):
    """The time that remains by the speed so far, and at most until a limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s

    def render(self, task: Task) -> Text:
        if math.isinf(self._limit_s) or task.finished:
            return super().render(task)
        left = self._limit_s - (task.elapsed or 0.0)
        by_steps = math.inf if task.time_remaining is None else task.time_remaining
        minutes, seconds = divmod(math.ceil(max(min(left, by_steps), 0.0)), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}", style="progress.remaining")


class TerminalProgress:
    """A display with bars of rich; the bar of a finished stage stays on the screen."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Bar]:
        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            _TimeLeftColumn(limit_s),
            TextColumn("{task.fields[figures]}"),
        )
        with Progress(*columns, console=self._console) as display:
            task = display.add_task(title, total=total, figures="")

            class _Bar:
                def update(self, done: int, **figures: float) -> None:
                    display.update(task, completed=done, figures=format_figures(figures))

            yield _Bar()

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


class SilentProgress:
    """A display that shows nothing; it is its own bar."""

    def stage(self, title: str, total: int, limit_s: float = math.inf) -> contextlib.AbstractContextManager[Bar]:
        return contextlib.nullcontext(self)

    def update(self, done: int, **figures: float) -> None:
        raise_if_received()

    def note(self, text: str) -> None:
        pass


class LineProgress:
    """A display that prints a line at the start and the end of a stage, and at most one every few seconds between."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Bar]:
        bar = _LineBar(self, title, total, limit_s, self._clock)
        self.note(f"{title}: started ({total} steps)" if total > 1 else f"{title}: started")
        yield bar
        self.note(f"{title}: finished in {format_duration(self._clock() - bar.started)}{bar.last_figures}")

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _LineBar:
    def __init__(
        self, display: LineProgress, title: str, total: int, limit_s: float, clock: Callable[[], float]
    ) -> None:
        self._display, self._title, self._total, self._clock = display, title, total, clock
        self._limit_s = limit_s
        self.started = self._printed = clock()
        # Time and steps done at the first report. The time before it says nothing about speed: a resumed stage begins
        # above zero, work may be done in portions, and the first step of a training includes compilation.
        self._first: tuple[float, int] | None = None
        self.last_figures = ""

    def update(self, done: int, **figures: float) -> None:
        now = self._clock()
        before = self._first or ((self.started, 0) if done == 1 else None)
        self._first = self._first or (now, done)
        self.last_figures = f"  {format_figures(figures)}" if figures else ""
        if now - self._printed < SECONDS_BETWEEN_LINES or done >= self._total:
            return
        self._printed = now
        eta = ""
        if before is not None:
            remaining = (now - before[0]) / max(1, done - before[1]) * (self._total - done)
            remaining = min(remaining, max(self._limit_s - (now - self.started), 0.0))
            eta = f"  ETA {format_duration(remaining)}"
        self._display.note(f"{self._title}: {done}/{self._total}{eta}{self.last_figures}")


@contextlib.contextmanager
def warnings_noted(progress: ProgressDisplay) -> Iterator[None]:
    """Shows warnings about models, noisy clocks and missing prices as notes; all others stay warnings."""
    from environment.costs.limits import NoisyClockWarning, UnpricedWarning
    from taso_ext.errors import ModelWarning

    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if issubclass(category, (ModelWarning, NoisyClockWarning, UnpricedWarning)):
            progress.note(f"Warning: {message}")
        else:
            show(message, category, filename, lineno, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = note  # type: ignore[assignment]  # `rest` stands for the optional parameters
        yield
