"""The layers that policies are built from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf


class Orthogonal(snt.initializers.Initializer):
    """Orthogonal weights from a NumPy generator, so that equal seeds give equal networks whatever was built before.

    Source: Saxe et al. 2014; usual for PPO (Engstrom et al. 2020).
    """

    def __init__(self, rng: np.random.Generator, gain: float = 1.0) -> None:
        self._rng, self._gain = rng, gain

    def __call__(self, shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        rows, columns = (int(size) for size in shape)
        tall = self._rng.standard_normal((max(rows, columns), min(rows, columns)))
        basis, triangle = np.linalg.qr(tall)
        basis *= np.sign(np.diag(triangle))  # without it, QR's choice of signs would not be uniform
        return tf.constant(self._gain * (basis if rows >= columns else basis.T), dtype)


class Gaussian(snt.initializers.Initializer):
    """Independent normal weights from a NumPy generator."""

    def __init__(self, rng: np.random.Generator, stddev: float) -> None:
        self._rng, self._stddev = rng, stddev

    def __call__(self, shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        return tf.constant(self._stddev * self._rng.standard_normal([int(size) for size in shape]), dtype)


class Torso(snt.Module):
    """Linear, LayerNorm, swish, a few times: float32 [B, any] -> [B, sizes[-1]]."""

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, name: str | None = None) -> None:
        super().__init__(name)
        self._linears = [snt.Linear(size, w_init=Orthogonal(rng, np.sqrt(2.0))) for size in sizes]
        self._norms = [snt.LayerNorm(-1, create_scale=True, create_offset=True) for _ in sizes]

    @property
    def first_weights(self) -> tf.Variable:
        """[inputs, sizes[0]] of the first layer, once it has been used."""
        return self._linears[0].w

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        hidden = inputs
        for linear, norm in zip(self._linears, self._norms, strict=True):
            hidden = tf.nn.swish(norm(linear(hidden)))
        return hidden


class ValueNet(snt.Module):
    """A torso of its own (values and policies want different features) and one number: [B, any] -> [B]."""

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, name: str | None = None) -> None:
        super().__init__(name)
        self._torso = Torso(sizes, rng)
        self._head = snt.Linear(1, w_init=Orthogonal(rng))

    @property
    def first_weights(self) -> tf.Variable:
        """[inputs, sizes[0]] of the first layer, once it has been used."""
        return self._torso.first_weights

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.squeeze(self._head(self._torso(inputs)), axis=1)
