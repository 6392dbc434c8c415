"""Observations whose fields are ragged: NamedTuples of tensors and ragged tensors, one row for each state.

A row is kept as arrays until a policy sees it: NumPy joins many of them in a tenth of TensorFlow's time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

import numpy as np
import tensorflow as tf

Observation = TypeVar("Observation")
Row = Sequence[np.ndarray]
"""One state: the arrays of an observation's fields, in their order and without the first axis."""


class Layout(Generic[Observation]):
    """How rows become an observation of one type."""

    def __init__(self, kind: Callable[..., Observation], dtypes: Sequence[tf.DType], dense: Collection[str]) -> None:
        """
        Args:
          kind: the type of the observation, a NamedTuple.
          dtypes: the types of its fields.
          dense: the names of fields of one shape; all others become ragged.
        """
        self._kind, self._dtypes = kind, dtypes
        self._dense = [name in dense for name in kind._fields]  # type: ignore[attr-defined]

    def stack(self, rows: Sequence[Row]) -> Observation:
        """Returns S ≥ 1 rows as one observation."""
        fields = zip(self._dense, zip(*rows, strict=True), self._dtypes, strict=True)
        return self._kind(*((_dense if dense else _ragged)(arrays, dtype) for dense, arrays, dtype in fields))

    def empty(self, like: Row) -> Row:
        """Returns a row of which ragged fields are empty and others are 0, with the columns of another row."""
        fields = zip(self._dense, like, strict=True)
        return [np.zeros_like(array if dense else array[:0]) for dense, array in fields]


def _dense(arrays: Sequence[np.ndarray], dtype: tf.DType) -> tf.Tensor:
    return tf.constant(np.stack(arrays), dtype)


def _ragged(arrays: Sequence[np.ndarray], dtype: tf.DType) -> tf.RaggedTensor:
    splits = np.cumsum([0, *map(len, arrays)])
    values = tf.constant(np.concatenate(arrays), dtype)
    return tf.RaggedTensor.from_row_splits(values, tf.constant(splits, tf.int64), validate=False)
