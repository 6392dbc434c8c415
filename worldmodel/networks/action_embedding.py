"""Learned codes of actions, from their rule and their site; networks never see raw ids."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class ActionEmbedding(snt.Module):
    """Embeddings of all actions from learned ones of their rule and site.

    Args:
      num_rules, num_sites: rows of the learned tables; NO-OP counts as a rule.
      rule_width, site_width, width: of the learned embeddings, and of the result.
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
        """[num_sites, site_width]."""
        return self._sites.embeddings

    def __call__(self, rules: tf.Tensor, sites: tf.Tensor, more: tf.Tensor | None = None) -> tf.Tensor:
        """[A + 1, width] of actions whose rows are `rules` and `sites`, int32 [A + 1], with `more` [A + 1, any]."""
        known = [self._rules(rules), self._sites(sites)]
        return self._mix(tf.concat(known if more is None else [*known, more], axis=-1))


class GraphActionEmbedding(snt.Module):
    """`ActionEmbedding` with the start graph in it: the whole graph, and its node at each action's site."""

    def __init__(self, actions: ActionEmbedding, width: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._actions = actions
        self._node, self._start = snt.Linear(width), snt.Linear(width)

    def __call__(self, rules: tf.Tensor, sites: tf.Tensor, nodes: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        """[A + 1, width of the actions' embeddings].

        Args:
          rules, sites: int32 [A + 1], rows of the learned tables.
          nodes: float32 [A + 1, any], the node at each action's site; start: float32 [1, any], the whole graph.
        """
        nodes = tf.nn.relu(self._node(nodes))
        start = tf.repeat(tf.nn.relu(self._start(start)), tf.shape(nodes)[0], axis=0)
        return self._actions(rules, sites, tf.concat([nodes, start], axis=-1))
