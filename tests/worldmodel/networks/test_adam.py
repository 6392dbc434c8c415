from __future__ import annotations

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from worldmodel.networks.adam import Adam

SHAPES = ((5, 3), (4,), ())


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5, 1e-2])
def test_it_moves_weights_as_sonnets_adam_does(epsilon: float) -> None:
    draw = np.random.default_rng(0)
    start = [draw.normal(size=shape).astype(np.float32) for shape in SHAPES]
    ours, theirs = ([tf.Variable(value) for value in start] for _ in range(2))
    rate = tf.Variable(1e-2)
    adam, reference = Adam(rate, epsilon=epsilon), snt.optimizers.Adam(rate, epsilon=epsilon)
    for step in range(100):
        rate.assign(1e-2 / (1 + step))
        # Large and tiny gradients: the epsilon matters for the latter only.
        gradients = [(draw.normal(size=shape) * 10 ** draw.uniform(-6, 2)).astype(np.float32) for shape in SHAPES]
        adam.apply([tf.constant(each) for each in gradients], ours)
        reference.apply([tf.constant(each) for each in gradients], theirs)
    assert int(adam.step) == 100
    for mine, other, before in zip(ours, theirs, start, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
        assert not np.allclose(mine, before, atol=1e-3)
    for mine, other in zip([*adam.m, *adam.v], [*reference.m, *reference.v], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4)
