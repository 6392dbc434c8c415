"""Worker processes that end with the process that started them, and that leave Ctrl-C to it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Lets processes that start inside the block ignore Ctrl-C from their first instruction on.

    Ctrl-C reaches every process of a terminal, and each would print a traceback of its own. A new process inherits the
    blocked signal. In this process Ctrl-C waits for the end of the block: a process that is half started would miss
    what it reads first.
    """
    resource_tracker.ensure_running()  # else its start would clear the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with _interruption_waits():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interruption_waits() -> Iterator[None]:
    """Handles a SIGINT at the end of the block. The mask of one thread alone does not do that: another thread gets it.

    Only the main thread handles signals; in others there is nothing to do.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


def end_workers(pool: ProcessPoolExecutor) -> None:
    """Ends the workers of a pool at once, in whatever they are doing; what waits in the pool is not begun."""
    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()


def begin_worker() -> None:
    """Makes this process end when its parent does, even if the parent was killed; to be called first in a worker.

    Files that it was writing stay temporary, because they are renamed when they are complete.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a process that multiprocessing did not start"

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, name="end with parent", daemon=True).start()
