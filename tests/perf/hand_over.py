"""Measures what handing a tensor over costs: `python -m tests.perf.hand_over [--core A --other B]`.

Prints a table and asserts nothing: a clock is no test. A tensor goes back and forth between two threads of one process,
which pass a reference under a lock, as `environment.placement.runner` does, and between two processes, which copy it
into memory that both share and wake one another by a semaphore. Both ends are pinned to cores of their own. Times are
by the wall clock, medians of one way; a busy machine makes all of them longer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import threading
import time
from multiprocessing import shared_memory
from typing import Any

import numpy as np

ROUNDS = 300
SIZES = (1_000, 100_000, 10_000_000)


def by_threads(size: int, cores: tuple[int, int]) -> float:
    """Returns the seconds of one way between two threads."""
    there, back = threading.Lock(), threading.Lock()
    there.acquire()
    back.acquire()
    values = {"tensor": np.zeros(size, np.uint8)}

    def answer() -> None:
        os.sched_setaffinity(0, {cores[1]})
        for _ in range(ROUNDS):
            there.acquire()
            values["answer"] = values["tensor"]
            back.release()

    worker = threading.Thread(target=answer)
    worker.start()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        there.release()
        back.acquire()
        times.append((time.perf_counter() - begin) / 2)
    worker.join()
    return statistics.median(times)


def _answer(name: str, size: int, core: int, there: Any, back: Any) -> None:
    os.sched_setaffinity(0, {core})
    shared = shared_memory.SharedMemory(name)
    both = np.frombuffer(shared.buf, np.uint8)[: 2 * size].reshape(2, size)
    own = np.zeros(size, np.uint8)
    for _ in range(ROUNDS):
        there.acquire()
        both[1] = own
        back.release()
    del both
    shared.close()


def by_processes(size: int, cores: tuple[int, int]) -> float:
    """Returns the seconds of one way between two processes."""
    context = multiprocessing.get_context("spawn")
    there, back = context.Semaphore(0), context.Semaphore(0)
    shared = shared_memory.SharedMemory(create=True, size=2 * size)
    worker = context.Process(target=_answer, args=(shared.name, size, cores[1], there, back))
    worker.start()
    both = np.frombuffer(shared.buf, np.uint8)[: 2 * size].reshape(2, size)
    own = np.zeros(size, np.uint8)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        both[0] = own
        there.release()
        back.acquire()
        times.append((time.perf_counter() - begin) / 2)
    worker.join()
    del both
    shared.close()
    shared.unlink()
    return statistics.median(times)


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", type=int, default=cores[0])
    parser.add_argument("--other", type=int, default=cores[-1])
    options = parser.parse_args()
    pair = (options.core, options.other)
    os.sched_setaffinity(0, {pair[0]})
    print("| tensor [bytes] | two threads, one way [µs] | two processes, one way [µs] |\n|---:|---:|---:|")
    for size in SIZES:
        print(f"| {size:,} | {1e6 * by_threads(size, pair):.1f} | {1e6 * by_processes(size, pair):.1f} |", flush=True)


if __name__ == "__main__":
    main()
