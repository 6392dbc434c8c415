"""Runs, configurations, the command line and reports. Importing this package does not import TensorFlow.

The parts of a run, each made when it is first asked for:

    run = experiments.load("runs/bert-base-ppo-1a2b3c4d")
    run.env, run.world_model, run.dream, run.controller, run.config
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.pipeline.stored import StoredRun


def load(
    path: str | os.PathLike[str], *, round: int | None = None, model: str | None = None, reward: object = None
) -> StoredRun:
    """Returns the run of a directory, whose parts are made when they are asked for; see `StoredRun`.

    Args:
      path: the run directory.
      round: number of the round of recollection whose world model, dream and controller are wanted; None: the last.
      model: where the model is now; None means where the run has found it.
      reward: the reward function of a Python module that may be imported, if the run names one.
    Raises:
      UserError: it is no run directory, or it cannot be read here; the message says what to do.
    """
    from experiments.pipeline.stored import StoredRun

    return StoredRun(path, round=round, model=model, reward=reward)
