from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from worldmodel.networks.segment_ops import owners_of, segment_max, segment_mean, segment_sum


@pytest.mark.parametrize(("reduce", "of_rows"), [(segment_sum, np.sum), (segment_mean, np.mean), (segment_max, np.max)])
@pytest.mark.parametrize("sizes", [[3], [0, 2, 0, 1, 0, 0], [1, 1, 4], [0, 0], [5, 0]])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_every_owner_gets_what_its_rows_come_to(
    reduce: Callable[..., tf.Tensor], of_rows: Callable[..., np.ndarray], sizes: list[int], shape: tuple[int, ...]
) -> None:
    values = np.random.default_rng(0).normal(size=(sum(sizes), *shape)).astype(np.float32)
    owners = owners_of(tf.constant(sizes))
    np.testing.assert_array_equal(owners, np.repeat(np.arange(len(sizes)), sizes))
    parts = np.split(values, np.cumsum(sizes)[:-1])
    expected = [of_rows(part, axis=0) if len(part) else np.zeros(shape) for part in parts]
    found = reduce(tf.constant(values), owners, tf.constant(len(sizes)))
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-6, atol=1e-6)


def test_rows_out_of_order_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="not increasing"):
        segment_sum(tf.ones([3]), tf.constant([0, 2, 1]), tf.constant(3))
