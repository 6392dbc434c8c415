"""`GraphPolicy`: policy and value on the real environment's graphs, with an encoder trained end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.head import PolicyHead
from controller.policies.hierarchical import HierarchicalCategorical
from controller.ppo.config import PolicyConfig
from controller.worlds.graph_view import GraphObservation, GraphView
from worldmodel.config import EncoderConfig
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.signature import FeatureSpec


class GraphPolicy(snt.Module):
    """A policy π(a | graph) over the legal candidates of each graph, and a value V(graph).

    The head is that of the latent policy. Its table holds every (rule, location) pair of the environment, but only the
    rows of the candidates are used.
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
        self._encoder = GraphEncoder(encoder, FeatureSpec.current())
        self._head = PolicyHead(rules, sites, config, np.random.default_rng(seed), everywhere)
        # The encoder is not calibrated: constants measured before training would not fit once its weights change.
        # This call creates all weights, so that checkpoints can be restored.
        self.distribution_and_value(GraphView(env).reset()[0])

    def __call__(self, observation: GraphObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples one candidate for each graph; returns (position int32 [S], log-probability [S], value [S])."""
        distribution, value = self.distribution_and_value(observation)
        action = distribution.sample(seed)
        return action, distribution.log_prob(action), value

    def distribution_and_value(self, observation: GraphObservation) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy and the value of each graph.

        Returns:
          (distribution over the positions of each graph's candidates, values float32 [S] in the learner's units).
        """
        features = tf.concat([self._encoder(observation.graphs()), observation.summary], axis=1)
        candidates = observation.candidates.to_tensor()
        mask = tf.sequence_mask(observation.candidates.row_lengths(), tf.shape(candidates)[1])
        return self._head.over_candidates(features, candidates, mask)


def _all_actions(num_rules: int, num_places: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rules and the sites of the table that holds every (rule, location), and NO-OP."""
    rules = np.append(np.repeat(np.arange(num_rules), num_places), num_rules)
    return rules, np.append(np.tile(np.arange(num_places), num_rules), num_places)
