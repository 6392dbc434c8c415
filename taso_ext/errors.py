"""The errors that a user's model can cause, and functions that help to word messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def near(name: str, known: Iterable[str]) -> str | None:
    """Returns the nearest of `known` names, or the shortest that begins with `name`; None if none is like it."""
    spelt = {each.lower(): each for each in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=0.6)
    longer = sorted((each for each in spelt if name and each.startswith(name.lower())), key=len)
    return next((spelt[each] for each in (*close, *longer)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean 'batch'?)` if one of `known` is like `name`, otherwise an empty string."""
    found = near(name, known)
    return f" (did you mean '{found}'?)" if found else ""
