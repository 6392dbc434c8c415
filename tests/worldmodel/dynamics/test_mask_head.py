from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.mask_head import TILE, MaskHead, product_with_own


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


def test_bits_of_what_pays_or_is_seldom_legal_weigh_more() -> None:
    """Of four rewrites the first pays, and the third is legal in 1 % of the states."""
    head = MaskHead(MdnRnnConfig(features="state"), sizes=None)  # type: ignore[arg-type]  # which only weights need
    rewards = SimpleNamespace(mean=tf.constant([5.0, -1.0, 0.0, 0.0, 0.0]))
    seen: Any = SimpleNamespace(codes=SimpleNamespace(inputs=SimpleNamespace(rewards=rewards)))
    target = np.tile([1.0, 0.0, 0.0, 1.0], (100, 1)).astype(np.float32)
    target[7, 2] = 1.0
    losses = head.loss(tf.zeros([100, 4]), tf.constant(target), seen)
    np.testing.assert_allclose(losses["mask"], 4 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(losses["emphasised_mask"], 2 * np.log(2), rtol=1e-6)
    weights = head.weight(MdnRnnTrainingConfig(mask_weight=2.0, mask_emphasis=3.0))
    assert weights == {"mask": 2.0, "emphasised_mask": 6.0}
    assert head.weight(MdnRnnTrainingConfig())["emphasised_mask"] == 0.0, "the published model has none of it"
