"""Measures what the supervision of a command costs: `python -m tests.perf.supervision`. It asserts nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from experiments.runs.supervision import Supervision

REPETITIONS = 15
FORKED = "from experiments.runs.supervision import supervised; supervised(lambda: 0)"
UNFORKED = "import experiments.runs.supervision"
TRIAL = "import onnxruntime"
"""The least that a process does which tries a model: it opens and runs that as well."""


def seconds_of(code: str) -> float:
    """Returns the median wall-clock time of a program."""

    def once() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - begin

    return statistics.median(once() for _ in range(REPETITIONS))


def nanoseconds_of(call: Callable[[], object], times: int = 100_000) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times * 1e9


def main() -> None:
    shared = Supervision()
    record = shared.record("0" * 32, "ONNX Runtime {} when it runs the graph 'main' of 100 operators")

    def told() -> None:
        shared.begin(record)
        shared.end()

    plain, trial = seconds_of(UNFORKED), seconds_of(TRIAL)
    print(f"a command, for its child and the end of that: {1e3 * (seconds_of(FORKED) - plain):.1f} ms")
    print(f"a process that tries a model, before it opens that: {1e3 * trial:.0f} ms")
    print(f"telling of one run of a session: {nanoseconds_of(told):.0f} ns")


if __name__ == "__main__":
    main()
