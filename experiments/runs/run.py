"""`Run`: the settings, files, seeds and progress that every stage of a run uses; and the import of TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import zlib
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

from environment.foreign_output import discarded
from experiments.config.run import RunConfig
from experiments.runs.directory import MetricsLog, RunDirectory
from experiments.runs.progress import Bar, ProgressDisplay
from experiments.runs.signals import raise_if_received


def seed_for(seed: int, purpose: str) -> int:
    """Returns the seed of one purpose: independent of all other purposes, equal in a resumed run, and fit for int32."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    return int(sequence.generate_state(1)[0] >> 1)


def of_round(name: str, number: int) -> str:
    """Returns the name of a stage, a checkpoint or a seed in a round; round 0, before recollection, adds no number."""
    return f"{name}-{number}" if number else name


def in_round(title: str, number: int) -> str:
    """Returns the title of a stage in a round."""
    return f"{title}, round {number}" if number else title


@dataclasses.dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
      config: the settings.
      directory: the files.
      progress: the display that the run reports to.
      label: prefix of the title of every stage, for several runs that report to one display ("bert-base seed 0: ").
    """

    config: RunConfig
    directory: RunDirectory
    progress: ProgressDisplay
    label: str = ""

    @property
    def metrics(self) -> MetricsLog:
        return MetricsLog(self.directory.path / "metrics.jsonl")

    def seed(self, purpose: str) -> int:
        """Returns the seed of one purpose; see `seed_for`."""
        return seed_for(self.config.seed, purpose)

    @contextlib.contextmanager
    def stage(self, name: str, title: str, total: int, limit_s: float = math.inf) -> Iterator[Bar]:
        """Times a stage and shows its progress; the stage is finished if the block ends without an exception.

        Args:
          limit_s: see `ProgressDisplay.stage`.
        """
        raise_if_received()
        with self.directory.stage(name), self.progress.stage(f"{self.label}{title}", total, limit_s) as bar:
            yield _InterruptibleBar(bar)

    @contextlib.contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """Shows the progress of work that is no stage: no time of it is kept."""
        raise_if_received()
        with self.progress.stage(f"{self.label}{title}", total) as bar:
            yield _InterruptibleBar(bar)


class _InterruptibleBar:
    """A bar that raises `Interrupted` after a report if Python has swallowed the exception of a signal."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def update(self, done: int, **figures: float) -> None:
        self._bar.update(done, **figures)
        raise_if_received()


TENSORFLOW = "start TensorFlow"
"""The stage in which TensorFlow is imported."""
TENSORFLOW_SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # The networks are so small that a second thread only costs time; with one, sums always have the same order.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    # On processors without AVX-512 TensorFlow leaves oneDNN out, and then has no convolutions with groups.
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # Nothing here uses Keras. The import of TensorFlow takes a fifth less with the old one, which TFP needs anyway.
    "TF_USE_LEGACY_KERAS": "1",
}
"""Environment variables that TensorFlow reads when it is imported; values that the user has set stay."""


def start_tensorflow(run: Run) -> None:
    """Imports TensorFlow as a stage of its own, because that takes seconds; does nothing the second time."""
    if "tensorflow" in sys.modules:
        return
    run.progress.note("Starting TensorFlow")
    with run.directory.stage(TENSORFLOW):  # no bar, because the import redirects standard error
        import_tensorflow()


_uncompiled: ContextVar[bool] = ContextVar("uncompiled", default=False)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Runs TensorFlow's functions as plain Python inside the block, for a few steps of training.

    To trace and compile a training takes 20 seconds, and a step of a small one less than a second.
    """
    before = _runs_eagerly()
    token = _uncompiled.set(True)
    _run_eagerly(True)
    try:
        yield
    finally:
        _uncompiled.reset(token)
        _run_eagerly(before)


def _runs_eagerly() -> bool:
    """Returns whether TensorFlow, if it is imported, runs its functions as plain Python."""
    if "tensorflow" not in sys.modules:
        return False
    import tensorflow as tf

    return bool(tf.config.functions_run_eagerly())


def _run_eagerly(eagerly: bool) -> None:
    """Tells TensorFlow, if it is imported, whether to run its functions as plain Python."""
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.config.run_functions_eagerly(eagerly)


def import_tensorflow() -> None:
    """Imports TensorFlow with `TENSORFLOW_SETTINGS` and without its messages on standard error."""
    for name, value in TENSORFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    with discarded(2):
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")  # its warnings only say how often functions are traced
        if _uncompiled.get():
            _run_eagerly(True)
