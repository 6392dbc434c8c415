from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from worldmodel.dynamics.own_products import TILE, product_with_own


@pytest.mark.parametrize(("compiled", "foreseen"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    "which",
    [
        pytest.param([0], id="one"),
        pytest.param([4] * (TILE + 1), id="one more than a tile holds"),
        pytest.param(list(range(5)) * 3, id="all"),
        pytest.param([3, 0] * TILE, id="full tiles"),
        pytest.param(np.random.default_rng(0).integers(0, 5, 333).tolist(), id="many"),
        pytest.param([], id="none"),
    ],
)
def test_each_vector_meets_its_own_matrix(which: list[int], compiled: bool, foreseen: bool) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((len(which), 7)).astype(np.float32)
    matrices, wanted = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 7, 3), (len(which), 3)))

    specs = [tf.TensorSpec([len(which) if foreseen else None, 7]), tf.TensorSpec([5, 7, 3])]

    @tf.function(jit_compile=compiled, input_signature=specs)
    def there_and_back(vectors: tf.Tensor, matrices: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            tape.watch([vectors, matrices])
            found = product_with_own(vectors, tf.constant(which, tf.int32), matrices)
            loss = tf.reduce_sum(found * wanted)
        return found, *map(tf.convert_to_tensor, tape.gradient(loss, [vectors, matrices]))

    found, of_vectors, of_matrices = there_and_back(tf.constant(vectors), tf.constant(matrices))
    own = matrices[which]
    np.testing.assert_allclose(found, np.einsum("ni,nio->no", vectors, own), atol=1e-5)
    np.testing.assert_allclose(of_vectors, np.einsum("no,nio->ni", wanted, own), atol=1e-5)
    expected = np.zeros_like(matrices)
    np.add.at(expected, which, vectors[:, :, np.newaxis] * wanted[:, np.newaxis])
    np.testing.assert_allclose(of_matrices, expected, atol=1e-4)
