"""Workers end with the process that started them, and say nothing of Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from environment.processes import starting_workers

ROOT = Path(__file__).parents[2]
RULE = "rule add-commutes-{}\n  var    x, y: float[...]\n  source z = Add(x, y)\n  target z = Add(y, x)\n"
VERIFYING = ["-m", "experiments.cli", "rules", "verify", "my.rules", "--processes", "2", "--instances", "20000"]
COLLECTING = """
import sys
from experiments.cli import main
if __name__ == "__main__":
    sys.exit(main(["optimise", "squeezenet1.1-tiny", "-o", "out.onnx", "--costs", "roofline:rtx2070",
                   "--set", "collect.processes=2", "--set", "collect.episodes=100000"]))
"""
UNITS = """
import functools, sys, time
from experiments.executors.local import LocalExecutor, Unit
from experiments.runs.progress import make_progress
def sleep(progress):
    time.sleep(600)
if __name__ == "__main__":
    executor = LocalExecutor("table", processes=2, progress=make_progress())
    for name in "ab":
        executor.submit(Unit(name, sleep))
    list(executor.results())
"""


def command(name: str, folder: Path) -> list[str]:
    (folder / "my.rules").write_text("".join(map(RULE.format, range(8))), encoding="utf-8")
    scripts = {"collecting": COLLECTING, "units": UNITS}
    if name in scripts:
        (folder / "script.py").write_text(scripts[name], encoding="utf-8")
    return [str(folder / "script.py")] if name in scripts else VERIFYING


def started(
    arguments: Sequence[str], folder: Path, terminal: int | None = None
) -> tuple[subprocess.Popen[str], list[str]]:
    """Starts a command with a session of its own; returns it and its two workers.

    Args:
      terminal: the terminal that controls the session; None: it has none.
    """

    def take_terminal() -> None:
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    workers: list[str] = []

    def has_workers() -> bool:
        workers[:] = [pid for pid in below(str(process.pid)) if is_worker(pid)]
        return len(workers) == 2

    wait_until(has_workers, 60)
    return process, workers


def below(pid: str) -> Iterator[str]:
    """Yields the children of a process, and theirs."""
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield child
            yield from below(child)


def is_worker(pid: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "name", ["collecting", *(pytest.param(name, marks=pytest.mark.full) for name in ("verifying", "units"))]
)
def test_workers_end_when_their_parent_is_killed(name: str, tmp_path: Path) -> None:
    process, workers = started(command(name, tmp_path), tmp_path)
    time.sleep(4.0)  # they have begun their work, or are still importing
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
    wait_until(lambda: not any(map(alive, workers)), 20)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Lets SIGINT raise KeyboardInterrupt also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_waits_until_workers_have_started() -> None:
    ready, passed = threading.Event(), False

    def interrupt() -> None:
        ready.wait()
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)  # from before the block, so that it receives the signal
    other.start()
    with pytest.raises(KeyboardInterrupt), starting_workers():
        ready.set()
        other.join()
        time.sleep(0.05)
        passed = True
    assert passed


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_ctrl_c_prints_one_line(seconds: float, tmp_path: Path) -> None:
    keyboard, terminal = os.openpty()
    process, workers = started(command("verifying", tmp_path), tmp_path, terminal)
    time.sleep(seconds)
    os.write(keyboard, b"\x03")
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors and "KeyboardInterrupt" not in errors
    assert process.returncode == 130 and errors.strip().splitlines()[-1].startswith("rlflow: stopped by SIGINT")
    wait_until(lambda: not any(map(alive, workers)), 20)
