"""Observations whose fields are ragged: NamedTuples of tensors and ragged tensors, one row for each state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

Observation = TypeVar("Observation")


def stack(
    kind: Callable[..., Observation],
    rows: Sequence[Sequence[np.ndarray]],
    dtypes: Sequence[tf.DType],
    dense: Collection[str],
) -> Observation:
    """Returns S ≥ 1 rows as one observation.

    Args:
      kind: the type of the observation.
      rows: the arrays of each row.
      dtypes: the types of the fields.
      dense: the names of fields of one shape; all others become ragged.
    """
    fields = zip(kind._fields, zip(*rows, strict=True), dtypes, strict=True)  # type: ignore[attr-defined]
    return kind(*((_dense if name in dense else _ragged)(arrays, dtype) for name, arrays, dtype in fields))


def _dense(arrays: Sequence[np.ndarray], dtype: tf.DType) -> tf.Tensor:
    return tf.constant(np.stack(arrays), dtype)


def _ragged(arrays: Sequence[np.ndarray], dtype: tf.DType) -> tf.RaggedTensor:
    lengths = np.array([len(array) for array in arrays], np.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(np.concatenate(arrays), dtype), lengths, validate=False)


def concatenate(observations: Sequence[Observation]) -> Observation:
    """Returns all rows of all observations of one type, in order."""
    fields: Any = zip(*observations, strict=True)
    return type(observations[0])(*(tf.concat(field, axis=0) for field in fields))


def empty_row(like: Observation) -> Observation:
    """Returns one row of which ragged fields are empty and others are 0, with the columns of another observation."""

    def empty(field: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        if isinstance(field, tf.RaggedTensor):
            return tf.RaggedTensor.from_row_lengths(field.flat_values[:0], [0], validate=False)
        return tf.zeros_like(field[:1])

    return type(like)(*map(empty, like))  # type: ignore[call-overload]
