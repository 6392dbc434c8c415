"""Parameters in the names of rewards and cost models: `combined:alpha=0.7,beta=0.3`, `measured:cpu:noise=resampled`."""

from __future__ import annotations


def parsed(name: str, text: str, what: str) -> dict[str, str]:
    """Parses a text such as `alpha=0.7,beta=0.3`.

    Args:
      name: the name before the parameters.
      text: the parameters; it may be empty.
      what: what has the name, for errors.
    Raises:
      ValueError: the text is written in another way.
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text else []:
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not key or not value or key in found:
            raise ValueError(
                f"the parameters of the {what} {name!r} are written {name}:key=value,key=value, each key once; got "
                f"'{text}'"
            )
        found[key] = value
    return found
