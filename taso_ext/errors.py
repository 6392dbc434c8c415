"""What goes wrong with a model a user brings."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class ModelError(ValueError):
    """A model that cannot be used as it is.

    The message is one paragraph that names what was expected, what came and what to do, fit to be shown to a user.
    """


class UnpricedError(ValueError):
    """No price of an operator can be had; searches leave such graphs alone."""


def one_paragraph(error: object, limit: int = 500) -> str:
    """The text of another library's error, as part of one paragraph: no line breaks, at most `limit` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def root_cause(error: BaseException) -> BaseException:
    """The error that all others were raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """` (did you mean 'batch'?)` where one of `known` is near `name`, else nothing."""
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
