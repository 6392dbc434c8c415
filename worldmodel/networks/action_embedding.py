"""Learned embeddings of actions, made from their rule and their site; networks never see raw ids."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class ActionEmbedding(snt.Module):
    """Embeddings of actions, made from the learned embeddings of their rule and their site.

    Args:
      num_rules, num_sites: rows of the learned tables; NO-OP counts as a rule.
      rule_width, site_width, width: widths of the two learned embeddings and of the result.
    """

    def __init__(
        self, num_rules: int, num_sites: int, rule_width: int, site_width: int, width: int, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        small = snt.initializers.TruncatedNormal(stddev=0.3)
        self._rules = snt.Embed(num_rules, rule_width, initializer=small)
        self._sites = snt.Embed(num_sites, site_width, initializer=small)
        self._mix = snt.nets.MLP([width, width])

    @property
    def site_table(self) -> tf.Variable:
        """The learned embeddings of the sites: [num_sites, site_width]."""
        return self._sites.embeddings

    def __call__(self, rules: tf.Tensor, sites: tf.Tensor, more: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the embeddings of all actions: [A + 1, width].

        Args:
          rules, sites: int32 [A + 1], rows of the learned tables.
          more: float32 [A + 1, any], further features of each action.
        """
        known = [self._rules(rules), self._sites(sites)]
        return self._mix(tf.concat(known if more is None else [*known, more], axis=-1))


class GraphActionEmbedding(snt.Module):
    """An `ActionEmbedding` that also reads the start graph: the whole graph, and its node at each action's site."""

    def __init__(self, actions: ActionEmbedding, width: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._actions = actions
        self._node, self._start = snt.Linear(width), snt.Linear(width)

    def __call__(self, rules: tf.Tensor, sites: tf.Tensor, nodes: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of all actions: [A + 1, width of `ActionEmbedding`].

        Args:
          rules, sites: int32 [A + 1], rows of the learned tables.
          nodes: float32 [A + 1, any], the node at each action's site; start: float32 [1, any], the whole graph.
        """
        nodes = tf.nn.relu(self._node(nodes))
        start = tf.repeat(tf.nn.relu(self._start(start)), tf.shape(nodes)[0], axis=0)
        return self._actions(rules, sites, tf.concat([nodes, start], axis=-1))
