"""The errors that a user's model can cause, and functions that help to word messages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class ModelError(ValueError):
    """The error for a model that cannot be used as it is.

    The message is one paragraph for the user: it says what was expected, what was found and what to do.
    """


class ModelWarning(UserWarning):
    """The warning for a model that can be used, although not exactly as it is or not in the way that was asked for."""


class CrashError(ModelError):
    """The error for a model at which ONNX Runtime has killed a process that was to open or run it."""


class UnpricedError(ValueError):
    """The error for an operator whose price cannot be determined; searches leave graphs with such an operator alone."""


def one_paragraph(error: object, limit: int = 500) -> str:
    """Returns the text of another library's error without line breaks, cut to at most `limit` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def root_cause(error: BaseException) -> BaseException:
    """Returns the error that was raised first in a chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Returns ` (did you mean 'batch'?)` if one of `known` is similar to `name`, otherwise an empty string."""
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
