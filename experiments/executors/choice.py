"""The executor that a command names: `--executor local --processes N`, or `--executor ray --address HOST:PORT`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from experiments.errors import UserError

if TYPE_CHECKING:  # the command line shows the options without importing an executor
    from experiments.executors.local import Executor
    from experiments.runs.progress import ProgressDisplay

LOCAL, RAY = "local", "ray"
AUTO = "auto"
"""The address of a Ray cluster that runs on this machine."""


def add_executor(parser: argparse._ActionsContainer, units: str) -> None:
    """Adds the options that choose an executor.

    Args:
      units: what is run, in the plural.
    """
    parser.add_argument("--processes", metavar="N", type=int, default=1, help=f"{units} that run at a time here (1)")
    add_cluster(parser)


def add_cluster(parser: argparse._ActionsContainer) -> None:
    """Adds the options that say where units run, of a command without `--processes`."""
    parser.add_argument("--executor", choices=(LOCAL, RAY), default=LOCAL, help="where they run (local)")
    parser.add_argument("--address", metavar="HOST:PORT", help=f"of the Ray cluster ({AUTO}: one on this machine)")


def chosen_executor(options: argparse.Namespace, title: str, progress: ProgressDisplay) -> Executor:
    """Returns the executor.

    Raises:
      UserError: an option does not fit it, or it cannot be used.
    """
    if options.executor == LOCAL:
        if options.address is not None:
            raise UserError(f"--address {options.address} is for --executor ray. Add that, or leave --address out.")
        from experiments.executors.local import LocalExecutor

        return LocalExecutor(title, options.processes, progress)
    if options.processes != 1:
        raise UserError(f"--processes {options.processes} is for --executor local. Leave it out: Ray knows its cores.")
    from experiments.executors.cluster import RayExecutor

    return RayExecutor(title, options.address or AUTO, progress)
