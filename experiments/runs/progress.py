"""Progress of long work: bars with ETA on a terminal, a plain line every few seconds elsewhere; one interface for both.

with progress.stage("collect episodes", total=200) as bar:
    for episode in range(200):
        bar.update(episode + 1, best_percent=12.3)

Ctrl-C and SIGTERM are raised at once, and once more at the next progress where Python swallowed them: exceptions that a
signal handler raises are lost when they hit a destructor or a callback from C, and TensorFlow has many of both.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0


class Bar(Protocol):
    """One stage's progress."""

    def update(self, done: int, **figures: float) -> None:
        """Reports that `done` of the total are finished, with the newest figures to show beside it."""
        ...


class ProgressDisplay(Protocol):
    """What stages report to."""

    def stage(self, title: str, total: int) -> contextlib.AbstractContextManager[Bar]:
        """Shows one stage while the block runs; `total` is its number of steps."""
        ...

    def note(self, text: str) -> None:
        """Shows one line of text."""
        ...


def make_progress(stream: TextIO | None = None) -> ProgressDisplay:
    """Bars where the stream (standard error) is a terminal, plain lines where it is not."""
    stream = stream or sys.stderr
    return TerminalProgress(stream) if stream.isatty() else LineProgress(stream)


def format_figures(figures: dict[str, float]) -> str:
    """`loss 0.123 · best_percent 12.3`, three significant digits."""
    return " · ".join(f"{name} {value:.3g}" for name, value in figures.items())


def format_duration(seconds: float) -> str:
    """`8 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class TerminalProgress:
    """rich bars; a finished stage leaves its bar behind."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)

    @contextlib.contextmanager
    def stage(self, title: str, total: int) -> Iterator[Bar]:
        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(elapsed_when_finished=False),
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


class LineProgress:
    """At most one line every few seconds, and one at the end of a stage."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    @contextlib.contextmanager
    def stage(self, title: str, total: int) -> Iterator[Bar]:
        bar = _LineBar(self, title, total, self._clock)
        self.note(f"{title}: started ({total} steps)" if total > 1 else f"{title}: started")
        yield bar
        self.note(f"{title}: finished in {format_duration(self._clock() - bar.started)}{bar.last_figures}")

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _LineBar:
    def __init__(self, display: LineProgress, title: str, total: int, clock: Callable[[], float]) -> None:
        self._display, self._title, self._total, self._clock = display, title, total, clock
        self.started = self._printed = clock()
        # Time and steps done at the first report. What came before is no measure of speed: a resumed stage begins
        # above zero, and the first step of a training is compiled first.
        self._first: tuple[float, int] | None = None
        self.last_figures = ""

    def update(self, done: int, **figures: float) -> None:
        now = self._clock()
        before = self._first or (self.started, done - 1)
        self._first = self._first or (now, done)
        self.last_figures = f"  {format_figures(figures)}" if figures else ""
        if now - self._printed < SECONDS_BETWEEN_LINES or done >= self._total:
            return
        self._printed = now
        remaining = (now - before[0]) / max(1, done - before[1]) * (self._total - done)
        self._display.note(f"{self._title}: {done}/{self._total}  ETA {format_duration(remaining)}{self.last_figures}")


_received: list[int] = []


class Interrupted(BaseException):
    """A signal asks the run to stop; a BaseException, so that no stage takes it for an error of its own.

    Attributes:
      signal: its number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Makes SIGINT and SIGTERM raise `Interrupted` inside the block."""
    _received.clear()
    before = {number: signal.signal(number, _raise) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_received() -> None:
    """Raises `Interrupted` if a signal came; called wherever progress is reported."""
    if _received:
        raise Interrupted(_received[0])


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise Interrupted(number)


@contextlib.contextmanager
def warnings_noted(progress: ProgressDisplay) -> Iterator[None]:
    """Shows these warnings among the progress, without their places in the code; all others stay warnings."""
    from environment.costs.limits import NoisyClockWarning, UnpricedWarning

    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if issubclass(category, (NoisyClockWarning, UnpricedWarning)):
            progress.note(str(message))
        else:
            show(message, category, filename, lineno, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = note  # type: ignore[assignment]  # `rest` stands for what it passes on
        yield
