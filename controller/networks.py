"""The parts that the dream's and the real world's policy are built from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf

POLICY_GAIN = 0.01
"""Gain of the last policy layers: the first policy is uniform over rules, then locations, like the random agent.

Source: Andrychowicz et al. 2021, "What matters in on-policy RL", section 3.2.
"""


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

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.squeeze(self._head(self._torso(inputs)), axis=1)


class RuleThenLocationHead(snt.Module):
    """What both policies decide with: rule logits, and a query that an action answers through its rule and its site.

        rule logits        = W f + b
        location logit (a) = ⟨V f, g[rule(a)] ⊙ e(a)⟩ / √d,    e(a) the embedding of where a happens

    The gate g makes the location depend on the rule chosen, at the price of one [B, d] × [d, K] product.
    """

    def __init__(
        self, num_rules: int, width: int, rng: np.random.Generator, *, noop_logit: float, name: str | None = None
    ) -> None:
        """
        Args:
          num_rules: R; NO-OP becomes rule R.
          width: d.
          noop_logit: initial logit of NO-OP, the rules starting at 0.
        """
        super().__init__(name)
        bias = np.zeros(num_rules + 1, np.float32)
        bias[num_rules] = noop_logit
        self._rules = snt.Linear(num_rules + 1, with_bias=False, w_init=Orthogonal(rng, POLICY_GAIN))
        self._rule_bias = tf.Variable(bias, name="rule_bias")
        self._query = snt.Linear(width, w_init=Orthogonal(rng, POLICY_GAIN))
        gates = 1.0 + 0.1 * rng.standard_normal((num_rules + 1, width))
        self._gates = tf.Variable(gates, dtype=tf.float32, name="gates")
        self._scale = width**-0.5

    def rule_logits(self, features: tf.Tensor) -> tf.Tensor:
        """[B, F] -> [B, R + 1]."""
        return self._rules(features) + self._rule_bias

    def query(self, features: tf.Tensor) -> tf.Tensor:
        """[B, F] -> [B, d]."""
        return self._query(features) * self._scale

    def gated(self, places: tf.Tensor, rules: tf.Tensor) -> tf.Tensor:
        """Embeddings of where actions happen, [..., d], seen through their rules, int32 [...]: [..., d]."""
        return places * tf.gather(self._gates, rules)
