"""Observations of several states as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import tensorflow as tf

Observation = TypeVar("Observation", bound=tuple)


def joined(observations: Sequence[Observation]) -> Observation:
    """Returns all rows of all observations of one type, in order."""
    return type(observations[0])(*(tf.concat(fields, axis=0) for fields in zip(*observations, strict=True)))
