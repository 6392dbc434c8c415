"""`GraphPolicy`: policy and value on the real environment's graphs, with an encoder trained end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.categorical import sampled
from controller.policies.head import considered, make_head
from controller.policies.hierarchical import HierarchicalCategorical
from controller.ppo.config import PolicyConfig
from controller.worlds.graph_view import GraphObservation, GraphView
from worldmodel.config import EncoderConfig
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.networks.graph_layers import segment_max, segment_mean
from worldmodel.signature import FeatureSpec


class GraphPolicy(snt.Module):
    """A policy π(a | graph) over the legal candidates of each graph, and a value V(graph).

    The head's table holds every (rule, location) pair of the environment, but only the rows of the candidates are used.
    With the pointer as its head, no weight belongs to a graph: a policy over another graph and the same rules can take
    all of them.

    Attributes:
      reach: the number of edges over which nodes see, if nodes that see the same are embedded together; else None.
    """

    def __init__(self, env: Any, encoder: EncoderConfig, config: PolicyConfig, *, seed: int = 0) -> None:
        """
        Args:
          env: the real environment; it is reset.
          encoder: sizes of the graph network.
          config: sizes of the head.
          seed: the seed of the initial weights.
        """
        super().__init__("graph_policy")
        rules, sites = _all_actions(env.unwrapped.num_rules, env.unwrapped.num_places)
        everywhere = sites == env.unwrapped.num_locations  # of rules; that of NO-OP is another one
        everywhere[-1] = False
        tf.random.set_seed(seed)  # the encoder's initialisers draw from TensorFlow's global generator
        self.reach = None if encoder.has_globals else encoder.rounds
        self._encoder = GraphEncoder(encoder, FeatureSpec.current())
        self._head = make_head(rules, sites, config, np.random.default_rng(seed), everywhere)
        self._considered = considered(config, everywhere)
        # The encoder is not calibrated: constants measured before training would not fit once its weights change.
        # This call creates all weights, so that checkpoints can be restored.
        self.distribution_and_value(self.view(env).reset()[0])

    def __call__(self, observation: GraphObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples one candidate for each graph; returns (position int32 [S], log-probability [S], value [S])."""
        return sampled(self.distribution_and_value(observation), seed)

    def view(self, env: Any) -> GraphView:
        """Returns an environment as the policy sees it."""
        return GraphView(env, self.reach)

    @property
    def has_location_critic(self) -> bool:
        return self._head.has_location_critic

    def distribution_and_value(self, observation: GraphObservation) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy and the value of each graph.

        Returns:
          (distribution over the positions of each graph's candidates, values float32 [S] in the learner's units).
        """
        colours = None if self.reach is None else observation.colours.flat_values
        embedding, nodes = self._encoder.with_nodes(observation.graphs(), colours=colours)
        features = tf.concat([embedding, observation.summary], axis=1)
        candidates = observation.candidates.to_tensor()
        mask = tf.sequence_mask(observation.candidates.row_lengths(), tf.shape(candidates)[1])
        if self._considered is not None:
            mask &= tf.gather(self._considered, candidates)
        rewritten = _pooled(observation, nodes) if self._head.reads_nodes else None
        return self._head.over_candidates(features, candidates, mask, rewritten)


def _pooled(observation: GraphObservation, nodes: tf.Tensor) -> tf.Tensor:
    """Returns the mean and the maximum of the nodes that every candidate rewrites: float32 [S, K, 2 · hidden].

    NO-OP, which rewrites none, and padding have 0.

    Args:
      nodes: float32 [nodes of all graphs, hidden].
    """
    graph, pairs = observation.rewritten.value_rowids(), tf.cast(observation.rewritten.flat_values, tf.int64)
    candidate = pairs[:, 0] + tf.gather(observation.candidates.row_starts(), graph)
    rows = tf.gather(nodes, pairs[:, 1] + tf.gather(observation.nodes.row_starts(), graph))
    owners, number = tf.cast(candidate, tf.int32), tf.size(observation.candidates.flat_values)
    both = tf.concat([segment_mean(rows, owners, number), segment_max(rows, owners, number)], axis=1)
    return observation.candidates.with_flat_values(both).to_tensor()


def _all_actions(num_rules: int, num_places: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rules and the sites of the table that holds every (rule, location), and NO-OP."""
    rules = np.append(np.repeat(np.arange(num_rules), num_places), num_rules)
    return rules, np.append(np.tile(np.arange(num_places), num_rules), num_places)
