"""The policy's distribution over actions: a rule first, then one of that rule's legal locations.

    log π(a | s) = log π(rule(a) | s) + log π(location(a) | rule(a), s)

The same code serves both worlds. Only the way in which the K actions of a row are grouped by rule differs:
`SharedActions` (one table for all rows, in the dream) or `OwnActions` (each row its own candidates, in the real world).
This module builds no tensor of size [batch, actions, rules] or [batch, actions, embedding].
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

MASKED = -1e9
"""Logit of an illegal choice. It is finite, because -inf becomes NaN in the gradients of `where` and log-softmax."""

MAX_LOGIT = 10.0
"""Bound on the absolute value of location logits.

It keeps exploration alive, and exponentials can be summed without subtracting the maximum first.

Source: Bello et al. 2017 (logit clipping of pointer networks, C = 10).
"""


class ActionGroups(Protocol):
    """The K actions of each row, grouped by G rules; NO-OP is a rule of its own with one location."""

    def total(self, per_action: tf.Tensor) -> tf.Tensor:
        """Returns the sums over the actions of each rule: [B, K] -> [B, G]."""
        ...

    def spread(self, per_rule: tf.Tensor) -> tf.Tensor:
        """Returns the number of each action's rule: [B, G] -> [B, K]."""
        ...

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the rule of one action in each row: int32 [B] -> int32 [B]."""
        ...

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the actions of each row's rule: int32 [B] -> (action int32 [B, n], whether it exists bool [B, n])."""
        ...


class SharedActions:
    """The `ActionGroups` of one table of actions that all rows share."""

    def __init__(self, rules: np.ndarray, num_rules: int) -> None:
        """
        Args:
          rules: int [K], the rule of each action, in [0, num_rules).
          num_rules: G, the number of rules.
        """
        counts = np.bincount(rules, minlength=num_rules)
        slots = np.full((num_rules, max(1, counts.max())), -1, np.int32)
        for rule in range(num_rules):
            slots[rule, : counts[rule]] = np.flatnonzero(rules == rule)
        self._rules = tf.constant(rules, tf.int32)
        self._slots = tf.constant(slots)
        self._membership = tf.constant(np.eye(num_rules, dtype=np.float32)[rules])

    def total(self, per_action: tf.Tensor) -> tf.Tensor:
        return tf.matmul(per_action, self._membership)

    def spread(self, per_rule: tf.Tensor) -> tf.Tensor:
        return tf.gather(per_rule, self._rules, axis=1)

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._rules, action)

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        slots = tf.gather(self._slots, rule)
        return tf.maximum(slots, 0), slots >= 0


class OwnActions:
    """The `ActionGroups` of rows that have candidates of their own."""

    def __init__(self, rules: tf.Tensor, num_rules: int) -> None:
        """
        Args:
          rules: int32 [B, K], the rule of each candidate; that of padding does not matter, because it is masked.
          num_rules: G, the number of rules.
        """
        self._rules, self._num_rules = rules, num_rules

    def total(self, per_action: tf.Tensor) -> tf.Tensor:
        batch = tf.shape(self._rules)[0]
        segments = self._rules + self._num_rules * tf.range(batch)[:, tf.newaxis]
        sums = tf.math.unsorted_segment_sum(per_action, segments, batch * self._num_rules)
        return tf.reshape(sums, [batch, self._num_rules])

    def spread(self, per_rule: tf.Tensor) -> tf.Tensor:
        return tf.gather(per_rule, self._rules, batch_dims=1)

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._rules, action, batch_dims=1)

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        everything = tf.broadcast_to(tf.range(tf.shape(self._rules)[1]), tf.shape(self._rules))
        return everything, self._rules == rule[:, tf.newaxis]


class HierarchicalCategorical:
    """A distribution over rules, then over the locations of the rule, with one mask for acting and learning.

    A rule without a legal location has probability zero, and so has every illegal action.
    """

    def __init__(
        self,
        rule_logits: tf.Tensor,
        location_logits: tf.Tensor,
        mask: tf.Tensor,
        groups: ActionGroups,
        *,
        temperature: float = 1.0,
        location_values: tf.Tensor | None = None,
    ) -> None:
        """
        Args:
          rule_logits: float32 [B, G].
          location_logits: float32 [B, K], of any size; this class squashes them into ± `MAX_LOGIT`.
          mask: bool [B, K], at least one true in each row.
          groups: the rules to which the K actions belong.
          temperature: divides all logits; below 1 sharpens, above 1 flattens.
          location_values: float32 [B, G], the value of each state once a rule is chosen, by the critic of locations;
            None if there is no such critic.
        """
        self._rule_logits, self._location_logits = rule_logits, location_logits
        self._mask, self._groups, self._temperature = mask, groups, temperature
        self._location_values = location_values
        self._locations = squashed(location_logits) / temperature
        self._weights = tf.exp(self._locations) * tf.cast(mask, tf.float32)
        totals = groups.total(self._weights)
        self._rule_mask = totals > 0.0
        # A rule without a legal location would give log 0. The value that replaces it is never used.
        self._log_totals = tf.math.log(tf.where(self._rule_mask, totals, 1.0))
        self._rules = tf.nn.log_softmax(tf.where(self._rule_mask, rule_logits / temperature, MASKED))

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the log-probability of one action in each row: int32 [B] -> float32 [B]; `MASKED` if illegal."""
        rule, location = self.log_probs(action)
        return tf.where(_pick(self._mask, action), rule + location, MASKED)

    def log_probs(self, action: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the log-probabilities of an action's rule, and of its location given the rule: two float32 [B].

        The location of an illegal action has `MASKED`.
        """
        rule = self._groups.rule_of(action)
        location = _pick(self._locations, action) - _pick(self._log_totals, rule)
        return _pick(self._rules, rule), tf.where(_pick(self._mask, action), location, MASKED)

    def location_value(self, action: tf.Tensor) -> tf.Tensor:
        """Returns the value of each state once the rule of an action is chosen: int32 [B] -> float32 [B].

        Raises:
          ValueError: there is no critic of locations.
        """
        if self._location_values is None:
            raise ValueError("this distribution has no values of locations: only the four networks have such a critic.")
        return _pick(self._location_values, self._groups.rule_of(action))

    def all_log_probs(self) -> tf.Tensor:
        """Returns the log-probabilities of all actions, float32 [B, K]; `MASKED` where illegal."""
        joint = self._groups.spread(self._rules - self._log_totals) + self._locations
        return tf.where(self._mask, joint, MASKED)

    def entropies(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the exact entropy of the rule and the expected entropy of the location, in nats: two float32 [B].

        Their sum is the entropy of the joint distribution (chain rule).
        """
        probabilities = tf.exp(self._rules)
        mean_logits = self._groups.total(self._weights * self._locations) / tf.exp(self._log_totals)
        of_location = tf.where(self._rule_mask, self._log_totals - mean_logits, 0.0)
        of_rule = -tf.reduce_sum(probabilities * tf.where(self._rule_mask, self._rules, 0.0), axis=1)
        return of_rule, tf.reduce_sum(probabilities * of_location, axis=1)

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Samples an action for each row, int32 [B], by the Gumbel-max trick; `seed`, int32 [2], decides every draw."""
        rule_seed, location_seed = tf.unstack(tf.random.split(seed, 2))
        rule = _argmax(self._rules + gumbel(tf.shape(self._rules), rule_seed))
        return self._location_of(rule, location_seed)

    def mode(self) -> tf.Tensor:
        """Returns the action of the most likely rule at its most likely location, for each row: int32 [B]."""
        return self._location_of(_argmax(self._rules), None)

    def at_temperature(self, temperature: float) -> HierarchicalCategorical:
        """Returns the distribution of the same logits at another temperature."""
        return HierarchicalCategorical(
            self._rule_logits,
            self._location_logits,
            self._mask,
            self._groups,
            temperature=temperature,
            location_values=self._location_values,
        )

    def _location_of(self, rule: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        actions, present = self._groups.actions_of(rule)
        logits = tf.gather(self._locations, actions, batch_dims=1)
        if seed is not None:
            logits += gumbel(tf.shape(logits), seed)
        legal = present & tf.gather(self._mask, actions, batch_dims=1)
        return _pick(actions, _argmax(tf.where(legal, logits, MASKED)))


def squashed(location_logits: tf.Tensor) -> tf.Tensor:
    """Returns location logits within ± `MAX_LOGIT`."""
    return MAX_LOGIT * tf.tanh(location_logits / MAX_LOGIT)


def log_sites(counts: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the number of sites among so many legal actions of a rule, one of them everywhere."""
    return tf.math.log(tf.maximum(counts - 1.0, 1.0))


def _pick(per_row: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.gather(per_row, index, batch_dims=1)


def _argmax(logits: tf.Tensor) -> tf.Tensor:
    return tf.argmax(logits, axis=1, output_type=tf.int32)


def gumbel(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws Gumbel noise: the largest of logits with it is a draw from their softmax; `seed` is int32 [2]."""
    # The smallest positive float keeps both logarithms finite.
    uniform = tf.random.stateless_uniform(shape, seed, minval=np.finfo(np.float32).tiny)
    return -tf.math.log(-tf.math.log(uniform))


class Table:
    """What a head knows of its table of A actions and NO-OP, with G rules and S sites in all.

    Attributes:
      num_rules, num_sites: G and S.
      rules, sites: int32 [A + 1], the rule and the site of each action.
      groups: the `ActionGroups` of the whole table.
    """

    def __init__(self, rules: np.ndarray, sites: np.ndarray, everywhere: np.ndarray | None) -> None:
        """See `controller.policies.head.make_head`."""
        self.num_rules, self.num_sites = int(rules[-1]) + 1, int(sites[-1]) + 1
        self.rules, self.sites = tf.constant(rules, tf.int32), tf.constant(sites, tf.int32)
        self.groups = SharedActions(rules, self.num_rules)
        is_everywhere = np.zeros(len(rules), bool) if everywhere is None else everywhere
        self._everywhere = tf.constant(is_everywhere, tf.float32) if is_everywhere.any() else None

    def weighed(self, locations: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Adds what makes an everywhere-action weigh as much as all sites of its rule to location logits [B, A + 1].

        Args:
          counts: float32 [B, G], the number of legal actions of each rule.
        """
        if self._everywhere is None:
            return locations
        return locations + self._everywhere * log_sites(tf.gather(counts, self.rules, axis=1))

    def weighed_candidates(self, locations: tf.Tensor, counts: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Does the same for candidates: location logits [B, K] of `actions` int32 [B, K]."""
        if self._everywhere is None:
            return locations
        rules = tf.gather(self.rules, actions)
        return locations + tf.gather(self._everywhere, actions) * log_sites(tf.gather(counts, rules, batch_dims=1))
