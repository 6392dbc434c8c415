"""What goes wrong with a model a user brings."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be used as it is.

    The message is one paragraph that names what was expected, what came and what to do, fit to be shown to a user.
    """


def one_paragraph(error: object, limit: int = 500) -> str:
    """The text of another library's error, as part of one paragraph: no line breaks, at most `limit` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
