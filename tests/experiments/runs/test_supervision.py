"""A command that dies in ONNX Runtime goes on without the model at fault; any other death ends in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.runs.supervision import MOST, RECORD_BYTES, Supervision

ROOT = Path(__file__).parents[3]
BEGIN = """
import os, signal, sys
from experiments.runs.supervision import remember, remembered, supervised, watch

def use(key, number=0):
    if watch().refusal(key):
        return watch().refusal(key)
    watch().begin(watch().record(key, f"It {{}} when it opens {key}"))
    if number:
        os.kill(os.getpid(), number)
    watch().end()
    return ""
"""
END = "\nsys.exit(supervised(work))\n"


def run(work: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that supervises its function `work`."""
    return subprocess.run([sys.executable, "-c", BEGIN + work + END], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("body", "status"),
    [("return 0", 0), ("return 3", 3), ("sys.exit(2)", 2), ("raise RuntimeError('a defect')", 1)],
)
def test_the_status_is_that_of_the_work(body: str, status: int) -> None:
    done = run(f"def work():\n    print('once')\n    use('a')\n    {body}")
    assert done.returncode == status and done.stdout == "once\n"
    assert ("a defect" in done.stderr) == (status == 1)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_work_goes_on_without_what_has_crashed(name: str) -> None:
    done = run(f"def work():\n    print([use('a'), use('b', signal.{name}), use('c')])\n    return 0")
    assert done.returncode == 0
    assert done.stdout == f"['', 'It crashes ({name}) when it opens b', '']\n"
    assert done.stderr.splitlines() == [
        f"rlflow: It crashes ({name}) when it opens b. The command goes on without that."
    ]


def test_a_kill_is_blamed_on_a_model_the_second_time() -> None:
    """The first time another process may have taken the memory."""
    done = run("def work():\n    print(use('a', signal.SIGKILL))\n    return 0")
    assert done.returncode == 0 and done.stdout == "It is killed (SIGKILL) when it opens a\n"
    first, second = done.stderr.splitlines()
    assert first.endswith("goes on and tries that once more.") and second.endswith("goes on without that.")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SIGSEGV", "crashed (SIGSEGV), and not within ONNX Runtime"),
        ("SIGKILL", "memory runs out"),
        ("SIGTERM", "stopped"),
    ],
)
def test_a_death_outside_of_onnx_runtime_is_said_and_not_repeated(name: str, said: str) -> None:
    done = run(f"def work():\n    print('begun', flush=True)\n    use('a')\n    os.kill(os.getpid(), signal.{name})")
    assert done.returncode == 128 + signal.Signals[name] and done.stdout == "begun\n"
    assert said in done.stderr and "same command" in done.stderr and len(done.stderr.splitlines()) == 1


def test_crashes_without_end_end() -> None:
    done = run(
        "def work():\n    remember('begun', 1)\n    use(str(len(remembered('begun'))), signal.SIGSEGV)\n    return 0"
    )
    assert done.returncode == 128 + signal.SIGSEGV
    *others, last = done.stderr.splitlines()
    assert len(others) == MOST and f"crash number {MOST + 1}" in last


def test_facts_and_what_was_printed_survive_a_crash() -> None:
    work = """
def work():
    if not remembered("path"):
        print("printed once")
        remember("path", "a")
    print(remembered("path"), remembered("other"), bool(use("b", signal.SIGSEGV)))
    return 0
"""
    done = run(work)
    assert done.returncode == 0 and done.stdout == "printed once\n['a'] [] True\n"


def test_a_crash_after_the_work_changes_nothing() -> None:
    """Libraries crash when the interpreter takes them down."""
    work = """
def work():
    import atexit
    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    print("done")
    return 3
"""
    done = run(work)
    assert done.returncode == 3 and done.stdout == "done\n" and not done.stderr


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_with_its_parent(sent: signal.Signals) -> None:
    work = "def work():\n    print(os.getpid(), flush=True)\n    signal.pause()"
    command = [sys.executable, "-c", BEGIN + work + END]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert child != process.pid
        process.send_signal(sent)
        process.wait()
        while is_running(child):
            time.sleep(0.01)
    assert process.returncode == (-signal.SIGKILL if sent == signal.SIGKILL else 128 + signal.SIGTERM)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_programs_with_threads_are_not_forked() -> None:
    work = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
def work():
    remember("nothing", 1)
    print(watch(), remembered("nothing"))
    return 0
"""
    done = run(work)
    assert done.returncode == 0 and done.stdout == "None []\n"


def test_records_that_do_not_fit_are_no_records() -> None:
    """A part of one could not be read after a crash."""
    shared = Supervision()
    try:
        assert len(shared.record("a", "ä" * 400)) == RECORD_BYTES
        with pytest.raises(ValueError, match="fits into"):
            shared.record("a", "ä" * RECORD_BYTES)
    finally:
        os.close(shared.facts)
