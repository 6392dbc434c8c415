"""Text in a model that is none."""

from __future__ import annotations

from google.protobuf.message import Message  # type: ignore[import-untyped]

from taso_ext.errors import ModelError


def require_text(message: Message) -> None:
    """Checks all strings in a message, which protobuf hands over as bytes where they are not UTF-8.

    Raises:
      ModelError: names the field and what it holds.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if isinstance(text, bytes):
                    raise ModelError(
                        f"the field '{field.name}' of a {message.DESCRIPTOR.name} holds {text[:40]!r}, which is no "
                        f"UTF-8 text; the file is damaged. Export or download it again."
                    )
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                require_text(inner)
