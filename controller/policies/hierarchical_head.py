"""`HierarchicalHead`: rule and location from one shared trunk, over a table of actions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.hierarchical import HierarchicalCategorical, OwnActions, Table
from controller.policies.layers import POLICY_GAIN, Gaussian, Orthogonal, Torso, ValueNet
from controller.ppo.config import PolicyConfig


class TableWeights(NamedTuple):
    """The weights of a policy that belong to its table of A actions and NO-OP, with G rules and S sites in all.

    Attributes:
      inputs: [F + G + mask width, units] each, the first layers of policy and value. Their rows belong to the features
        of the state, the counts of legal actions by rule, and the summary of the mask.
      rules: [units, G], the weights of the rule logits.
      rule_bias: [G], the biases of the rule logits.
      gates: [G, d], the gate of each rule.
      sites: [S, d], the embedding of each site.
      biases: [A + 1], the biases of the location logits.
      summands: [A + 1, mask width], what each legal action adds to the summary of the mask.
    """

    inputs: tuple[tf.Variable, tf.Variable]
    rules: tf.Variable
    rule_bias: tf.Variable
    gates: tf.Variable
    sites: tf.Variable
    biases: tf.Variable
    summands: tf.Variable


class HierarchicalHead(snt.Module):
    """A head that maps the features and the legal actions of a state to a distribution over actions, and a value.

    Action a of the table applies rule(a) at site(a). NO-OP is the last action, with a rule and a site of its own.

        rule logits        = W f + b
        location logit (a) = ⟨V f, g[rule(a)] ⊙ e[site(a)]⟩ / √d + c[a] + p[a]

    f is computed from the features and from the set of legal actions: the number of each rule's legal actions, and a
    learned sum over all legal actions. The gate g makes the location depend on the chosen rule, at the cost of one
    product [B, d] × [d, A]. What is learned about a site thus serves every rule, and what is learned about a rule
    serves every site; c holds the rest.

    p is 0 but for everywhere-actions, whose site they have in common. For these it is the logarithm of the number of
    sites at which their rule is legal, so that the untrained policy carries a rule out everywhere as often as at one of
    its sites. Without it, the many sites of a network of repeated layers would drown the one everywhere-action.
    """

    reads_nodes = False
    has_location_critic = False

    def __init__(
        self,
        rules: np.ndarray,
        sites: np.ndarray,
        config: PolicyConfig,
        rng: np.random.Generator,
        everywhere: np.ndarray | None = None,
    ) -> None:
        """See `controller.policies.head.make_head`."""
        super().__init__("policy_head")
        self._table = Table(rules, sites, everywhere)
        num_rules, num_sites, width = self._table.num_rules, self._table.num_sites, config.width
        self._scale = width**-0.5
        self._torso = Torso(config.torso, rng, name="policy_torso")
        self._value = ValueNet(config.torso, rng, name="value")
        self._rules = snt.Linear(num_rules, with_bias=False, w_init=Orthogonal(rng, POLICY_GAIN), name="rules")
        self._query = snt.Linear(width, w_init=Orthogonal(rng, POLICY_GAIN), name="query")
        self._rule_bias = tf.Variable(np.append(np.zeros(num_rules - 1), config.noop_logit), dtype=tf.float32, name="b")
        self._gates = tf.Variable(1.0 + 0.1 * rng.standard_normal((num_rules, width)), dtype=tf.float32, name="g")
        self._sites = tf.Variable(rng.standard_normal((num_sites, width)), dtype=tf.float32, name="e")
        self._bias = tf.Variable(tf.zeros([len(rules)]), name="c")
        # 0.1 stands for 1 / √(legal actions), which needs no count: some hundred are legal at once at BERT's size.
        self._summands = tf.Variable(Gaussian(rng, 0.1)((len(rules), config.mask_width), tf.float32), name="summands")

    @property
    def table_weights(self) -> TableWeights:
        """The weights that belong to the table; they exist after the first call of the head."""
        inputs = self._torso.first_weights, self._value.first_weights
        rules = self._rules.w, self._rule_bias, self._gates
        return TableWeights(inputs, *rules, self._sites, self._bias, self._summands)

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        legal = tf.cast(mask, tf.float32)
        counts = self._table.groups.total(legal)
        inputs = self._inputs(features, counts, tf.matmul(legal, self._summands))
        hidden = self._torso(inputs)
        locations = tf.matmul(self._query(hidden) * self._scale, self._keys(), transpose_b=True) + self._bias
        locations = self._table.weighed(locations, counts)
        chosen = HierarchicalCategorical(self._rule_logits(hidden), locations, mask, self._table.groups)
        return chosen, self._value(inputs)

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, nodes: tf.Tensor | None = None
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        legal = tf.cast(mask, tf.float32)
        groups = OwnActions(tf.gather(self._table.rules, actions), self._table.num_rules)
        counts = groups.total(legal)
        summands = tf.einsum("bk,bkm->bm", legal, tf.gather(self._summands, actions))
        inputs = self._inputs(features, counts, summands)
        hidden = self._torso(inputs)
        keys = tf.gather(self._keys(), actions)
        locations = tf.einsum("bd,bkd->bk", self._query(hidden) * self._scale, keys) + tf.gather(self._bias, actions)
        locations = self._table.weighed_candidates(locations, counts, actions)
        return HierarchicalCategorical(self._rule_logits(hidden), locations, mask, groups), self._value(inputs)

    def _inputs(self, features: tf.Tensor, counts: tf.Tensor, summary: tf.Tensor) -> tf.Tensor:
        return tf.concat([features, tf.math.log1p(counts), summary], axis=1)

    def _rule_logits(self, hidden: tf.Tensor) -> tf.Tensor:
        return self._rules(hidden) + self._rule_bias

    def _keys(self) -> tf.Tensor:
        """Returns g[rule(a)] ⊙ e[site(a)] of each action, float32 [A + 1, d]."""
        return tf.gather(self._gates, self._table.rules) * tf.gather(self._sites, self._table.sites)
