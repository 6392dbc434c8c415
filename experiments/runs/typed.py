"""Values that were read from JSON, compared with the types of a dataclass's fields."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

WORDS = {
    int: "a number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def require_types(kind: type, fields: Mapping[str, Any]) -> None:
    """Checks the fields of a dataclass that are there.

    A number may be null, as which one that is not finite is kept. In a field of whole numbers it may not, but it may be
    broken: what it should be is another question.

    Raises:
      TypeError: a value has another type than its field; the text names the first one.
    """
    for said in _wrong(fields, kind, ""):
        raise TypeError(said)


def _wrong(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Yields a sentence for each value within a value that is not of the type of its place."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is not None or types.NoneType not in inner:
            yield from _wrong(value, next(each for each in inner if each is not types.NoneType), path)
    elif dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            hints = typing.get_type_hints(hint)
            for name in value.keys() & hints.keys():
                yield from _wrong(value[name], hints[name], f"{path}.{name}".lstrip("."))
        else:
            yield _said(path, dict, value)
    elif origin in (dict, list):
        if not isinstance(value, origin):
            yield _said(path, origin, value)
        else:
            for name, each in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _wrong(each, inner[-1], f"{path}.{name}")
    elif hint in (int, float):
        if type(value) not in (int, float) and not (value is None and hint is float):
            yield _said(path, hint, value)
    elif hint in WORDS and type(value) is not hint:
        yield _said(path, hint, value)


def _said(path: str, kind: type, value: Any) -> str:
    return f"'{path}' must be {WORDS[kind]}, but {value!r} came"
