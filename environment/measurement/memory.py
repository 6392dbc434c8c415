"""The memory of this process, and the memory that an inference takes in a process that does nothing else.

`peak_memory` starts `python -m environment.measurement.memory DIRECTORY`; that command is not meant for people.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from environment.inputs import Feeds, input_specs, timing_feeds
from environment.runtimes import Runtime, UnavailableError
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model

STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_REQUEST, _MODEL, _ANSWER = "request.pickle", "model.onnx", "answer.json"
_ERRORS: dict[str, type[Exception]] = {each.__name__: each for each in (ModelError, UnavailableError)}
PATIENCE_S = 1800.0
"""Longest wait for an answer. To compile the zoo's largest graphs for XLA or TensorRT takes minutes, not this long."""


def status_bytes(field: str) -> int:
    """Returns the field "VmRSS" or "VmHWM" of this process in bytes.

    Unlike the peak of `getrusage`, "VmHWM" begins with the program.
    """
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def peak_bytes() -> int:
    """Returns the largest resident size since `restart_peak`, or since the process began if that does not work."""
    if STATUS.exists():
        return status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def restart_peak() -> bool:
    """Restarts `peak_bytes` from the present resident size; returns False if the system forbids it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


class MeasuringProcessError(RuntimeError):
    """The process that ran the model gave no answer; the message says how it ended, or how long it was waited for."""


@dataclass(frozen=True)
class PeakMemory:
    """The largest resident set of a process that loads a model and runs it.

    The model is loaded from a file, as a user would. Memory of a GPU does not count.

    Attributes:
      total_bytes: peak of the whole process, interpreter and libraries included.
      baseline_bytes: memory that was resident before the session was opened: interpreter, the runtime's library and the
        inputs.
    """

    total_bytes: int
    baseline_bytes: int

    @property
    def session_bytes(self) -> int:
        """Memory that loading and running the model added."""
        return self.total_bytes - self.baseline_bytes


def peak_memory(
    runtime: Runtime,
    model: CheckedModel,
    *,
    feeds: Feeds | None = None,
    inferences: int = 3,
    seed: int = 0,
    patience_s: float = PATIENCE_S,
) -> PeakMemory:
    """Loads and runs a model in a new process, which inherits nothing but settings, and returns its peak memory.

    Args:
      feeds: arrays by input name; None means random ones that the model accepts.
      inferences: number of inferences; the first ones may still allocate.
      seed: the seed of random inputs.
      patience_s: time in seconds after which the process is killed.
    Raises:
      ModelError: the runtime cannot run the model.
      UnavailableError: the runtime or device is not here.
      MeasuringProcessError: the process died, for example for want of memory, or hangs, or this is not Linux.
    """
    if not STATUS.exists():
        raise MeasuringProcessError(f"peak memory is read from {STATUS}, which is not here: measure on Linux.")
    if feeds is None:
        feeds = timing_feeds(input_specs(model), np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_model(model, directory / _MODEL)
        (directory / _REQUEST).write_bytes(pickle.dumps((runtime, feeds, inferences)))
        return _run_process(directory, runtime.label, patience_s)


def _run_process(directory: Path, label: str, patience_s: float) -> PeakMemory:
    """Starts this module as a program on a request, and reads its answer."""
    # -P, because otherwise a package `environment` of the current directory would be found first.
    command = [sys.executable, "-P", "-m", "environment.measurement.memory", str(directory)]
    search_path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": search_path}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience_s
        )
    except subprocess.TimeoutExpired as error:
        raise MeasuringProcessError(
            f"the process that measures the memory of {label} gave no answer within {patience_s:g} s and was killed: "
            "there is no figure. Look whether this runtime hangs on the model, or leave it out."
        ) from error
    answer = directory / _ANSWER
    if done.returncode or not answer.exists():
        raise MeasuringProcessError(
            f"the process that measures the memory of {label} {_end(done.returncode)}, so there is no figure. Its last "
            f"words: {one_paragraph(done.stderr[-500:]) or 'none'}."
        )
    found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise _ERRORS[found["error"]](found["message"])
    return PeakMemory(**found)


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    hint = " (the system kills it so when memory runs out)" if status == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-status).name}{hint}"


def _answer(directory: Path) -> dict[str, object]:
    """Runs the request in the started process and returns its answer."""
    runtime, feeds, inferences = pickle.loads((directory / _REQUEST).read_bytes())
    _ = runtime.label  # some runtimes load their library at the first access
    gc.collect()
    baseline = status_bytes("VmRSS")
    try:
        session = runtime.open(directory / _MODEL, feeds)
        for _ in range(inferences):
            session.run()
    except tuple(_ERRORS.values()) as error:
        return {"error": type(error).__name__, "message": str(error)}
    return asdict(PeakMemory(status_bytes("VmHWM"), baseline))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / _ANSWER).write_text(json.dumps(_answer(place)), encoding="utf-8")
