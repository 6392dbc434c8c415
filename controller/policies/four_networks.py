"""`FourNetworks`: the published head, four multilayer perceptrons that share nothing.

Source: "RLFlow: Optimising Neural Network Subgraph Transformation with World Models" and the dissertation behind it. In
the published code each network has two hidden layers of 32 ReLUs, and the location does not know which rule was chosen;
here it does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.hierarchical import (
    ActionGroups,
    HierarchicalCategorical,
    OwnActions,
    Table,
)
from controller.policies.layers import POLICY_GAIN, Mlp
from controller.ppo.config import PolicyConfig


class _Located(NamedTuple):
    """What the networks of locations say of n pairs of a state and a rule: logits [n, S] of all sites, values [n]."""

    logits: tf.Tensor
    values: tf.Tensor


class FourNetworks(snt.Module):
    """An actor and a critic of rules, and an actor and a critic of locations that also read the chosen rule.

        rule logits      = MLP₁(f)         V(s)       = MLP₂(f)
        location logits  = MLP₃(f, rule)   V(s, rule) = MLP₄(f, rule)

    f are the features of the state, as they are; the legal actions enter as masks alone. The logit of an action is that
    of its site, given its rule. See `controller.policies.head.Head` for the methods and `HierarchicalHead` for
    everywhere-actions.
    """

    reads_nodes = False
    has_location_critic = True

    def __init__(
        self,
        rules: np.ndarray,
        sites: np.ndarray,
        config: PolicyConfig,
        rng: np.random.Generator,
        everywhere: np.ndarray | None = None,
    ) -> None:
        """See `controller.policies.head.make_head`; of the sizes, only `config.torso` is used."""
        super().__init__("four_networks")
        self._table = Table(rules, sites, everywhere)
        self._num_rules, num_sites = self._table.num_rules, self._table.num_sites
        self._rule_actor = Mlp(config.torso, self._num_rules, rng, gain=POLICY_GAIN, name="rule_actor")
        self._rule_critic = Mlp(config.torso, 1, rng, gain=1.0, name="rule_critic")
        self._location_actor = Mlp(config.torso, num_sites, rng, gain=POLICY_GAIN, name="location_actor")
        self._location_critic = Mlp(config.torso, 1, rng, gain=1.0, name="location_critic")
        bias = np.append(np.zeros(self._num_rules - 1), config.noop_logit)
        self._rule_bias = tf.Variable(bias, dtype=tf.float32, name="b")

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        batch = tf.shape(features)[0]
        every_rule = tf.tile(tf.range(self._num_rules), [batch])
        located = self._located(tf.repeat(features, self._num_rules, axis=0), every_rule)
        by_rule = tf.reshape(located.logits, [batch, -1])  # [B, G · S]
        places = self._table.rules * located.logits.shape[1] + self._table.sites
        counts = self._table.groups.total(tf.cast(mask, tf.float32))
        locations = self._table.weighed(tf.gather(by_rule, places, axis=1), counts)
        values = tf.reshape(located.values, [batch, self._num_rules])
        return self._decided(features, locations, mask, self._table.groups, values)

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, nodes: tf.Tensor | None = None
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        batch, rules = tf.shape(features)[0], tf.gather(self._table.rules, actions)
        groups = OwnActions(rules, self._num_rules)
        # Few of the rules are legal in a state: the networks see each pair of a state and such a rule once.
        codes = rules + self._num_rules * tf.range(batch)[:, tf.newaxis]
        pairs, pair_of_action = tf.unique(tf.reshape(codes, [-1]))
        row, rule = pairs // self._num_rules, pairs % self._num_rules
        located = self._located(tf.gather(features, row), rule)
        sites = tf.reshape(tf.gather(self._table.sites, actions), [-1])
        logits = tf.gather_nd(located.logits, tf.stack([pair_of_action, sites], axis=1))
        counts = groups.total(tf.cast(mask, tf.float32))
        locations = self._table.weighed_candidates(tf.reshape(logits, tf.shape(actions)), counts, actions)
        values = tf.scatter_nd(tf.stack([row, rule], axis=1), located.values, [batch, self._num_rules])
        return self._decided(features, locations, mask, groups, values)

    def _located(self, features: tf.Tensor, rules: tf.Tensor) -> _Located:
        """Applies the networks of locations to states float32 [n, F] and rules int32 [n]."""
        inputs = tf.concat([features, tf.one_hot(rules, self._num_rules)], axis=1)
        return _Located(self._location_actor(inputs), tf.squeeze(self._location_critic(inputs), axis=1))

    def _decided(
        self, features: tf.Tensor, locations: tf.Tensor, mask: tf.Tensor, groups: ActionGroups, values: tf.Tensor
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        logits = self._rule_actor(features) + self._rule_bias
        chosen = HierarchicalCategorical(logits, locations, mask, groups, location_values=values)
        return chosen, tf.squeeze(self._rule_critic(features), axis=1)
