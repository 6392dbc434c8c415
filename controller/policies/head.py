"""`PolicyHead`: what every policy decides with, whatever its features come from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.config import PolicyConfig
from controller.policies.hierarchical import HierarchicalCategorical, OwnActions, SharedActions
from controller.policies.networks import Gaussian, Orthogonal, Torso, ValueNet

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
