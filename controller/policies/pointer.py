"""`PointerHead`: scores of candidates from the embeddings of the nodes that they rewrite.

Source: Vinyals et al. 2015, "Pointer networks": an output of variable size is chosen by scores of its parts. What a
candidate is, is in the graph around it; there is no table of sites. The weights therefore fit every graph, and what is
learned on one is known on all.
"""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.hierarchical import MASKED, HierarchicalCategorical, OwnActions, log_sites, squashed
from controller.policies.layers import POLICY_GAIN, Gaussian, Orthogonal, Torso, ValueNet
from controller.ppo.config import PolicyConfig

NO_NODES = (
    "policy.head is 'pointer', which scores each rewrite by the embeddings of the nodes that it replaces, and a dream "
    "has no nodes: train it in the real environment (--world real), or set policy.head=hierarchical."
)
"""The message where the pointer is asked to act on latents."""


class PointerHead(snt.Module):
    """A head that scores every candidate by itself; permuted candidates have permuted probabilities.

        score (c)    = w · MLP(n[c], r[rule(c)], f) + p[c]
        rule logit   = ln of the mean of exp(score) over the candidates of the rule + b[rule]
        location     ∝ exp(score)

    n[c] embeds the nodes that c rewrites, r the rule, and f are the features of the state. p is that of
    `HierarchicalHead`: everywhere-actions weigh as much as all sites of their rule. The mean, not the sum, makes the
    untrained policy uniform over rules, then over locations, as the other heads are: a softmax over all candidates
    would drown NO-OP, and rules with few sites, in those with many. The value also reads the mean of the candidates.
    """

    reads_nodes = True
    has_location_critic = False

    def __init__(
        self,
        rules: np.ndarray,
        config: PolicyConfig,
        rng: np.random.Generator,
        everywhere: np.ndarray | None = None,
    ) -> None:
        """See `controller.policies.head.make_head`; there are no weights for sites."""
        super().__init__("pointer")
        is_everywhere = np.zeros(len(rules), bool) if everywhere is None else everywhere
        self._everywhere = tf.constant(is_everywhere, tf.float32)
        self._num_rules, self._rules_of_actions = int(rules[-1]) + 1, tf.constant(rules, tf.int32)
        self._rules = tf.Variable(Gaussian(rng, 1.0)((self._num_rules, config.width), tf.float32), name="rules")
        bias = np.append(np.zeros(self._num_rules - 1), config.noop_logit)
        self._rule_bias = tf.Variable(bias, dtype=tf.float32, name="b")
        self._state = snt.Linear(config.width, w_init=Orthogonal(rng), name="state")
        self._candidates = Torso(config.torso, rng, name="candidates")
        self._score = snt.Linear(1, with_bias=False, w_init=Orthogonal(rng, POLICY_GAIN), name="score")
        self._value = ValueNet(config.torso, rng, name="value")

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Raises ValueError: latents have no nodes."""
        raise ValueError(NO_NODES)

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, nodes: tf.Tensor | None = None
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        if nodes is None:
            raise ValueError(NO_NODES)
        rules, legal = tf.gather(self._rules_of_actions, actions), tf.cast(mask, tf.float32)
        groups = OwnActions(rules, self._num_rules)
        state = tf.repeat(self._state(features)[:, tf.newaxis], tf.shape(actions)[1], axis=1)
        hidden = self._candidates(tf.concat([nodes, tf.gather(self._rules, rules), state], axis=2))
        counts = groups.total(legal)
        prior = tf.gather(self._everywhere, actions) * log_sites(tf.gather(counts, rules, batch_dims=1))
        scores = tf.squeeze(self._score(hidden), axis=2) + prior
        rule_logits = _log_total(groups, scores, legal) - _log_total(groups, prior, legal) + self._rule_bias
        number = tf.reduce_sum(legal, axis=1, keepdims=True)
        mean = tf.einsum("bk,bkd->bd", legal, hidden) / tf.maximum(number, 1.0)  # padding has no candidates
        value = self._value(tf.concat([features, mean, tf.math.log1p(number)], axis=1))
        return HierarchicalCategorical(rule_logits, scores, mask, groups), value


def _log_total(groups: OwnActions, logits: tf.Tensor, legal: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the sum of exp(logit) over each rule's legal actions: [B, K] -> [B, G].

    The logits are those of `HierarchicalCategorical`, within its bounds. A rule without legal actions has `MASKED`.
    """
    totals = groups.total(tf.exp(squashed(logits)) * legal)
    return tf.where(totals > 0.0, tf.math.log(tf.where(totals > 0.0, totals, 1.0)), MASKED)
