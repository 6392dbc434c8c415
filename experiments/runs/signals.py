"""Signals that end a command: Ctrl-C and SIGTERM raise an exception at once.

If Python swallows it, the next report of progress raises it again: exceptions that a signal handler raises within a
destructor or a callback from C are lost, and TensorFlow has many of both. This file imports the standard library alone,
because every command begins here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType

_received: list[int] = []


class Interrupted(BaseException):
    """A signal asks the run to stop. It is a BaseException, so that no stage takes it for an error of its own.

    Attributes:
      signal: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Makes SIGINT and SIGTERM raise `Interrupted` inside the block.

    Any other exception after a signal becomes `Interrupted` too: native code, for example a library that is being
    imported, turns the exception of a signal into an error of its own.
    """
    _received.clear()
    before = {number: signal.signal(number, _raise) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception as error:
        if _received:
            raise Interrupted(_received[0]) from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()  # what the process does after an interrupted command is not interrupted by it


@contextlib.contextmanager
def finishing() -> Iterator[Callable[[], bool]]:
    """Lets the first Ctrl-C inside the block ask work to end with what it has found so far; the second one stops it.

    Yields a function that returns whether the work is asked to end.
    """
    if _whole.get():
        yield lambda: False
        return
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            _raise(number, frame)
        asked.append(number)
        os.write(2, _ASKED)  # no print: the signal may have come in the middle of one

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Makes the first Ctrl-C stop the command inside the block, where `finishing` would keep half of the work."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


_whole: ContextVar[bool] = ContextVar("whole", default=False)
_ASKED = b"\nThe search ends, and goes on with the best graph so far. Ctrl-C again stops the command.\n"


def raise_if_received() -> None:
    """Raises `Interrupted` if a signal has arrived; called wherever progress is reported."""
    if _received:
        raise Interrupted(_received[0])


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise Interrupted(number)
