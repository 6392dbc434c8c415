"""`PolicyHead`: the deciding part of every policy, whatever the source of its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.hierarchical import HierarchicalCategorical, OwnActions, SharedActions
from controller.ppo.config import PolicyConfig


class Orthogonal(snt.initializers.Initializer):
    """An initialiser of orthogonal weights from a NumPy generator.

    Because of this generator, equal seeds give equal networks, whatever was built before.

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
    """An initialiser of independent normal weights from a NumPy generator."""

    def __init__(self, rng: np.random.Generator, stddev: float) -> None:
        self._rng, self._stddev = rng, stddev

    def __call__(self, shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
        return tf.constant(self._stddev * self._rng.standard_normal([int(size) for size in shape]), dtype)


class Torso(snt.Module):
    """A stack of layers, each Linear, LayerNorm and swish: float32 [B, any] -> [B, sizes[-1]]."""

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


POLICY_GAIN = 0.01
"""Gain of the last policy layers, so small that the untrained policy is nearly uniform over rules, then over locations.

Source: Andrychowicz et al. 2021, "What matters in on-policy RL", section 3.2.
"""


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


class PolicyHead(snt.Module):
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

    def __init__(
        self,
        rules: np.ndarray,
        sites: np.ndarray,
        config: PolicyConfig,
        rng: np.random.Generator,
        everywhere: np.ndarray | None = None,
    ) -> None:
        """
        Args:
          rules, sites: int [A + 1], the rule and the site of each action, numbered from 0 without gaps. The last action
            is NO-OP: rule R at site S.
          config: the sizes of the layers and the initial logit of NO-OP.
          rng: the generator of the initial weights.
          everywhere: bool [A + 1], the everywhere-actions; None if there are none.
        """
        super().__init__("policy_head")
        is_everywhere = np.zeros(len(rules), bool) if everywhere is None else everywhere
        self._everywhere = tf.constant(is_everywhere, tf.float32) if is_everywhere.any() else None
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
        # 0.1 stands for 1 / √(legal actions), which needs no count: some hundred are legal at once at BERT's size.
        self._summands = tf.Variable(Gaussian(rng, 0.1)((len(rules), config.mask_width), tf.float32), name="summands")

    @property
    def table_weights(self) -> TableWeights:
        """The weights that belong to the table; they exist after the first call of the head."""
        inputs = self._torso.first_weights, self._value.first_weights
        rules = self._rules.w, self._rule_bias, self._gates
        return TableWeights(inputs, *rules, self._sites, self._bias, self._summands)

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy over the whole table, which all rows share, and the value.

        Args:
          features: float32 [B, F], the features of each state.
          mask: bool [B, A + 1], true for legal actions.
        Returns:
          (distribution over indices of the table, value float32 [B]).
        """
        legal = tf.cast(mask, tf.float32)
        counts = self._shared.total(legal)
        inputs = self._inputs(features, counts, tf.matmul(legal, self._summands))
        hidden = self._torso(inputs)
        locations = tf.matmul(self._query(hidden) * self._scale, self._keys(), transpose_b=True) + self._bias
        if self._everywhere is not None:
            locations += self._everywhere * _log_sites(tf.gather(counts, self._rules_of_actions, axis=1))
        return HierarchicalCategorical(self._rule_logits(hidden), locations, mask, self._shared), self._value(inputs)

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy over each row's own candidates, and the value.

        Args:
          features: float32 [B, F], the features of each state.
          actions: int32 [B, K], indices of the table; any index where masked.
          mask: bool [B, K], false for padding.
        Returns:
          (distribution over positions in `actions`, value float32 [B]).
        """
        legal = tf.cast(mask, tf.float32)
        rules = tf.gather(self._rules_of_actions, actions)
        groups = OwnActions(rules, self._num_rules)
        counts = groups.total(legal)
        summands = tf.einsum("bk,bkm->bm", legal, tf.gather(self._summands, actions))
        inputs = self._inputs(features, counts, summands)
        hidden = self._torso(inputs)
        keys = tf.gather(self._keys(), actions)
        locations = tf.einsum("bd,bkd->bk", self._query(hidden) * self._scale, keys) + tf.gather(self._bias, actions)
        if self._everywhere is not None:
            locations += tf.gather(self._everywhere, actions) * _log_sites(tf.gather(counts, rules, batch_dims=1))
        return HierarchicalCategorical(self._rule_logits(hidden), locations, mask, groups), self._value(inputs)

    def _inputs(self, features: tf.Tensor, counts: tf.Tensor, summary: tf.Tensor) -> tf.Tensor:
        return tf.concat([features, tf.math.log1p(counts), summary], axis=1)

    def _rule_logits(self, hidden: tf.Tensor) -> tf.Tensor:
        return self._rules(hidden) + self._rule_bias

    def _keys(self) -> tf.Tensor:
        """Returns g[rule(a)] ⊙ e[site(a)] of each action, float32 [A + 1, d]."""
        return tf.gather(self._gates, self._rules_of_actions) * tf.gather(self._sites, self._sites_of_actions)


def _log_sites(counts: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the number of sites among so many legal actions of a rule, one of them everywhere."""
    return tf.math.log(tf.maximum(counts - 1.0, 1.0))
