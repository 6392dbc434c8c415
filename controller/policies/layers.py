"""The layers of policy and value networks. Their initial weights come from a NumPy generator.

Because of this generator, equal seeds give equal networks, whatever was built before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf

POLICY_GAIN = 0.01
"""Gain of the last policy layers, so small that the untrained policy is nearly uniform over rules, then over locations.

Source: Andrychowicz et al. 2021, "What matters in on-policy RL", section 3.2.
"""


class Orthogonal(snt.initializers.Initializer):
    """An initialiser of orthogonal weights.

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
    """An initialiser of independent normal weights."""

    def __init__(self, rng: np.random.Generator, stddev: float) -> None:
        self._rng, self._stddev = rng, stddev

    def __call__(self, shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        return tf.constant(self._stddev * self._rng.standard_normal([int(size) for size in shape]), dtype)


class Torso(snt.Module):
    """A stack of layers, each Linear, LayerNorm and swish: float32 [..., any] -> [..., sizes[-1]]."""

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, name: str | None = None) -> None:
        super().__init__(name)
        self._linears = [snt.Linear(size, w_init=Orthogonal(rng, np.sqrt(2.0))) for size in sizes]
        self._norms = [snt.LayerNorm(-1, create_scale=True, create_offset=True) for _ in sizes]

    @property
    def first_weights(self) -> tf.Variable:
        """The weights [inputs, sizes[0]] of the first layer; they exist after the first call."""
        return self._linears[0].w

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        hidden = inputs
        for linear, norm in zip(self._linears, self._norms, strict=True):
            hidden = tf.nn.swish(norm(linear(hidden)))
        return hidden


class ValueNet(snt.Module):
    """A network that computes one value for each row: float32 [B, any] -> [B].

    It has a torso of its own, because values and policies want different features.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator, name: str | None = None) -> None:
        super().__init__(name)
        self._torso = Torso(sizes, rng)
        self._head = snt.Linear(1, w_init=Orthogonal(rng))

    @property
    def first_weights(self) -> tf.Variable:
        """The weights [inputs, sizes[0]] of the first layer; they exist after the first call."""
        return self._torso.first_weights

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.squeeze(self._head(self._torso(inputs)), axis=1)


class Mlp(snt.Module):
    """A multilayer perceptron with ReLUs between its layers: float32 [B, any] -> [B, outputs]."""

    def __init__(
        self, sizes: Sequence[int], outputs: int, rng: np.random.Generator, *, gain: float, name: str | None = None
    ) -> None:
        """
        Args:
          sizes: the sizes of the hidden layers.
          outputs: the size of the last layer, which is linear.
          rng: the generator of the initial weights.
          gain: the gain of the last layer's initial weights.
        """
        super().__init__(name)
        self._hidden = [snt.Linear(size, w_init=Orthogonal(rng, np.sqrt(2.0))) for size in sizes]
        self._last = snt.Linear(outputs, w_init=Orthogonal(rng, gain))

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        hidden = inputs
        for linear in self._hidden:
            hidden = tf.nn.relu(linear(hidden))
        return self._last(hidden)
