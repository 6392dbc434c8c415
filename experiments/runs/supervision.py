"""Runs a command in a child process; if native code kills that, the command goes on without the model at fault.

ONNX Runtime 1.32.0 dies of a signal when it folds the constants of some models, and the system kills a process that
wants more memory than there is. Before a session is opened or runs, the child writes into shared memory what it is
about to do (`session.Watch`). If the child dies there, the parent starts the command again, and this time opening that
model at that level raises `ModelError`, as for any model that ONNX Runtime refuses. All that follows exists for those:
the graph is left out of a climb, verification turns to onnx.reference, a constant is not folded, no time is given. A
command that is repeated goes on where it was, so that nothing is lost but the seconds since the last checkpoint. A
crash outside of ONNX Runtime, which repetition may not cure, ends with a sentence.

Trying each model in a process of its own would cost more and find less: such a process needs 180 ms to import ONNX
Runtime and as long as its model to open it, but would see neither rewritten graphs nor the parts that are folded, nor
kernels. The parent forks before anything is imported, which takes 22 ms with the end of the child, and each run of a
session 0.2 µs (`python -m tests.perf.supervision`, 2 cores). Without Linux, or in a program that has threads already,
which a fork would leave behind in the middle of something, the command runs without a parent.

This file imports the standard library alone, because every command begins here.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

MOST = 20
"""Number of crashes after which a command ends: its models then crash in more ways than can be left out one by one."""
RECORD_BYTES = 1024
"""Size of what the child writes before each use of ONNX Runtime: one byte that says whether it is there, and JSON."""
CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP"})
KILLED = "SIGKILL"
_PR_SET_PDEATHSIG = 1
_WAITED = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}


@dataclasses.dataclass
class Supervision:
    """What parent and child share.

    Attributes:
      page: shared memory that holds what ONNX Runtime is doing in the child.
      facts: descriptor of a file in memory with one line of JSON for each call of `remember`.
      deaths: number of deaths within each use of a model, by its key.
      refused: what to say of the models that are not used any more, by key.
    """

    page: mmap.mmap = dataclasses.field(default_factory=lambda: mmap.mmap(-1, RECORD_BYTES))
    facts: int = dataclasses.field(default_factory=lambda: os.memfd_create("rlflow"))
    deaths: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def record(self, key: str, doing: str) -> bytes:
        """Returns what to pass to `begin`: the key of a model, and a sentence with {} for what happened."""
        record = b"\1" + json.dumps([key, doing], ensure_ascii=False).encode()
        if len(record) > RECORD_BYTES:
            raise ValueError(f"expected a sentence that fits into {RECORD_BYTES} bytes, got {doing!r}")
        return record.ljust(RECORD_BYTES)

    def begin(self, record: bytes) -> None:
        self.page[:RECORD_BYTES] = record

    def end(self) -> None:
        self.page[0] = 0

    def refusal(self, key: str) -> str:
        """Returns why a model is not to be used, in a sentence; empty if it may be."""
        return self.refused.get(key, "")

    def take(self, name: str) -> tuple[str, bool]:
        """Notes that the child has died of a signal.

        Returns:
          What ONNX Runtime was doing, in a sentence, or an empty text if nothing; and whether that is refused from now
          on. A kill is refused from the second time on: others may have taken the memory, or a person has done it.
        """
        if not self.page[0]:
            return "", False
        key, doing = json.loads(self.page[1:RECORD_BYTES])
        self.end()
        self.deaths[key] += 1
        sentence = str(doing).replace("{}", f"crashes ({name})" if name in CRASHES else f"is killed ({name})", 1)
        if name in CRASHES or self.deaths[key] > 1:
            self.refused[key] = sentence
        return sentence, key in self.refused

    def known_facts(self) -> list[tuple[str, Any]]:
        """Returns kind and value of all facts."""
        text = os.pread(self.facts, os.fstat(self.facts).st_size, 0)
        return [tuple(json.loads(line)) for line in text.splitlines()]


_current: Supervision | None = None  # in the child


def supervised(work: Callable[[], int], program: str = "rlflow") -> int:
    """Runs `work` in a child process, and again after a crash of ONNX Runtime; see the module.

    Ctrl-C reaches parent and child. Other processes know the parent alone, which passes on their SIGINT and SIGTERM. If
    the parent is killed, so is the child.

    Returns:
      The exit status of the child, also if it crashed after the end of its work; 128 and the number of the signal that
      has ended it, after a sentence on standard error, if there is no going on.
    """
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return work()
    shared = Supervision()
    while True:
        ended = _in_child(shared)
        if ended is None:
            status = work()
            remember("status", status)
            return status
        status, stopped_by = ended
        if status >= 0:
            return status
        done = [value for kind, value in shared.known_facts() if kind == "status"]
        if done:
            return int(done[0])
        number = stopped_by or -status
        goes_on, sentence = _after(shared, signal.Signals(number).name)
        show_cursor = "\033[?25h\n" if sys.stderr.isatty() else ""  # a progress bar has hidden it
        print(f"{show_cursor}{program}: {sentence}", file=sys.stderr, flush=True)
        if not goes_on:
            return 128 + number


def watch() -> Supervision | None:
    """Returns what watches this process, to be passed to `session.set_watch`; None if nothing does."""
    return _current


def remember(kind: str, value: Any) -> None:
    """Notes a fact, in plain JSON values, that this command knows again after a crash; nothing if it has no parent.

    What was printed until now will not be printed again, and is therefore written first.
    """
    if _current is not None:
        sys.stdout.flush()
        os.write(_current.facts, json.dumps([kind, value]).encode() + b"\n")


def remembered(kind: str) -> list[Any]:
    """Returns the facts of a kind that this command has noted, before a crash as well."""
    return [] if _current is None else [value for other, value in _current.known_facts() if other == kind]


def _in_child(shared: Supervision) -> tuple[int, int] | None:
    """Forks; returns None in the child, and in the parent how that has ended.

    Returns:
      The exit status of the child, or the negative number of the signal that has ended it; and the number of the last
      signal by which the command was told to stop, 0 if there was none.
    """
    global _current
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    child = os.fork()
    if not child:
        _die_with(parent)
        _current = shared
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None
    stopped_by = 0
    while True:
        info = signal.sigwaitinfo(_WAITED)
        if info.si_signo != signal.SIGCHLD:
            stopped_by = info.si_signo
            if info.si_code <= 0:  # from a process; a terminal sends its own to the child as well
                os.kill(child, info.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
    while (late := signal.sigtimedwait(_WAITED, 0)) is not None:
        stopped_by = late.si_signo if late.si_signo != signal.SIGCHLD else stopped_by
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return os.waitstatus_to_exitcode(status), stopped_by


def _die_with(parent: int) -> None:
    """Makes the system kill this process when its parent dies, even if that is killed."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def _after(shared: Supervision, name: str) -> tuple[bool, str]:
    """Returns whether the command goes on after a death of its child by the signal of this name, and what to say."""
    if name != KILLED and name not in CRASHES:
        return False, f"stopped by {name}. The same command resumes where this one stopped."
    doing, is_refused = shared.take(name)
    if doing and shared.deaths.total() <= MOST:
        how = "without that" if is_refused else "and tries that once more"
        return True, f"{doing}. The command goes on {how}."
    kept = "What was finished is kept, and the same command goes on from there."
    if doing:
        return False, f"{doing}; that is the crash number {MOST + 1}. {kept} Or choose another --set measure.level."
    if name == KILLED:
        return False, f"the command was killed (SIGKILL), as the system does when memory runs out. {kept}"
    return False, f"the command has crashed ({name}), and not within ONNX Runtime: this is a defect. {kept}"
