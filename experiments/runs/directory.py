"""The run directory: all files of a run, written so that a killed run can be resumed.

config.json      the complete configuration        metrics.jsonl   one line for each logged step
manifest.json    versions, cpu, git, argv, model   checkpoints/    artefacts of the stages
stages.json      finished stages and their times   actions.json    action log of the exported graph
result.json      the figures of the report         output.json     where OUT was written, and its hash
plots/, report.md, report.html, DONE, run.lock

A directory is identified by its settings and by fingerprints of the program and its input, so that no old result is
taken for a new one. No fingerprint is a number that someone has to raise for this purpose alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from controller.ppo.config import FORMAT_VERSION as CONTROLLER_FORMAT
from environment.counting import Counts, counting
from environment.measurement.memory import peak_bytes
from environment.substitution import features
from experiments.errors import DamagedRun, UserError
from taso_ext.errors import one_paragraph
from taso_ext.files import is_temporary, remove_abandoned, write_text
from worldmodel.config import FORMAT_VERSION as WORLD_MODEL_FORMAT
from worldmodel.data.episodes import FORMAT_VERSION as EPISODES_FORMAT

T = TypeVar("T")


def _as_json(value: Any) -> str:
    """Returns readable JSON with a stable order of keys."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


LOCK, OUTPUT, PAGE = "run.lock", "output.json", "report.html"
FILES = frozenset(
    {
        *("config.json", "manifest.json", "stages.json", "result.json", "actions.json", OUTPUT),
        "metrics.jsonl",
        *("checkpoints", "plots", "report.md", PAGE, "DONE", LOCK),
    }
)
"""The files and folders of a run directory."""
FOLDERS = frozenset({"checkpoints", "plots"})


class RunDirectory:
    """The files of one run. `open` creates or reopens them.

    Attributes:
      path: the directory.
      resumed: whether an earlier command began the run.
    """

    def __init__(self, path: Path, resumed: bool) -> None:
        self.path = path
        self.resumed = resumed
        self._counted: dict[str, Counts] = {}  # by stages that are open
        with self.reading("stages.json"):
            self._stages: dict[str, dict[str, Any]] = dict(self.read_json("stages.json") or {})
            for stage in self._stages.values():
                float(stage["seconds"]) + float(stage["cpu_seconds"]) + int(stage["peak_memory_bytes"])
                _counts_of(stage)

    @classmethod
    def open(
        cls,
        path: Path,
        config: Mapping[str, Any],
        manifest: Mapping[str, Any],
        *,
        restart: bool = False,
        agree: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
    ) -> RunDirectory:
        """Creates the directory, or reopens one that holds a run of the same configuration.

        Args:
          path: the directory; its parents are created.
          config: plain values that decide the result; a run with equal ones is resumed.
          manifest: facts about this command; the file keeps a list of them, one for each command of the run.
          restart: whether to remove what an earlier run has left, whatever its configuration.
          agree: whether the run of a stored configuration is that of another one, although they differ; None: never.
        Raises:
          UserError: the directory holds another run or something that is no run, or it cannot be written.
          DamagedRun: a file of the run cannot be read.
        """
        names = cls.require_none_or_run(path)
        damaged = [name for name in sorted(names & FILES) if not _is_of_its_kind(path / name)]
        if damaged and not restart:
            raise DamagedRun(path / damaged[0], f"it is no plain {'folder' if damaged[0] in FOLDERS else 'file'}")
        if LOCK in damaged:
            _remove(path / LOCK)
        hold(path)
        remove_abandoned(path, nested=True)
        if restart:
            for name in names & FILES - {LOCK}:
                _remove(path / name)
        directory = cls(path, cls.holds_run(path))
        if directory.resumed:
            directory.require_config(config, agree)
        elif not restart and names & {"stages.json", "metrics.jsonl", "result.json"}:
            raise DamagedRun(path / "config.json", "it is missing, although the run was begun")
        try:
            (path / "checkpoints").mkdir(exist_ok=True)
            earlier = directory.stored("manifest.json", lambda commands: list(commands or []))
            directory.write_json("manifest.json", [*earlier, manifest])
            if not directory.resumed:  # last, because this file marks the directory as a run
                directory.write_json("config.json", config)
        except OSError as error:
            raise _unwritable(path, error) from error
        return directory

    def require_config(
        self, config: Mapping[str, Any], agree: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None
    ) -> None:
        """Checks that the run has the same configuration; see `open`.

        Raises:
          UserError: it has another one; the text names up to four differences.
          DamagedRun: the file of its configuration cannot be read, or holds none.
        """
        stored, wanted = self.read_json("config.json"), json.loads(json.dumps(config))
        if agree is None or not isinstance(stored, dict) or not agree(stored, wanted):
            _require_same_config(self.path, stored, wanted)

    @classmethod
    def require_none_or_run(cls, path: Path) -> set[str]:
        """Returns the names in a directory; none if there is no such directory yet.

        Raises:
          UserError: it holds something that is no run, or is a file.
        """
        names = {each.name for each in path.iterdir() if not is_temporary(each)} if path.is_dir() else set()
        if (path.exists() and not path.is_dir()) or (names and not names <= FILES and not cls.holds_run(path)):
            raise UserError(f"{path} exists and is not a run directory. Choose another one with --run-dir.")
        return names

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Returns whether a run was begun in this directory."""
        return (path / "config.json").is_file()

    def mark_done(self) -> None:
        write_text(self.path / "DONE", "")

    def checkpoint(self, name: str) -> Path:
        """Returns the path of a stage's artefact or checkpoint."""
        return self.path / "checkpoints" / name

    def write_json(self, name: str, value: Any) -> None:
        write_text(self.path / name, _as_json(value))

    def read_json(self, name: str) -> Any:
        """Returns the stored value, or None if there is no such file.

        Raises:
          DamagedRun: the file cannot be read.
        """
        path = self.path / name
        with self.reading(name):
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def stored(self, name: str, make: Callable[[Any], T]) -> T:
        """Returns `make` of a stored value, or of None if there is no such file.

        Raises:
          DamagedRun: the file cannot be read, or `make` cannot take the value.
        """
        with self.reading(name):
            return make(self.read_json(name))

    @contextlib.contextmanager
    def reading(self, name: str, *others: str) -> Iterator[None]:
        """Turns the errors of a block that takes a stored value apart into one that names the file.

        Args:
          name: the file.
          others: further files that the block compares with it, so that the fault may be theirs.
        Raises:
          DamagedRun: the file is missing, is not JSON, or does not hold what it should.
        """
        try:
            yield
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            if isinstance(error, UserError):
                raise
            reason = one_paragraph(error) if (self.path / name).is_file() else "it is missing"
            where = f"{self.path / name}, or one of {', '.join(others)} beside it," if others else self.path / name
            raise DamagedRun(where, reason.rstrip(".")) from error

    def finished(self, stage: str) -> bool:
        return bool(self._stages.get(stage, {}).get("finished"))

    def stage_seconds(self) -> dict[str, float]:
        """Returns the wall-clock seconds of every stage so far, summed over all commands that worked on it."""
        return {name: record["seconds"] for name, record in self._stages.items()}

    def peak_memory_bytes(self) -> int:
        """Returns the largest peak of resident memory that any command of this run recorded after a stage."""
        return max((record["peak_memory_bytes"] for record in self._stages.values()), default=0)

    def spent(self, *stages: str) -> dict[str, float] | None:
        """Returns the effort of some stages over all commands: "seconds", "cpu_seconds" and "peak_bytes".

        Returns None if one of the stages is not finished.
        """
        if not all(map(self.finished, stages)):
            return None
        records = [self._stages[stage] for stage in stages]
        seconds, cpu_seconds = (sum(record[key] for record in records) for key in ("seconds", "cpu_seconds"))
        peak = max(record["peak_memory_bytes"] for record in records)
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak}

    def counts(self, leaving_out: Collection[str] = (), only: Collection[str] | None = None) -> Counts:
        """Returns what stages have done, over all commands; see `stage`.

        Args:
          leaving_out: names of stages; what a name continues with after a hyphen, such as a round, makes no difference.
          only: names of the stages that count, likewise; None: all.
        """
        total = Counts()
        for name, record in self._stages.items():
            kind = name.partition("-")[0]
            if kind not in leaving_out and (only is None or kind in only):
                total.add(_counts_of(record))
        return total

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage and counts what it does; it is finished only if the block ends without an exception.

        Steps that an interruption makes necessary again count once: of a stage that is not finished, those count that
        `keep_counts` has kept. Timings always count.
        """
        start, cpu_start = time.perf_counter(), time.process_time()
        finished = False
        with counting() as counts:
            self._counted[name] = counts
            try:
                yield
                finished = True
            finally:
                seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
                done = self._counted.pop(name).take()
                self.record(name, seconds, cpu_seconds, done if finished else done.timings(), finished=finished)

    def keep_counts(self, stage: str) -> None:
        """Keeps what an open stage has done so far; called when this would not be repeated after an interruption."""
        self.record(stage, 0.0, 0.0, self._counted[stage].take(), finished=False)

    def record(
        self, stage: str, seconds: float, cpu_seconds: float, counts: Counts | None = None, *, finished: bool
    ) -> None:
        """Adds wall-clock and CPU seconds and counts to a stage, and records the peak memory of this process so far."""
        before = self._stages.get(stage, {})
        total = _counts_of(before)
        total.add(counts or Counts())
        self._stages[stage] = {
            "finished": finished,
            "seconds": before.get("seconds", 0.0) + seconds,
            "cpu_seconds": before.get("cpu_seconds", 0.0) + cpu_seconds,
            "peak_memory_bytes": max(before.get("peak_memory_bytes", 0), peak_bytes()),
            "counts": total.to_json(),
        }
        write_text(self.path / "stages.json", json.dumps(self._stages, indent=2) + "\n")  # in order of first run


def _counts_of(record: Mapping[str, Any]) -> Counts:
    """Returns the counts of a stage; older versions have kept none."""
    return Counts.from_json(record.get("counts", {}))


def _is_of_its_kind(path: Path) -> bool:
    return path.is_dir() if path.name in FOLDERS else path.is_file()


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


TAKE_ANOTHER = (
    "Wait until it ends and repeat the command to see its result; `rlflow optimise` and `rlflow train` take another "
    "directory with --run-dir."
)


def hold(path: Path, instead: str = TAKE_ANOTHER) -> None:
    """Keeps the directory for this process until it ends, however it ends; it may be held again by the same process.

    Args:
      path: the directory, which is made.
      instead: what to do if another process holds it.
    Raises:
      UserError: another process holds it, or it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _held.setdefault(path.resolve(), FileLock(path / LOCK))
        if not lock.is_locked:
            lock.acquire(blocking=False)
    except Timeout:
        raise UserError(f"{path} is in use by {_holder(path / LOCK)}, which works on the same run. {instead}") from None
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"Cannot write the run directory {path}: {error.strerror}. Choose one with --run-dir.")


_held: dict[Path, FileLock] = {}
"""The locks of the directories that this process holds."""


def _holder(lock: Path) -> str:
    """Returns the process that holds a lock, for a message."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # of another user, or gone
            if process.name != str(os.getpid()) and any(lock.samefile(file) for file in (process / "fd").iterdir()):
                return f"process {process.name}"
    return "another process"


def _require_same_config(path: Path, stored: Any, wanted: Any) -> None:
    if not isinstance(stored, dict) or (wanted and not stored.keys() & wanted.keys()):
        raise DamagedRun(path / "config.json", "it holds no settings of a run")
    found = sorted(differences(stored, wanted))
    if found:
        raise UserError(
            f"{path} holds a run with another configuration ({'; '.join(found[:4])}). "
            "Choose another --run-dir, or repeat the command of that run to resume it."
        )


def differences(stored: Any, wanted: Any, prefix: str = "") -> Iterator[str]:
    """Yields `a.b was 1, now 2` for each value that differs between two nested settings."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in stored.keys() | wanted.keys():
            yield from differences(stored.get(key), wanted.get(key), f"{prefix}.{key}" if prefix else key)
    elif stored != wanted:
        yield f"{prefix} was {stored!r}, now {wanted!r}"


class MetricsLog:
    """`metrics.jsonl`: a line for each (stage, step, figures), appended at once and cut back when a stage is resumed.

    It holds no times, so that two runs with one seed leave identical files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, stage: str, step: int, figures: Mapping[str, Any]) -> None:
        """Adds one line; NumPy and TensorFlow scalars become plain numbers."""
        record = {"stage": stage, "step": int(step), **{key: _plain(value) for key, value in figures.items()}}
        with self._path.open("a") as file:  # a short line is one write: a killed run leaves at most one broken line
            file.write(json.dumps(record) + "\n")

    def rewind(self, stage: str, step: int) -> None:
        """Removes the stage's lines from `step` on: a resumed stage repeats the steps after its last checkpoint."""
        kept = [record for record in self.read() if record["stage"] != stage or record["step"] < step]
        write_text(self._path, "".join(json.dumps(record) + "\n" for record in kept))

    def read(self, stage: str | None = None) -> list[dict[str, Any]]:
        """Returns the lines of one stage, or of all, in order; leaves out a line that a killed run left unfinished."""
        if not self._path.is_file():
            return []
        records = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return [record for record in records if stage is None or record["stage"] == stage]


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int) or value is None:
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        # 9 significant digits tell every float32 apart.
        return float(f"{float(array):.9g}") if array.ndim == 0 else [_plain(item) for item in array]
    return array.tolist()


def finite(number: float) -> float | None:
    """Returns a number as JSON can hold it: None if it is NaN or infinite."""
    return float(number) if math.isfinite(number) else None


def without_nonfinite(value: Any) -> Any:
    """Returns a value of nested dicts and lists in which `finite` has replaced all floats."""
    if isinstance(value, dict):
        return {key: without_nonfinite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nonfinite(each) for each in value]
    return finite(value) if isinstance(value, float) else value


def digest(value: Any, digits: int = 16) -> str:
    """Returns the first hexadecimal digits of the hash of a plain JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]


def features_fingerprint() -> str:
    """Returns a fingerprint of the columns of a graph observation and of their meaning."""
    columns = [*features.NODE_FEATURES, *features.EDGE_FEATURES]
    return digest([features.FEATURES_VERSION, columns, features.NUM_OPERATORS, features.NUM_DTYPES])


def stored_formats() -> dict[str, int]:
    """Returns the format versions of the files that a run keeps as checkpoints."""
    return {"episodes": EPISODES_FORMAT, "world_model": WORLD_MODEL_FORMAT, "controller": CONTROLLER_FORMAT}
