"""Attributes between ONNX and the engine: plain values as they are, everything else behind a digest."""

from __future__ import annotations

import hashlib

from onnx import AttributeProto, helper

from taso_ext.onnx_io.canonical.form import Attribute


class AttributeStore:
    """Keeps the attributes that the engine does not look into (tensors, graphs, types …) under their digests."""

    def __init__(self) -> None:
        self._kept: dict[bytes, AttributeProto] = {}

    def encode(self, attribute: AttributeProto) -> Attribute:
        """The attribute as the engine holds it."""
        plain = _plain_value(attribute)
        if plain is not None:
            return plain
        digest = hashlib.sha256(attribute.SerializeToString(deterministic=True)).digest()[:16]
        self._kept[digest] = attribute
        return digest

    def decode(self, name: str, value: Attribute) -> AttributeProto:
        """The ONNX attribute again."""
        if not isinstance(value, bytes):
            return helper.make_attribute(name, value)
        attribute = AttributeProto()
        attribute.CopyFrom(self._kept[value])
        return attribute


def _plain_value(attribute: AttributeProto) -> Attribute | None:
    """None for what the engine does not look into; empty lists are among that, since their type would be lost."""
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.FLOAT:
        return attribute.f
    if attribute.type == AttributeProto.INTS:
        return list(attribute.ints) or None
    if attribute.type == AttributeProto.FLOATS:
        return list(attribute.floats) or None
    if attribute.type == AttributeProto.STRING:
        return _text(attribute.s)
    if attribute.type == AttributeProto.STRINGS:
        texts = [_text(each) for each in attribute.strings]
        return [text for text in texts if text is not None] if texts and None not in texts else None
    return None


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
