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
    """π(a | graph) and V(graph) over the candidates that are legal in each graph.

    The head is the latent policy's; its table holds every (rule, location) of the environment, and only the
    candidates' rows of it are used.
    """

    def __init__(self, env: Any, encoder: EncoderConfig, config: PolicyConfig, *, seed: int = 0) -> None:
        """
        Args:
          env: the real environment; it is reset.
          encoder: sizes of the graph network.
          config: sizes of the head.
          seed: of the initial weights.
        """
        super().__init__("graph_policy")
        rules, sites = _all_actions(env.unwrapped.num_rules, env.unwrapped.num_locations)
        tf.random.set_seed(seed)  # the encoder's initialisers draw from TensorFlow's global generator
        self._encoder = GraphEncoder(encoder, FeatureSpec.current())
        self._head = PolicyHead(rules, sites, config, np.random.default_rng(seed))
        # Not calibrated: constants measured before training would not fit an encoder whose weights still move.
        self.distribution_and_value(GraphView(env).reset()[0])  # creates all weights, for checkpoints to be restored

    def __call__(self, observation: GraphObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples one candidate for each graph: (position int32 [S], log-probability [S], value [S])."""
        distribution, value = self.distribution_and_value(observation)
        action = distribution.sample(seed)
        return action, distribution.log_prob(action), value

    def state_key(self, observation: GraphObservation) -> bytes:
        """Equal for equal graphs: observations of one row."""
        parts = (observation.nodes, observation.links, observation.candidates)
        return b"".join(part.flat_values.numpy().tobytes() for part in parts)

    def distribution_and_value(self, observation: GraphObservation) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """The distribution over positions in each graph's candidates, and values float32 [S] in the learner's units."""
        features = tf.concat([self._encoder(observation.graphs()), observation.summary], axis=1)
        candidates = observation.candidates.to_tensor()
        mask = tf.sequence_mask(observation.candidates.row_lengths(), tf.shape(candidates)[1])
        return self._head.over_candidates(features, candidates, mask)


def _all_actions(num_rules: int, num_locations: int) -> tuple[np.ndarray, np.ndarray]:
    """Rules and sites of the table that holds every (rule, location), and NO-OP."""
    rules = np.append(np.repeat(np.arange(num_rules), num_locations), num_rules)
    return rules, np.append(np.tile(np.arange(num_locations), num_rules), num_locations)
