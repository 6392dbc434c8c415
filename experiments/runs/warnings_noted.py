"""What cost models warn of, as part of a command's progress."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from environment.costs.limits import NoisyClockWarning, UnpricedWarning
from experiments.runs.progress import ProgressDisplay


@contextlib.contextmanager
def warnings_noted(progress: ProgressDisplay) -> Iterator[None]:
    """Shows these warnings among the progress, without their places in the code; all others stay warnings."""
    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if issubclass(category, (NoisyClockWarning, UnpricedWarning)):
            progress.note(str(message))
        else:
            show(message, category, filename, lineno, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = note  # type: ignore[assignment]  # `rest` stands for what it passes on
        yield
