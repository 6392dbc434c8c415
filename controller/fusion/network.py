"""The network that predicts advantages of fusion decisions: GraphSAGE of graph_nets blocks."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf
from graph_nets import blocks
from graph_nets import graphs as gn_graphs

from environment.fusion.graphs import NODE_COLUMNS
from taso_ext import NUM_FEATURE_OPERATORS

OPERATOR_WIDTH = 16


class SageLayer(snt.Module):
    """A layer of GraphSAGE with the mean aggregator, h' = relu(W · [h, mean of producers, mean of readers]).

    Producers and readers have means of their own, because a decision acts on readers. As elsewhere here, a layer adds
    to its input and is normalised; the paper normalises to length 1 and adds nothing.

    Args:
      hidden: width of the nodes, in and out.
    Source: Hamilton et al. 2017, "Inductive representation learning on large graphs", algorithm 1.
    """

    def __init__(self, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        mean = tf.math.unsorted_segment_mean
        self._of_producers = blocks.ReceivedEdgesToNodesAggregator(reducer=mean)
        self._of_readers = blocks.SentEdgesToNodesAggregator(reducer=mean)
        self._update = snt.Linear(hidden)
        self._norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
        producers = self._of_producers(graph.replace(edges=blocks.broadcast_sender_nodes_to_edges(graph)))
        readers = self._of_readers(graph.replace(edges=blocks.broadcast_receiver_nodes_to_edges(graph)))
        update = self._update(tf.concat([graph.nodes, producers, readers], axis=-1))
        return graph.replace(nodes=self._norm(graph.nodes + tf.nn.relu(update)))


class AdvantageNetwork(snt.Module):
    """Predicts a number for every tensor of a graph under a configuration, such as the label of its advantage.

    Args:
      hidden: width of the nodes.
      layers: number of layers, which is how many edges away a tensor still has an influence.
      outputs: numbers for each tensor.
    """

    def __init__(self, hidden: int, layers: int, outputs: int = 1, name: str | None = None) -> None:
        super().__init__(name=name)
        self._operators = snt.Embed(NUM_FEATURE_OPERATORS, OPERATOR_WIDTH)
        self._encoder = snt.nets.MLP([hidden, hidden], activate_final=True)
        self._layers = [SageLayer(hidden) for _ in range(layers)]
        self._head = snt.nets.MLP([hidden, outputs])

    def embeddings(self, nodes: tf.Tensor, links: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
        """Returns what the layers make of each tensor: [N, hidden]. See `__call__`."""
        operators = self._operators(tf.cast(nodes[:, 0], tf.int32))
        encoded = self._encoder(tf.concat([operators, nodes[:, 1:], bits[:, tf.newaxis]], axis=-1))
        count = tf.shape(nodes)[:1]
        graph = gn_graphs.GraphsTuple(
            nodes=encoded,
            edges=None,
            senders=links[:, 0],
            receivers=links[:, 1],
            globals=None,
            n_node=count,
            n_edge=tf.shape(links)[:1],
        )
        for layer in self._layers:
            graph = layer(graph)
        return graph.nodes

    def __call__(self, nodes: tf.Tensor, links: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
        """Returns the prediction of each tensor: [N, outputs].

        Args:
          nodes: float32 [N, len(NODE_COLUMNS)]; several graphs may be concatenated.
          links: int32 [E, 2], producer and reader.
          bits: float32 [N], the configuration.
        """
        tf.debugging.assert_equal(tf.shape(nodes)[1], len(NODE_COLUMNS))
        return self._head(self.embeddings(nodes, links, bits))
