"""`rlflow rules verify`: verifies rules in several processes, and records their proofs if asked."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from environment.processes import begin_worker, end_workers, starting_workers
from experiments.errors import UserError, nearest_match, require_at_least
from experiments.rules.show import read_entries, rule_files
from experiments.runs.progress import ProgressDisplay, format_duration, make_progress
from experiments.runs.signals import raise_if_received
from taso_ext.files import write_text
from taso_ext.verify.prove import Outcome, prove_rule
from taso_ext.verify.rule_file import RuleEntry, is_normwise, with_proofs

REJECTED = 2
_SECONDS_BETWEEN_WRITES = 5.0


class _Job(NamedTuple):
    path: Path
    entry: RuleEntry


def run(options: argparse.Namespace) -> int:
    """Verifies the chosen rules and prints the outcomes.

    Returns:
      0 if every rule was verified; 2 if one was rejected, for which `file:line:column`, the reason and any
      counterexample are printed.
    Raises:
      UserError: an option or a rule file is bad, or a process was ended from outside.
    """
    _check(options)
    start, progress = time.perf_counter(), make_progress()
    entries = [_Job(path, entry) for path in rule_files(options.files) for entry in read_entries(path)]
    entries = _chosen(entries, options.rule)
    jobs = [job for job in entries if options.again or not job.entry.is_current]
    rejected, recorder = 0, _Recorder(write=options.write)
    try:
        for job, outcome in _outcomes(jobs, options, progress):
            rejected += outcome.proof is None
            recorder.add(job.path, outcome)
            _report(job, outcome)
    finally:
        recorder.flush()
    print(_summary(len(jobs), len(entries) - len(jobs), rejected, recorder, time.perf_counter() - start))
    return REJECTED if rejected else 0


def _check(options: argparse.Namespace) -> None:
    require_at_least(1, instances=options.instances, processes=options.processes)
    require_at_least(0, seed=options.seed)


def _chosen(jobs: list[_Job], names: Sequence[str]) -> list[_Job]:
    known = [job.entry.name for job in jobs]
    for name in names:
        if name not in known:
            raise UserError(f"There is no rule {name!r} in the files. {nearest_match(name, known)}")
    return [job for job in jobs if not names or job.entry.name in names]


def _outcomes(
    jobs: Sequence[_Job], options: argparse.Namespace, progress: ProgressDisplay
) -> Iterator[tuple[_Job, Outcome]]:
    """Yields each rule with its outcome, in the order in which verifications finish."""
    if not jobs:
        return
    # Fresh processes: threads of ONNX Runtime do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(options.processes, len(jobs)), context, initializer=begin_worker)
    try:
        with progress.stage("verify rules", total=len(jobs)) as bar:
            with starting_workers():
                running = {pool.submit(_prove, job.entry, options.instances, options.seed): job for job in jobs}
            waiting: set[Future[Outcome]] = set(running)
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                raise_if_received()
                bar.update(len(jobs) - len(waiting))
                yield from ((running[future], future.result()) for future in done)
    except BrokenProcessPool as error:
        raise UserError(
            "A process that verifies rules was ended from outside, perhaps for want of memory. The same command goes "
            "on from here; fewer processes (--processes) need less memory."
        ) from error
    finally:
        end_workers(pool)


def _prove(entry: RuleEntry, instances: int, seed: int) -> Outcome:
    file, line, _ = entry.place.rsplit(":", 2)
    text = "\n" * (int(line) - 1) + entry.text  # so that line numbers are those of the file
    return prove_rule(text, instances=instances, seed=seed, normwise=is_normwise(entry.proof), file=file)


class _Recorder:
    """Collects proofs and writes them into their rule files every few seconds.

    Attributes:
      write: whether proofs are written at all.
      written: number of proofs written so far.
    """

    def __init__(self, *, write: bool) -> None:
        self.write, self.written = write, 0
        self._waiting: dict[Path, dict[str, str]] = {}
        self._last = time.monotonic()

    def add(self, path: Path, outcome: Outcome) -> None:
        if outcome.proof is not None and self.write:
            self._waiting.setdefault(path, {})[outcome.name] = outcome.proof_text
        if time.monotonic() - self._last > _SECONDS_BETWEEN_WRITES:
            self.flush()

    def flush(self) -> None:
        """Writes the waiting proofs, through a temporary file, so that no rule file is ever half written."""
        for path, proofs in self._waiting.items():
            write_text(path, with_proofs(path, proofs))
            self.written += len(proofs)
        self._waiting.clear()
        self._last = time.monotonic()


def _report(job: _Job, outcome: Outcome) -> None:
    if outcome.proof is None:
        print(f"{job.entry.place}: rule {outcome.name!r} is rejected: {outcome.refusal}", flush=True)
    else:
        print(f"{outcome.name}: {'  '.join(outcome.proof.clauses())}", flush=True)


def _summary(verified: int, current: int, rejected: int, recorder: _Recorder, seconds: float) -> str:
    text = f"{verified - rejected} of {verified} rules verified in {format_duration(seconds)}"
    text += f", {rejected} rejected" if rejected else ""
    text += f"; the proofs of {current} more are current" if current else ""
    if recorder.write:
        return f"{text}. {recorder.written} proofs recorded."
    hint = " Record the proofs with --write." if verified > rejected else ""
    return f"{text}.{hint}"
