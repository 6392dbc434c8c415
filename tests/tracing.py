"""Without the traces of `tf.function`: tracing a training takes 20 seconds, a step of a small one less than one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Within it, what is compiled elsewhere runs as the Python that it is written in."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)
