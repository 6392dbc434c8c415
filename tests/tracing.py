"""Contexts without and with the traces of `tf.function`.

Tracing a training takes 20 seconds, and a step of a small training less than one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Runs as plain Python, within the context, what is otherwise compiled."""
    with _eagerly(True):
        yield


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Compiles again, within the context, for the parts with many steps of a test that is otherwise `untraced`."""
    with _eagerly(False):
        yield


@contextlib.contextmanager
def _eagerly(eagerly: bool) -> Iterator[None]:
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
