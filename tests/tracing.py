"""Without the traces of `tf.function`: tracing a training takes 20 seconds, a step of a small one less than one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Within it, what is compiled elsewhere runs as the Python that it is written in."""
    with _eagerly(True):
        yield


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """The other way round, for what takes many steps of a test that is `untraced` otherwise."""
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
