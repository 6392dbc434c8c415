"""The options of `reset`, which mean the same in the real environment and in dreams of it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from taso_ext.errors import did_you_mean


def require_options(options: Mapping[str, Any] | None, *known: str) -> dict[str, Any]:
    """Returns the options of a `reset`.

    Args:
      options: the options that are given; None: there are none.
      known: the names of all options.
    Raises:
      ValueError: an option is not known, or `max_steps` is neither None nor a whole number of at least 1.
    """
    given = dict(options or {})
    for name in given.keys() - set(known):
        raise ValueError(f"reset has no option {name!r}{did_you_mean(str(name), known)}. Options: {', '.join(known)}.")
    if given.get("max_steps") is not None:
        require_steps(given["max_steps"])
    return given


def require_steps(max_steps: Any) -> None:
    """Raises ValueError unless `max_steps` is a whole number of at least 1."""
    if not isinstance(max_steps, numbers.Integral):
        raise ValueError(f"max_steps must be a whole number, got {max_steps!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
