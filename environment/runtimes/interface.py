"""The interface of runtimes, which open sessions of ONNX models to run, time and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from environment.inputs import Feeds
from environment.measurement.effort import Clock
from taso_ext.onnx_io.checked_model import CheckedModel


class UnavailableError(ValueError):
    """A runtime or device that is not here; the message names those that are and says how to install this one."""


class Session(Protocol):
    """A loaded model with its inputs in place."""

    def run(self) -> None:
        """Runs one inference, which is finished when this returns.

        Raises:
          ModelError: an operator failed; the message names it.
        """

    def outputs(self) -> list[np.ndarray]:
        """Returns the results of the last `run`, in the order of the model's outputs."""


class Runtime(Protocol):
    """A library that runs models, with all its settings.

        session = OnnxRuntime(device="cpu", threads=1).open(model, feeds)
        session.run()
        logits, *_ = session.outputs()

    Runtimes are values: they can be compared and pickled.
    """

    @property
    def label(self) -> str:
        """Library, version and settings, as tables show them."""

    @property
    def clock(self) -> Clock:
        """The clock of the smallest scope that sees all of an inference."""

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> Session:
        """Loads a model, from memory or from an ONNX file, and places its inputs.

        Args:
          feeds: arrays by input name, for the inputs without default values.
        Raises:
          ModelError: this runtime cannot run the model; the message names the operator if one is at fault.
          UnavailableError: the library or the device is not here.
        """


def require_threads(threads: int) -> None:
    """Raises ValueError if there is not at least one thread."""
    if threads < 1:
        raise ValueError(f"expected at least 1 thread, got {threads}")


def threads_text(threads: int) -> str:
    """Returns `1 thread` or `2 threads`."""
    return f"{threads} thread{'s' * (threads > 1)}"
