"""TensorFlow as a runtime: what the papers compare with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from environment.inputs import Feeds
from environment.measurement.effort import PROCESS_CPU, WALL, Clock
from environment.runtimes import UnavailableError
from environment.runtimes.interface import require_threads, threads_text
from experiments.baselines.tensorflow.onnx_to_tensorflow import input_names, tensorflow_function
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model


@dataclass(frozen=True)
class TensorFlow:
    """TensorFlow on the CPU, in single precision.

    Attributes:
      xla: compile with XLA; otherwise the graph is optimised by Grappler and run operator by operator.
      threads: of one operator, for the whole process: TensorFlow fixes it when it first computes something.
    Raises:
      UnavailableError: TensorFlow has already started with another number of threads.
      ValueError: no threads.
    """

    xla: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        require_threads(self.threads)
        _set_threads(self.threads)

    @property
    def label(self) -> str:
        return (
            f"TensorFlow {tf.__version__} with {'XLA' if self.xla else 'Grappler'}, cpu, {threads_text(self.threads)}"
        )

    @property
    def clock(self) -> Clock:
        """Operators run in TensorFlow's own threads: with one, one at a time."""
        return PROCESS_CPU if self.threads == 1 else WALL

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> TensorFlowSession:
        _set_threads(self.threads)  # in a process that this runtime was sent to, nobody has
        return TensorFlowSession(read_model(model) if isinstance(model, Path) else model, feeds, xla=self.xla)


class TensorFlowSession:
    """A concrete function with its inputs in place."""

    def __init__(self, model: CheckedModel, feeds: Feeds, *, xla: bool) -> None:
        names = input_names(model)
        if set(names) != set(feeds):
            raise ModelError(
                f"the model's inputs are {', '.join(names) or 'none'}, and values are given for "
                f"{', '.join(feeds) or 'none'}. Models that are compared have to have the same inputs."
            )
        self._function = tensorflow_function(model, xla=xla)
        self._inputs = [tf.constant(feeds[name]) for name in names]
        self._outputs: list[tf.Tensor] = []

    def run(self) -> None:
        try:
            self._outputs = self._function(*self._inputs)
        except tf.errors.OpError as error:  # its message names the node: operators bear the names of the model's
            raise ModelError(f"TensorFlow {tf.__version__} cannot run the model: {one_paragraph(error)}") from error

    def outputs(self) -> list[np.ndarray]:
        return [output.numpy() for output in self._outputs]


def _set_threads(threads: int) -> None:
    """Settles the number of threads, or finds it settled."""
    settings = tf.config.threading
    if (settings.get_intra_op_parallelism_threads(), settings.get_inter_op_parallelism_threads()) == (threads, 1):
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # it has computed something already, as the environment said
        asked = [os.environ.get(name, "0") for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")]
        if asked != [str(threads), "1"]:
            raise UnavailableError(
                f"TensorFlow has already started in this process, with other threads than the {threads} asked for. "
                f"Measure in a new process, or set TF_NUM_INTRAOP_THREADS={threads} and TF_NUM_INTEROP_THREADS=1."
            ) from None
