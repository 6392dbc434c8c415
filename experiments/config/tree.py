"""Nested frozen dataclasses, changed by TOML tables and `a.b=c` overrides; every key and type is checked."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from experiments.errors import UserError
from taso_ext.errors import near

Config = TypeVar("Config")


def replaced(config: Config, values: Mapping[str, Any], source: str, prefix: str = "") -> Config:
    """Returns a copy of a (nested) frozen dataclass with some fields replaced.

    Args:
      config: an instance of a frozen dataclass.
      values: new values by field name; a mapping for a nested dataclass.
      source: where the values come from, for errors ("preset demo").
      prefix: dotted path of `config` in its tree, for errors.
    Raises:
      UserError: a key is unknown (the message names the nearest one), or a value has another type than its field or
        fails the section's own checks.
    """
    hints = _hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if key not in known:
            raise UserError(f"Unknown key '{path}' in {source}. {_meant(config, key, prefix)}")
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise UserError(f"'{path}' in {source} is a section, but {value!r} came: set '{path}.<key>' instead.")
            changes[key] = replaced(current, value, source, f"{path}.")
        else:
            changes[key] = _checked(value, hints[key], path, source)
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except UserError:
        raise
    except ValueError as error:  # a section's own validation
        section = f", section '{prefix.removesuffix('.')}'" if prefix else ""
        raise UserError(f"Bad value in {source}{section}: {str(error).rstrip('.')}.") from error


_hints: Callable[[type], dict[str, Any]] = functools.cache(typing.get_type_hints)  # it takes longer than all else here


def _meant(config: Any, key: str, prefix: str) -> str:
    """Returns which setting an unknown key may mean, as a path in the whole tree, and what there is beside it."""
    known = sorted(field.name for field in dataclasses.fields(config))
    elsewhere = [path for path, _ in leaves(as_mapping(config)) if path.rpartition(".")[2] == key]
    close = near(key, known)
    meant = elsewhere or ([] if close is None else [close])
    hint = f"Did you mean {' or '.join(repr(prefix + path) for path in meant)}? " if meant else ""
    return f"{hint}Known: {', '.join(known)}."


def takes_integers(config: Any, path: str) -> bool:
    """Returns whether a setting of a (nested) dataclass takes integers but no other numbers; False if there is none.

    Args:
      path: its dotted path.
    """
    section, _, rest = path.partition(".")
    if not dataclasses.is_dataclass(config) or not hasattr(config, section):
        return False
    if rest:
        return takes_integers(getattr(config, section), rest)
    kinds = _alternatives(_hints(type(config)).get(section))
    return int in kinds and float not in kinds


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Returns the nested values of `--set a.b=c` arguments; c is a TOML value, or else a plain string.

    Raises:
      UserError: an argument has no `=` or no key, or its section was already set to a value.
    """
    tree: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise UserError(f"--set expects key=value, for example --set ppo.epochs=20, but got '{assignment}'.")
        put(tree, path.strip(), _toml_value(text.strip()), f"--set {assignment}")
    return tree


def put(tree: dict[str, Any], path: str, value: Any, source: str) -> None:
    """Sets the value at a dotted path of nested values.

    Args:
      source: what the value comes from, for messages.
    Raises:
      UserError: what should be a section on the path is a value.
    """
    *sections, key = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise UserError(f"{source}: '{section}' was already set to the value {tree!r}.")
    tree[key] = value


def as_mapping(config: Any) -> dict[str, Any]:
    """Returns the nested plain values of a config, as `replaced` takes them and JSON stores them (tuples as lists)."""
    return {key: _plain(value) for key, value in dataclasses.asdict(config).items()}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted paths and values of nested plain values; an empty section is a value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(value: Any, hint: Any, path: str, source: str) -> Any:
    """Returns `value` as the field's type.

    An int becomes a float and a list a tuple if the field asks for it, and "none" becomes None; nothing else is
    converted.

    Raises:
      UserError: the value has another type.
    """
    kinds = _alternatives(hint)
    if type(None) in kinds and value in (None, "none"):
        return None
    for kind in kinds:
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if typing.get_origin(kind) is dict and isinstance(value, Mapping):
            return dict(value)
        if typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
            return tuple(_checked(item, typing.get_args(kind)[0], path, source) for item in value)
        if typing.get_origin(kind) is typing.Literal:
            if value in typing.get_args(kind):
                return value
            if len(kinds) > 1:
                continue
            expected = ", ".join(map(str, typing.get_args(kind)))
            raise UserError(f"'{path}' in {source} must be one of {expected}, but {value!r} came.")
        if isinstance(kind, type) and type(value) is kind:
            return value
    raise UserError(f"'{path}' in {source} must be {_type_name(hint)}, but {value!r} came.")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _type_name(hint: Any) -> str:
    """Returns what a setting must be, in words."""
    return " or ".join(map(_word_of, _alternatives(hint)))


def _word_of(kind: Any) -> str:
    words = {int: "an integer", float: "a number", str: "a text", bool: "true or false", type(None): "none"}
    lists = {int: "a list of integers, such as [8, 8]", str: 'a list of texts, such as ["a", "b"]'}
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple and (items := typing.get_args(kind)[0]) in lists:
        return lists[items]
    return words.get(kind, str(kind))
