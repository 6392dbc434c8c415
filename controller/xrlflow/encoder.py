"""`CandidateEncoder`: embeddings of the present graph and of all its candidates, by one pass over one large graph.

Nodes see along edges only, from producers to consumers, so that the embeddings of a graph's nodes are those of the
present graph except near what differs. Nodes that see the same, in whichever graph of whichever state, have the same
colour, and the encoder computes one embedding for all of them, and one for all candidates of a kind. What comes out for
a candidate is what encoding it by itself gives.
"""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from controller.worlds.candidate_view import CandidateObservation
from controller.xrlflow.config import XrlflowConfig
from taso_ext._core import NUM_FEATURE_OPERATORS
from worldmodel.networks.graph_layers import GraphAttention, segment_sum
from worldmodel.networks.merging import merged

EXTENT_SCALE = 4096.0
"""The divisor of extents in observations."""


class EncodedGraphs(NamedTuple):
    """The embeddings of the K kinds of graphs of S states, those of a state one after another, the present graph first.

    Attributes:
      embedding: float32 [K, embedding], of the graphs of each kind.
      change: float32 [K, width], the sum of their nodes' embeddings less that of the present graph.
      state: int32 [K], the row of their state.
      kind: int32 [G], the row of the kind of each graph.
    """

    embedding: tf.Tensor
    change: tf.Tensor
    state: tf.Tensor
    kind: tf.Tensor


class CandidateEncoder(snt.Module):
    """An update of every node from its operator and its edges, graph attention, and an update of every graph.

    Weights are no nodes here; a node reads the extents of its weights beside those of its edges.

    Source: He et al. 2023, section 3.3.
    """

    def __init__(self, config: XrlflowConfig, name: str | None = None) -> None:
        super().__init__(name=name)
        self._log_cost, self._log_extents, self._pool = config.log_cost, config.log_extents, config.pool
        draw = snt.initializers.TruncatedNormal(stddev=1.0)
        self._operators = tf.Variable(draw([NUM_FEATURE_OPERATORS, config.width], tf.float32), name="operators")
        self._of_node = snt.Linear(config.width, name="node")
        self._layers = [GraphAttention(config.width, 1, reads_edges=False) for _ in range(config.layers)]
        self._of_graph = snt.Linear(config.embedding, name="graph")

    def __call__(self, seen: CandidateObservation) -> EncodedGraphs:
        first_node = tf.cast(seen.nodes.row_starts(), tf.int32)
        first_kind = tf.cast(seen.kinds.row_starts(), tf.int32)
        embeddings, stands = self._embeddings(seen, first_node)
        states = tf.cast(seen.kinds.value_rowids(), tf.int32)
        number = tf.size(states)
        parts, of_parts = seen.parts.flat_values, seen.parts.value_rowids()
        kinds = parts[:, 0] + tf.gather(first_kind, of_parts)
        nodes = tf.gather(stands, parts[:, 1] + tf.gather(first_node, of_parts))
        counts = tf.cast(seen.counts.flat_values, tf.float32)
        shape = tf.cast(tf.stack([number, tf.shape(embeddings)[0]]), tf.int64)
        by_colour = tf.SparseTensor(tf.cast(tf.stack([kinds, nodes], axis=1), tf.int64), counts, shape)
        counted = tf.concat([embeddings, tf.ones_like(embeddings[:, :1])], axis=1)
        sums = tf.sparse.sparse_dense_matmul(by_colour, counted)
        present = tf.gather(first_kind, states)
        change = tf.where((present == tf.range(number))[:, tf.newaxis], 0.0, sums)
        total, size = tf.split(tf.gather(sums, present) + change, [embeddings.shape[1], 1], axis=1)
        pooled = total if self._pool == "sum" else total / tf.maximum(size, 1.0)  # the rows of padding have no nodes
        kind = seen.kind.flat_values + tf.gather(first_kind, seen.kind.value_rowids())
        return EncodedGraphs(self._of_graph(pooled), change[:, :-1], states, kind)

    def _extents(self, over_scale: tf.Tensor) -> tf.Tensor:
        return tf.math.log1p(EXTENT_SCALE * over_scale) / 8.0 if self._log_extents else over_scale

    def _embeddings(self, seen: CandidateObservation, first_node: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the embeddings of all colours [colours, width], and the row there of each node: int32 [nodes].

        Args:
          first_node: int32 [S], the number of nodes of the states before each.
        """
        links = seen.links.flat_values + tf.gather(first_node, seen.links.value_rowids())[:, tf.newaxis]
        everything = gn_graphs.GraphsTuple(
            nodes=seen.nodes.flat_values,
            edges=seen.edges.flat_values,
            senders=links[:, 0],
            receivers=links[:, 1],
            globals=None,
            n_node=tf.cast(seen.nodes.row_lengths(), tf.int32),
            n_edge=tf.cast(seen.links.row_lengths(), tf.int32),
        )
        graph, stands = merged(everything, seen.colours.flat_values)
        operators, log_cost, weights = tf.split(graph.nodes, [1, 1, -1], axis=1)
        of_edges = segment_sum(self._extents(graph.edges), graph.receivers, graph.n_node[0])
        read = [of_edges, self._extents(weights), *([log_cost] if self._log_cost else [])]
        embedded = tf.gather(self._operators, tf.cast(operators[:, 0], tf.int32))
        nodes = embedded + self._of_node(tf.concat(read, axis=1))
        graph = graph.replace(nodes=tf.nn.leaky_relu(nodes), edges=None)
        for layer in self._layers:
            graph = graph.replace(nodes=tf.nn.leaky_relu(layer(graph)))
        return graph.nodes, stands
