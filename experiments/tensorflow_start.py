"""Imports TensorFlow once, without the start-up notes that its C++ part writes past every log level."""

from __future__ import annotations

import os
import sys

from experiments.run import Run

STAGE = "start TensorFlow"


def start_tensorflow(run: Run) -> None:
    """Imports TensorFlow as a stage of its own, since it takes seconds; nothing the second time."""
    if "tensorflow" in sys.modules:
        return
    with run.stage(STAGE, STAGE, 1):
        sys.stderr.flush()
        terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)  # the notes come from C++: redirecting sys.stderr would not catch them
        try:
            import tensorflow  # noqa: F401
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            os.close(nowhere)
