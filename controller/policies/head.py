"""`PolicyHead`: what every policy decides with, whatever its features come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.hierarchical import HierarchicalCategorical, OwnActions, SharedActions
from controller.ppo.config import PolicyConfig


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


POLICY_GAIN = 0.01
"""Gain of the last policy layers: the first policy is uniform over rules, then locations, like the random agent.

Source: Andrychowicz et al. 2021, "What matters in on-policy RL", section 3.2.
"""


class TableWeights(NamedTuple):
    """The weights of a policy that belong to its table of A actions, G rules and S sites, NO-OP included.

    Attributes:
      inputs: [F + G + mask width, units] each, first layers of policy and value; rows are features of the state, counts
        of legal actions by rule, and the summary of the mask.
      rules: [units, G], of rule logits.
      rule_bias: [G].
      gates: [G, d].
      sites: [S, d].
      biases: [A + 1], of location logits.
      summands: [A + 1, mask width].
    """

    inputs: tuple[tf.Variable, tf.Variable]
    rules: tf.Variable
    rule_bias: tf.Variable
    gates: tf.Variable
    sites: tf.Variable
    biases: tf.Variable
    summands: tf.Variable


class PolicyHead(snt.Module):
    """Features of a state and its legal actions to a hierarchical distribution over actions, and a value.

    An action a of the table means rule(a) at site(a); NO-OP, the last, is a rule and a site of its own.

        rule logits        = W f + b
        location logit (a) = ⟨V f, g[rule(a)] ⊙ e[site(a)]⟩ / √d + c[a]

    f is computed from the features and from the set of legal actions: how many each rule has, and a learned sum over
    them. The gate g makes the location depend on the rule chosen at the price of one [B, d] × [d, A] product, and lets
    what is learned about a site serve every rule, and what is learned about a rule every site; c holds the rest.
    """

    def __init__(self, rules: np.ndarray, sites: np.ndarray, config: PolicyConfig, rng: np.random.Generator) -> None:
        """
        Args:
          rules, sites: int [A + 1], numbered from 0 without gaps; the last is NO-OP: rule R, site S.
          config: sizes.
          rng: of the initial weights.
        """
        super().__init__("policy_head")
        num_rules, num_sites, width = int(rules[-1]) + 1, int(sites[-1]) + 1, config.width
        self._rules_of_actions, self._sites_of_actions = tf.constant(rules, tf.int32), tf.constant(sites, tf.int32)
        self._shared = SharedActions(rules, num_rules)
        self._num_rules, self._scale = num_rules, width**-0.5
        self._torso = Torso(config.torso, rng, name="policy_torso")
        self._value = ValueNet(config.torso, rng, name="value")
        self._rules = snt.Linear(num_rules, with_bias=False, w_init=Orthogonal(rng, POLICY_GAIN), name="rules")
        self._query = snt.Linear(width, w_init=Orthogonal(rng, POLICY_GAIN), name="query")
        self._rule_bias = tf.Variable(np.append(np.zeros(num_rules - 1), config.noop_logit), dtype=tf.float32, name="b")
        self._gates = tf.Variable(1.0 + 0.1 * rng.standard_normal((num_rules, width)), dtype=tf.float32, name="g")
        self._sites = tf.Variable(rng.standard_normal((num_sites, width)), dtype=tf.float32, name="e")
        self._bias = tf.Variable(tf.zeros([len(rules)]), name="c")
        # Dividing by √(legal actions) would need the count; some hundred are legal at once at BERT's size.
        self._summands = tf.Variable(Gaussian(rng, 0.1)((len(rules), config.mask_width), tf.float32), name="summands")

    @property
    def table_weights(self) -> TableWeights:
        """The weights that belong to the table, once the head has been used."""
        inputs = self._torso.first_weights, self._value.first_weights
        rules = self._rules.w, self._rule_bias, self._gates
        return TableWeights(inputs, *rules, self._sites, self._bias, self._summands)

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Decides over the whole table, for all rows alike.

        Args:
          features: float32 [B, F].
          mask: bool [B, A + 1].
        Returns:
          (distribution over indices of the table, value float32 [B]).
        """
        legal = tf.cast(mask, tf.float32)
        inputs = self._inputs(features, self._shared.total(legal), tf.matmul(legal, self._summands))
        hidden = self._torso(inputs)
        locations = tf.matmul(self._query(hidden) * self._scale, self._keys(), transpose_b=True) + self._bias
        return HierarchicalCategorical(self._rule_logits(hidden), locations, mask, self._shared), self._value(inputs)

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Decides over each row's own candidates.

        Args:
          features: float32 [B, F].
          actions: int32 [B, K], indices of the table; anything where masked.
          mask: bool [B, K], false for padding.
        Returns:
          (distribution over positions in `actions`, value float32 [B]).
        """
        legal = tf.cast(mask, tf.float32)
        groups = OwnActions(tf.gather(self._rules_of_actions, actions), self._num_rules)
        summands = tf.einsum("bk,bkm->bm", legal, tf.gather(self._summands, actions))
        inputs = self._inputs(features, groups.total(legal), summands)
        hidden = self._torso(inputs)
        keys = tf.gather(self._keys(), actions)
        locations = tf.einsum("bd,bkd->bk", self._query(hidden) * self._scale, keys) + tf.gather(self._bias, actions)
        return HierarchicalCategorical(self._rule_logits(hidden), locations, mask, groups), self._value(inputs)

    def _inputs(self, features: tf.Tensor, counts: tf.Tensor, summary: tf.Tensor) -> tf.Tensor:
        return tf.concat([features, tf.math.log1p(counts), summary], axis=1)

    def _rule_logits(self, hidden: tf.Tensor) -> tf.Tensor:
        return self._rules(hidden) + self._rule_bias

    def _keys(self) -> tf.Tensor:
        """[A + 1, d]."""
        return tf.gather(self._gates, self._rules_of_actions) * tf.gather(self._sites, self._sites_of_actions)
