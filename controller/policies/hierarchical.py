"""The policy's distribution over actions: a rule first, then one of that rule's legal locations.

    log π(a | s) = log π(rule(a) | s) + log π(location(a) | rule(a), s)

It is written once for both worlds. What differs is only how the K actions of a row are grouped by rule:
`SharedActions` (one table for all rows, in the dream) or `OwnActions` (each row its own candidates, in the real world).
Nothing of size [batch, actions, rules] or [batch, actions, embedding] is built.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

MASKED = -1e9
"""Logit of what is illegal. Finite, because -inf turns into NaN in the gradients of where and log-softmax."""

MAX_LOGIT = 10.0
"""Location logits stay within ± this: keeps exploration alive, and lets exponentials be summed without a maximum first.

Source: Bello et al. 2017 (logit clipping of pointer networks, C = 10).
"""


class ActionGroups(Protocol):
    """K actions a row, grouped by G rules (NO-OP is a rule of its own with one location)."""

    def total(self, per_action: tf.Tensor) -> tf.Tensor:
        """Sums over each rule's actions: [B, K] -> [B, G]."""
        ...

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        """Rule of one action a row: int32 [B] -> int32 [B]."""
        ...

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The actions of one rule a row: int32 [B] -> (action int32 [B, n], really there bool [B, n])."""
        ...


class SharedActions:
    """`ActionGroups` of one table of actions that all rows share."""

    def __init__(self, rules: np.ndarray, num_rules: int) -> None:
        """
        Args:
          rules: int [K], each action's rule in [0, num_rules).
          num_rules: G.
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

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._rules, action)

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        slots = tf.gather(self._slots, rule)
        return tf.maximum(slots, 0), slots >= 0


class OwnActions:
    """`ActionGroups` where every row has candidates of its own."""

    def __init__(self, rules: tf.Tensor, num_rules: int) -> None:
        """
        Args:
          rules: int32 [B, K], each candidate's rule; the padding's does not matter, it is masked.
          num_rules: G.
        """
        self._rules, self._num_rules = rules, num_rules

    def total(self, per_action: tf.Tensor) -> tf.Tensor:
        batch = tf.shape(self._rules)[0]
        segments = self._rules + self._num_rules * tf.range(batch)[:, tf.newaxis]
        sums = tf.math.unsorted_segment_sum(per_action, segments, batch * self._num_rules)
        return tf.reshape(sums, [batch, self._num_rules])

    def rule_of(self, action: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._rules, action, batch_dims=1)

    def actions_of(self, rule: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        everything = tf.broadcast_to(tf.range(tf.shape(self._rules)[1]), tf.shape(self._rules))
        return everything, self._rules == rule[:, tf.newaxis]


class HierarchicalCategorical:
    """Rule, then location, under one mask that acting and updating share.

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
    ) -> None:
        """
        Args:
          rule_logits: float32 [B, G].
          location_logits: float32 [B, K], any size; they are squashed into ± `MAX_LOGIT` here.
          mask: bool [B, K], at least one true in each row.
          groups: which rule each of the K actions belongs to.
          temperature: divides all logits; below 1 sharpens, above 1 flattens.
        """
        self._rule_logits, self._location_logits = rule_logits, location_logits
        self._mask, self._groups, self._temperature = mask, groups, temperature
        self._locations = MAX_LOGIT * tf.tanh(location_logits / MAX_LOGIT) / temperature
        self._weights = tf.exp(self._locations) * tf.cast(mask, tf.float32)
        totals = groups.total(self._weights)
        self._rule_mask = totals > 0.0
        # A rule without a legal location would give log 0; what stands there instead is never used.
        self._log_totals = tf.math.log(tf.where(self._rule_mask, totals, 1.0))
        self._rules = tf.nn.log_softmax(tf.where(self._rule_mask, rule_logits / temperature, MASKED))

    def log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Log-probability of one action a row: int32 [B] -> float32 [B]; `MASKED` for an illegal one."""
        rule = self._groups.rule_of(action)
        location = _pick(self._locations, action) - _pick(self._log_totals, rule)
        return tf.where(_pick(self._mask, action), _pick(self._rules, rule) + location, MASKED)

    def entropies(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Exact entropy in nats, as the part of the rule and the expected part of the location: two float32 [B].

        Their sum is the entropy of the joint distribution (chain rule).
        """
        probabilities = tf.exp(self._rules)
        mean_logits = self._groups.total(self._weights * self._locations) / tf.exp(self._log_totals)
        of_location = tf.where(self._rule_mask, self._log_totals - mean_logits, 0.0)
        of_rule = -tf.reduce_sum(probabilities * tf.where(self._rule_mask, self._rules, 0.0), axis=1)
        return of_rule, tf.reduce_sum(probabilities * of_location, axis=1)

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """One action a row, int32 [B], by the Gumbel-max trick; every draw is a function of `seed`, int32 [2]."""
        rule_seed, location_seed = tf.unstack(tf.random.split(seed, 2))
        rule = _argmax(self._rules + _gumbel(tf.shape(self._rules), rule_seed))
        return self._location_of(rule, location_seed)

    def mode(self) -> tf.Tensor:
        """The most likely rule, then its most likely location: int32 [B]."""
        return self._location_of(_argmax(self._rules), None)

    def at_temperature(self, temperature: float) -> HierarchicalCategorical:
        """The same logits divided by another temperature."""
        return HierarchicalCategorical(
            self._rule_logits, self._location_logits, self._mask, self._groups, temperature=temperature
        )

    def without(self, actions: tf.Tensor) -> HierarchicalCategorical:
        """The same logits with some actions, int32 [n], made illegal in every row; one must stay legal."""
        excluded = tf.reduce_any(tf.one_hot(actions, tf.shape(self._mask)[1], on_value=True, off_value=False), axis=0)
        return HierarchicalCategorical(
            self._rule_logits,
            self._location_logits,
            self._mask & ~excluded,
            self._groups,
            temperature=self._temperature,
        )

    def _location_of(self, rule: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        actions, present = self._groups.actions_of(rule)
        logits = tf.gather(self._locations, actions, batch_dims=1)
        if seed is not None:
            logits += _gumbel(tf.shape(logits), seed)
        legal = present & tf.gather(self._mask, actions, batch_dims=1)
        return _pick(actions, _argmax(tf.where(legal, logits, MASKED)))


def _pick(per_row: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.gather(per_row, index, batch_dims=1)


def _argmax(logits: tf.Tensor) -> tf.Tensor:
    return tf.argmax(logits, axis=1, output_type=tf.int32)


def _gumbel(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # The smallest positive float keeps both logarithms finite.
    uniform = tf.random.stateless_uniform(shape, seed, minval=np.finfo(np.float32).tiny)
    return -tf.math.log(-tf.math.log(uniform))
