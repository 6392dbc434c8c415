"""Contexts without and with the traces of `tf.function`.

Tracing a training takes 20 seconds, and a step of a small training less than one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Runs as plain Python, within the context, what is otherwise compiled.

    A step of a search is ten times as slow then, so the searches of recollection draw few plans.
    """
    from worldmodel.dream import recollection

    with _eagerly(True), pytest.MonkeyPatch.context() as patches:
        patches.setattr(recollection, "MOST_ROWS", 64)
        patches.setattr(recollection, "POPULATION", 8)
        patches.setattr(recollection, "ELITES", 2)
        patches.setattr(recollection, "ITERATIONS", 2)
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
