"""Runs of `rlflow optimise` in processes of their own, which an attack can disturb, and what they leave."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tests.attack.bodies import FLOAT, drawn

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 240
"""A command that takes longer counts as hanging."""
_COMMON = ("environment.max_steps=6", "measure.pairs=2", "measure.sessions=1", "measure.control=false")
_COMMON += ("evaluate.sampled_episodes=3",)
_LEARNING = (
    *("collect.episodes=20", "collect.processes=2"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("graph_encoder.rounds=1", "graph_encoder.hidden=8", "graph_encoder.latent=4"),
    *("world_model.encoder_training.steps=6", "world_model.encoder_training.batch=4"),
    *("world_model.encoder_training.checkpoint_every=2", "world_model.mdn_rnn_training.checkpoint_every=2"),
    *("world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn.mixtures=2", "world_model.mdn_rnn_training.steps=6"),
    *("world_model.mdn_rnn_training.batch=4", "ppo.updates=4", "ppo.batch=4", "ppo.horizon=6", "ppo.epochs=1"),
    *("ppo.minibatches=1", "policy.torso=[16]", "updates_per_checkpoint=2"),
)
SETTINGS = {
    "ppo": (*_COMMON, *_LEARNING),
    "random": (*_COMMON, "collect.episodes=20"),
    "taso": (*_COMMON, "search.budget=60"),
    "restarts": (*_COMMON, "search.budget=20"),
}
"""Settings of the runs, by controller: small enough for seconds."""
_DROP, _OVER_PERMISSIONS = 24, (1, 2)
"""The call of prctl(2) that takes a capability from a program that starts; CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH."""
_CLOCKED = ("measured", "unmeasured", "stage_seconds", "peak_memory_bytes")


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
      status: its exit status; negative after a signal; None if it had to be killed because it took too long.
      said: what it printed.
      orphans: number of its processes that were alive ten seconds after it ended.
    """

    status: int | None
    said: str
    orphans: int


class Command:
    """`rlflow optimise` on `model.onnx` in a folder, with one run directory and one output file."""

    def __init__(self, folder: Path, controller: str, *more: str) -> None:
        self.folder, self.output, self.run = folder, folder / "out" / "out.onnx", folder / "runs" / "run"
        self.output.parent.mkdir(exist_ok=True)
        self.arguments = ["optimise", "model.onnx", "-o", "out/out.onnx", "--run-dir", "runs/run"]
        self.arguments += ["--controller", controller, *more]
        for setting in SETTINGS[controller]:
            self.arguments += ["--set", setting]

    def start(self, *more: str, most_bytes: int | None = None, privileged: bool = True) -> subprocess.Popen[str]:
        """Starts the command in a session of its own.

        Args:
          most_bytes: the largest size of a file that it may write.
          privileged: whether the permissions of files do not bind it if the superuser starts it.
        """

        def limit() -> None:
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
            if not privileged:
                for capability in _OVER_PERMISSIONS:
                    ctypes.CDLL(None).prctl(_DROP, capability, 0, 0, 0)

        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache"), "MPLCONFIGDIR": "/tmp"}
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.cli", *self.arguments, *more],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=limit,
        )

    def finish(self, *more: str, most_bytes: int | None = None, privileged: bool = True) -> Ended:
        """Runs the command to its end."""
        return ended(self.start(*more, most_bytes=most_bytes, privileged=privileged))


def ended(process: subprocess.Popen[str], *, after: float | None = None, sent: signal.Signals | None = None) -> Ended:
    """Waits for a process to end.

    Args:
      after: seconds after which the process gets a signal.
      sent: the signal.
    """
    late = False
    try:
        said, _ = process.communicate(timeout=MOST_SECONDS if after is None else after)
    except subprocess.TimeoutExpired:
        if sent is not None:
            process.send_signal(sent)
        try:
            said, _ = process.communicate(timeout=0.1 if sent is None else MOST_SECONDS)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
    return Ended(None if late else process.returncode, said, _orphans(process.pid))


def _orphans(session: int) -> int:
    """Returns how many processes of a session are alive after ten seconds, and ends them."""
    deadline = time.monotonic() + 10
    while (alive := _members(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        if alive:
            os.killpg(session, signal.SIGKILL)
    return len(alive)


def _members(session: int) -> list[int]:
    """Returns the processes of a session that have not ended."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(file.parent.name))
    return found


def write_model(folder: Path) -> None:
    """Writes the model that all runs optimise."""
    model = drawn(np.random.default_rng(7), FLOAT, 6, 18)
    onnx.save(model, folder / "model.onnx")


def trace(command: Command) -> dict[str, object]:
    """Returns everything of a run that may depend neither on interruptions nor on the clock."""
    result = json.loads((command.run / "result.json").read_text())
    kept: dict[str, object] = {"output": command.output.read_bytes()}
    kept["result"] = {key: value for key, value in result.items() if key not in _CLOCKED}
    for name in ("metrics.jsonl", "actions.json", "checkpoints/evaluation.json", "checkpoints/training.json"):
        if (command.run / name).is_file():
            kept[name] = (command.run / name).read_bytes()  # a damaged log need not be text
    return kept


def unfinished_files(folder: Path) -> list[str]:
    """Returns the temporary files that commands have left."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*.tmp")]


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing disturbed.

    Attributes:
      folder: where it is.
      trace: see `trace`.
      seconds: how long it took.
    """

    folder: Path
    trace: dict[str, object]
    seconds: float


@functools.cache
def undisturbed(controller: str) -> Undisturbed:
    """Returns a run of a controller to its end, which is made once in each process.

    Raises:
      RuntimeError: the run fails.
    """
    folder = Path(_folders().name) / controller
    folder.mkdir()
    write_model(folder)
    command, begin = Command(folder, controller), time.monotonic()
    end = command.finish()
    if end.status != 0:
        raise RuntimeError(f"A run of {controller} that nothing disturbs ends with {end.status}: {end.said}")
    return Undisturbed(folder, trace(command), time.monotonic() - begin)


@functools.cache
def _folders() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def copy_of(controller: str, folder: Path, *, finished: bool) -> Command:
    """Returns a command in a folder that holds a copy of the undisturbed run.

    Args:
      finished: whether OUT is there too; if not, the run looks as if it had been stopped just before it was written.
    """
    shutil.copytree(undisturbed(controller).folder, folder, dirs_exist_ok=True)
    command = Command(folder, controller)
    if not finished:
        command.output.unlink()
        (command.run / "DONE").unlink()
    return command
