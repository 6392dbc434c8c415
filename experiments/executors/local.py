"""Units of work and the executor that runs them in processes of this machine.

    executor = LocalExecutor("accuracy", processes=2, progress=progress)
    for unit in units:
        executor.submit(unit)
    for result in executor.results():   # in the order in which units end
        ...

`records` is this loop for tables, which need every record. A unit keeps its own result in a file and reads it the next
time (`experiments.executors.units.once`). An executor therefore stores nothing, and an interrupted command continues
where it stopped.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

from environment.processes import begin_worker, starting_workers
from experiments.errors import is_of_the_file_system, require_at_least
from experiments.executors import provenance
from experiments.executors.units import Record, UnfinishedError, reading_only
from experiments.runs.progress import Bar, ProgressDisplay, SilentProgress
from experiments.runs.run import uncompiled
from experiments.runs.signals import Interrupted, listening, raise_if_received

Work = Callable[[ProgressDisplay], Record]
"""The work of a unit."""
SECONDS_BETWEEN_UPDATES = 0.2
"""Time between two reports of the progress of a unit in another process, at least."""
SECONDS_TO_STOP = 10
"""Time that a process has to stop and to leave its files in order; then it is killed."""


@dataclass(frozen=True)
class Unit:
    """One piece of work of an experiment: one setting and one seed.

    Attributes:
      name: name for people.
      work: returns the result. It is a function of a module or a `functools.partial` of one, so that another process
        can run it.
      lane: units of one lane run one after another, in the order in which they were submitted, because a later one
        reads files that an earlier one writes. By default every unit has its own lane.
      keeps: whether `work` keeps its result with `once`, so that a finished one is read without another process.
      measures: whether it measures times, so that no other such unit may run on the same machine meanwhile.
      alone: whether a process runs it that has run nothing before, so that the peak of its memory is its own.
    """

    name: str
    work: Work
    lane: str = ""
    keeps: bool = False
    measures: bool = False
    alone: bool = False


def without_compiling(work: Work, progress: ProgressDisplay) -> Record:
    """Does the work of a unit whose trainings are so short that TensorFlow need not compile them."""
    with uncompiled():
        return work(progress)


class Result(NamedTuple):
    """The outcome of a unit: either its record or the error that it raised."""

    unit: Unit
    record: Record | None
    error: Exception | None = None


class Executor(Protocol):
    """Runs units, here or on other machines."""

    def submit(self, unit: Unit) -> None:
        """Takes a unit; it may start now or when `results` is called."""
        ...

    def results(self) -> Iterator[Result]:
        """Yields the result of every submitted unit when the unit ends; a unit that fails does not stop the others.

        Raises:
          OSError: the file system refuses to keep a result.
        """
        ...


def records(executor: Executor, units: Sequence[Unit]) -> list[Record]:
    """Runs units and returns their records in the order of `units`.

    Raises:
      Exception: the error of the first unit that failed, after all others have ended; at once if the file system
        refuses to keep a result.
    """
    for unit in units:
        executor.submit(unit)
    found = {id(result.unit): result for result in executor.results()}
    results = [found[id(unit)] for unit in units]
    for result in results:
        if result.error is not None:
            raise result.error
    made = [result.record for result in results if result.record is not None]
    provenance.note(made)
    return made


def finished(units: Sequence[Unit]) -> list[Record | None]:
    """Returns the record of each unit that an earlier run has finished, and None for every other one.

    Args:
      units: units whose work keeps its result with `once`.
    Raises:
      Exception: the error of the first unit that failed.
    """
    results = [finished_result(replace(unit, keeps=True)) for unit in units]
    for result in results:
        if result is not None and result.error is not None:
            raise result.error
    return [None if result is None else result.record for result in results]


class Lanes:
    """The part that executors share: lanes of units that wait, and failures that are shown as they come.

    Args:
      title: title of the work, for the progress.
      progress: the display.
    """

    def __init__(self, title: str, progress: ProgressDisplay) -> None:
        self._title, self._progress = title, progress
        self._lanes: dict[object, deque[Unit]] = {}

    def submit(self, unit: Unit) -> None:
        """See `Executor.submit`; nothing starts before `results`."""
        self._lanes.setdefault(unit.lane or object(), deque()).append(unit)

    def _submitted(self) -> list[deque[Unit]]:
        """Returns the lanes that were submitted since the last call."""
        lanes, self._lanes = list(self._lanes.values()), {}
        return lanes

    def _reported(self, results: Generator[Result, None, None]) -> Generator[Result, None, None]:
        """Yields results and shows failures.

        Raises:
          OSError: the file system refuses a result, as on a full disk, so that no other one could be kept either.
        """
        with contextlib.closing(results):
            for result in results:
                if result.error is not None:
                    if is_of_the_file_system(result.error):
                        raise result.error
                    self._progress.note(f"{result.unit.name} failed: {result.error}")
                yield result


class LocalExecutor(Lanes):
    """Runs units in this process, or in several other processes at a time.

    Args:
      title: title of the work, for the progress.
      processes: number of units that run at a time; with 1 they run in this process.
      progress: shows how many units are finished and the expected time of the rest. Stages of a unit are shown only if
        units run in this process; notes are always shown.
    Raises:
      UserError: `processes` is less than 1.
    """

    def __init__(self, title: str, processes: int, progress: ProgressDisplay) -> None:
        require_at_least(1, processes=processes)
        super().__init__(title, progress)
        self._processes = processes

    def results(self) -> Iterator[Result]:
        """See `Executor.results`. An interruption stops the processes; finished units stay finished."""
        lanes = self._submitted()
        total = sum(len(lane) for lane in lanes)
        run = self._in_processes if self._processes > 1 and total > 1 else self._here
        if total == 1:  # the stages of the unit show its progress
            yield from self._reported(run(lanes))
            return
        with self._progress.stage(f"{self._title}: units", total) as bar:
            for done, result in enumerate(self._reported(run(lanes)), 1):
                bar.update(done)
                yield result

    def _here(self, lanes: Sequence[deque[Unit]]) -> Generator[Result, None, None]:
        for lane in lanes:
            for unit in lane:
                raise_if_received()
                yield self._apart(unit) if unit.alone else _result(unit, self._progress)

    def _apart(self, unit: Unit) -> Result:
        """Runs a unit in a process of its own, and shows its stages as if it ran here."""
        if (found := finished_result(unit)) is not None:
            return found
        lane = _Lane.start(deque([unit]), shown=_Shown(self._progress))
        try:
            while (result := lane.receive(self._progress)) is None:
                pass
        except BaseException:
            lane.process.terminate()
            lane.stop(ask_again=True)
            raise
        lane.stop()
        return result

    def _in_processes(self, lanes: Sequence[deque[Unit]]) -> Generator[Result, None, None]:
        for units in lanes:
            while units and (result := finished_result(units[0])):
                units.popleft()
                yield result
        waiting, running = deque(units for units in lanes if units), list[_Lane]()
        try:
            while waiting or running:
                while waiting and len(running) < self._processes:
                    running.append(_Lane.start(waiting.popleft()))
                ready = wait([lane.messages for lane in running])
                for lane in [lane for lane in running if lane.messages in ready]:
                    result = lane.receive(self._progress)
                    if result is not None:
                        yield result
                    if lane.ended or not lane.units:
                        lane.stop()
                        running.remove(lane)
                        if lane.units:  # the process died within the lane; the other units of the lane still run
                            waiting.append(lane.units)
        finally:
            for lane in running:
                lane.process.terminate()
            for lane in running:
                lane.stop(ask_again=True)


def finished_result(unit: Unit) -> Result | None:
    """Returns the result of a unit that an earlier run has finished; None if there is none."""
    if not unit.keeps:
        return None
    raise_if_received()
    with reading_only():
        result = _result(unit, SilentProgress())
    return None if isinstance(result.error, UnfinishedError) else result


def _result(unit: Unit, progress: ProgressDisplay) -> Result:
    try:
        return Result(unit, unit.work(progress))
    except Exception as error:  # after any error, the other units still run
        return Result(unit, None, error)


@dataclass
class _Lane:
    """A process that runs the units of one lane.

    Attributes:
      units: units whose results have not arrived yet.
      process: the process.
      messages: the end of the pipe at which results and notes arrive.
      shown: where the stages of the units are shown; None: nowhere.
      ended: whether nothing more arrives.
    """

    units: deque[Unit]
    process: BaseProcess
    messages: Connection
    shown: _Shown | None = None
    ended: bool = False

    @classmethod
    def start(cls, units: deque[Unit], *, shown: _Shown | None = None) -> _Lane:
        # spawn: a forked process would copy the locks of TensorFlow's threads without these threads.
        context = multiprocessing.get_context("spawn")
        messages, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run_lane, args=(list(units), sender, shown is not None))
        with starting_workers():
            process.start()
        sender.close()
        return cls(units, process, messages, shown)

    def receive(self, progress: ProgressDisplay) -> Result | None:
        """Takes one message: shows a note or a stage, or returns the result of the unit that was running."""
        try:
            kind, value = self.messages.recv()
        except EOFError:
            self.process.join()
            self.ended = True
            return self._failed(RuntimeError(f"its process ended with status {self.process.exitcode}"))
        if kind == "note":
            progress.note(value if self.shown else f"{self.units[0].name}: {value}")
        elif kind == "error":
            return self._failed(value)
        elif kind == "record":
            return Result(self.units.popleft(), value)
        elif self.shown is not None:
            self.shown.take(kind, value)
        return None

    def _failed(self, error: Exception) -> Result:
        if self.shown is not None:
            self.shown.fail(error)
        return Result(self.units.popleft(), None, error)

    def stop(self, *, ask_again: bool = False) -> None:
        """Waits for the process to end, and kills it if that takes too long.

        Args:
          ask_again: whether the process was asked to stop and is asked again every second, because a signal can get
            lost; see `experiments.runs.progress`.
        """
        for _ in range(SECONDS_TO_STOP):
            self.process.join(1.0)
            if self.process.exitcode is not None:
                break
            if ask_again:
                self.process.terminate()
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.messages.close()


class _Shown:
    """The stages of a unit in another process, shown on a display of this one."""

    def __init__(self, progress: ProgressDisplay) -> None:
        self._progress = progress
        self._open: list[tuple[contextlib.ExitStack, Bar]] = []

    def take(self, kind: str, value: Any) -> None:
        """Takes a message of `_Sent`."""
        if kind == "stage":
            stack = contextlib.ExitStack()
            self._open.append((stack, stack.enter_context(self._progress.stage(*value))))
        elif kind == "update":
            done, figures = value
            self._open[-1][1].update(done, **figures)
        else:
            self._open.pop()[0].close()

    def fail(self, error: Exception) -> None:
        """Leaves the stages that have begun, as an error does."""
        while self._open:
            self._open.pop()[0].__exit__(type(error), error, None)


def _run_lane(units: Sequence[Unit], sender: Connection, shows: bool) -> None:
    """Runs units in their order and sends their outcomes; this is the program of a process.

    Args:
      shows: whether their stages are sent too.
    """
    begin_worker()
    with contextlib.suppress(Interrupted, BrokenPipeError), listening():  # nobody reads the results any more
        for unit in units:
            result = _result(unit, _Sent(sender) if shows else _Notes(sender))
            if result.error is None:
                sender.send(("record", result.record))
            else:
                sender.send(("error", sendable(result.error)))


def sendable(error: Exception) -> Exception:
    """Returns the error with its traceback as a note; if it cannot be pickled, a RuntimeError with its text."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        return pickle.loads(pickle.dumps(error)) and error
    except Exception:  # unpickling calls the constructor of the error's class, which may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")


class _Notes(SilentProgress):
    """The progress display of a unit in another process: it sends the notes, and shows nothing else."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    def note(self, text: str) -> None:
        self._sender.send(("note", text))


class _Sent(_Notes):
    """The progress display of a unit in another process, which sends its stages too."""

    def __init__(self, sender: Connection) -> None:
        super().__init__(sender)
        self._sent_at = 0.0
        self._unsent: tuple[int, dict[str, float]] | None = None

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Bar]:
        self._sender.send(("stage", (title, total, limit_s)))
        yield self
        self._send()
        self._sender.send(("end", None))

    def update(self, done: int, **figures: float) -> None:
        super().update(done, **figures)
        self._unsent = done, figures
        if done == 1 or time.monotonic() >= self._sent_at + SECONDS_BETWEEN_UPDATES:
            self._send()

    def _send(self) -> None:
        if self._unsent is not None:
            self._sender.send(("update", self._unsent))
            self._sent_at, self._unsent = time.monotonic(), None
