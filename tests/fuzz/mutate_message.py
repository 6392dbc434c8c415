"""The mutation of protobuf messages field by field: the results can be parsed, which mutated bytes rarely can."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

Field = Any
INTEGERS = (0, 1, -1, 2, 3, 7, 13, 2**31 - 1, -(2**31), 2**40, 2**60, 2**63 - 1, -(2**63))
REALS = (0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("nan"))


def mutate_message(message: Any, rng: random.Random) -> None:
    """Changes one field, somewhere in `message`."""
    places = [(owner, field) for owner in _messages(message) for field in owner.DESCRIPTOR.fields]
    owner, field = rng.choice(places)
    with suppress(UnicodeDecodeError):  # text that is not UTF-8 can be read but not written
        _mutate_field(owner, field, message, rng)


def _mutate_field(owner: Any, field: Field, message: Any, rng: random.Random) -> None:
    if field.is_repeated:
        _mutate_list(owner, field, message, rng)
    elif field.message_type is None:
        setattr(owner, field.name, _scalar(field, message, rng))
    elif owner.HasField(field.name) and rng.random() < 0.5:
        owner.ClearField(field.name)
    else:
        _graft(getattr(owner, field.name), message, rng)


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in value if field.is_repeated else [value]:
                yield from _messages(child)


def _mutate_list(owner: Any, field: Field, whole: Any, rng: random.Random) -> None:
    items = getattr(owner, field.name)
    kind = rng.randrange(4)
    at = rng.randrange(len(items)) if items else 0
    if items and kind == 0:
        del items[at]
    elif items and kind == 1:
        other = rng.randrange(len(items))
        order = list(items)
        order[at], order[other] = order[other], order[at]
        del items[:]
        items.extend(order)
    elif field.message_type is None:
        value = _scalar(field, whole, rng)
        if items and kind == 2:
            items[at] = value
        else:
            items.insert(at, value) if hasattr(items, "insert") else items.append(value)
    else:
        _graft(items.add(), whole, rng)


def _graft(target: Any, whole: Any, rng: random.Random) -> None:
    """Makes `target` a copy of another message of its kind, if there is one."""
    alike = [other for other in _messages(whole) if other.DESCRIPTOR is target.DESCRIPTOR and other is not target]
    if alike:
        chosen = type(target)()
        chosen.CopyFrom(rng.choice(alike))
        target.CopyFrom(chosen)


def _scalar(field: Field, whole: Any, rng: random.Random) -> Any:
    """Returns a value of the right type: one from elsewhere in the message, or an odd one."""
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(REALS)
    if field.cpp_type == field.CPPTYPE_STRING:
        strings = [value for value in _strings(whole) if isinstance(value, bytes) == (field.type == field.TYPE_BYTES)]
        text = rng.choice(strings) if strings else (b"" if field.type == field.TYPE_BYTES else "")
        return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.25 else text
    bits = 31 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 63
    signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    value = rng.choice(INTEGERS) if rng.random() < 0.5 else rng.randrange(64)
    return max(-(2**bits) if signed else 0, min(value, 2**bits - 1))


def _strings(message: Any) -> Iterator[Any]:
    for owner in _messages(message):
        for field, value in owner.ListFields():
            if field.cpp_type == field.CPPTYPE_STRING:
                yield from value if field.is_repeated else [value]
