"""How a command ends: its exit status, its errors in a sentence each, and what it prints for people and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.errors import is_of_the_file_system

DIFFERENT, BAD_INPUT, UNVERIFIED = 1, 2, 3
"""Exit statuses: two models differ, or a run is not as it was recorded; bad input; nothing could be proved."""


def carried_out(command: Callable[[], int]) -> int:
    """Runs a command and turns its errors into a sentence and an exit status."""
    try:
        return command()
    except _input_errors() as error:
        print(f"rlflow: {error}{_advice(error)}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        if not is_of_the_file_system(error):
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"rlflow: a file cannot be written or read: {place}{error.strerror}. What was finished is kept; when there "
            "is space and permission, the same command goes on.",
            file=sys.stderr,
        )
        return BAD_INPUT


def _advice(error: BaseException) -> str:
    """Returns what to do if ONNX Runtime has crashed where a command cannot do without it; else an empty text."""
    from taso_ext.errors import CrashError, root_cause

    if not isinstance(root_cause(error), CrashError):
        return ""
    return (
        ". What has to be timed cannot be left out. Time it without ONNX Runtime's optimisations: --set "
        "measure.level=disabled. Or choose costs that time nothing, such as --costs roofline:xeon."
    )


def _input_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that bad input raises in each package; any other error is a defect and keeps its traceback.

    FloatingPointError is raised if the numbers of a training become NaN or infinite.
    """
    from controller.foreign import BrokenControllerError
    from controller.interface import StoredControllerError
    from controller.registry import UnknownControllerError, UnknownOptionError
    from environment.costs.prices.sqlite_file import DatabaseError
    from environment.measurement.effort import ClockError
    from environment.placement.errors import PlacementError
    from environment.rewards import RewardError
    from environment.runtimes import UnavailableError
    from environment.zoo import ZooError
    from experiments.errors import UserError
    from taso_ext.errors import ModelError, UnpricedError
    from worldmodel import errors as of_world_models

    return (
        *(UserError, ModelError, UnpricedError, UnavailableError, ClockError, DatabaseError, ZooError, RewardError),
        PlacementError,
        *(of_world_models.IncompatibleWorldModel, of_world_models.IncompatibleCheckpoint),
        *(of_world_models.IncompatibleEpisodes, of_world_models.NothingToLearn, of_world_models.CollectionStopped),
        of_world_models.IllegalAction,
        *(UnknownControllerError, UnknownOptionError, BrokenControllerError, StoredControllerError, FloatingPointError),
    )


def print_found(found: Any, as_json: bool) -> None:
    """Prints the result of a command, which has `lines` for people and `to_json` for programs."""
    if as_json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))


def print_json(figures: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Prints figures as JSON, which has no infinities and no NaN: they become null."""
    from experiments.runs.directory import without_nonfinite

    print(json.dumps(without_nonfinite(figures), indent=2))
