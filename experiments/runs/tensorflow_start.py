"""Imports TensorFlow once: with one thread, and without the notes that its C++ part writes past every log level."""

from __future__ import annotations

import os
import sys

from experiments.runs.run import Run

STAGE = "start TensorFlow"
SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # These nets are so small that a second thread only costs; and with one, sums are always taken in the same order.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
"""Environment variables that TensorFlow reads when it is imported; what the user has set stays."""


def start_tensorflow(run: Run) -> None:
    """Imports TensorFlow as a stage of its own, since it takes seconds; nothing the second time."""
    if "tensorflow" in sys.modules:
        return
    run.progress.note("Starting TensorFlow")
    with run.directory.stage(STAGE):  # no bar: it would be redirected too
        import_tensorflow()


def import_tensorflow() -> None:
    """The import, with `SETTINGS` and without notes."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # the notes come from C++: redirecting sys.stderr would not catch them
    try:
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")  # its warnings are about how often functions are traced
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
