"""Ctrl-C and SIGTERM: raised at once, and once more at the next progress where Python swallowed them.

Exceptions that a signal handler raises are lost when they hit a destructor or a callback from C, and TensorFlow has
many of both.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

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
