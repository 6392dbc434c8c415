"""Batching of graphs of any size for the encoder, and `Embeddings`, which encodes each graph once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from graph_nets import graphs as gn_graphs
from graph_nets import utils_tf

from worldmodel.data.graph_store import GraphLike, StoredGraph
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.signature import FeatureSpec

ENCODE_BATCH = 16  # graphs per call: more gain nothing on a CPU, and the activations of BERT stay in the cache


class Embeddings:
    """Raw embeddings of graphs by hash; every graph is encoded once in the life of this object.

    Args:
      encoder: the encoder that makes them.
      features: the features of the graphs.
      known: embeddings that are known already, float32 [Z] by hash.

    Attributes:
      known: all embeddings that are known by now.
    """

    def __init__(
        self, encoder: GraphEncoder, features: FeatureSpec, known: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._encoder, self._features = encoder, features
        self._encode = tf.function(encoder, input_signature=[graphs_tuple_signature(features)], autograph=False)
        self.known: dict[str, np.ndarray] = dict(known or {})

    def copy(self) -> Embeddings:
        """Returns a copy with the same encoder and the same known graphs; later ones are not shared."""
        return Embeddings(self._encoder, self._features, self.known)

    def __call__(
        self, graphs: Mapping[str, GraphLike], on_encoded: Callable[[int], None] | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the raw embeddings float32 [Z] of graphs by hash; encodes unknown graphs in batches.

        Args:
          on_encoded: called after each batch with the number of all graphs that are known by then.
        """
        new = iter([graph_hash for graph_hash in graphs if graph_hash not in self.known])
        while batch := list(itertools.islice(new, ENCODE_BATCH)):
            raw = self._encode(to_graphs_tuple([graphs[graph_hash] for graph_hash in batch])).numpy()
            self.known.update(zip(batch, raw, strict=True))
            if on_encoded is not None:
                on_encoded(len(self.known))
        return {graph_hash: self.known[graph_hash] for graph_hash in graphs}

    def of_operators(self, graph: GraphLike) -> np.ndarray:
        """Returns the encoder's features of a graph's operators, not of its inputs: float32 [operators, hidden]."""
        is_operator = np.asarray(graph.nodes)[:, 0] != self._features.num_operators - 1
        return self._encoder.embedded(to_graphs_tuple([graph])).nodes.numpy()[is_operator]

    def create_variables(self) -> None:
        """Creates the weights of the encoder that do not exist yet."""
        self._encoder(to_graphs_tuple([_smallest_graph(self._features)]))


def to_graphs_tuple(graphs: Sequence[GraphLike]) -> gn_graphs.GraphsTuple:
    """Batches graphs of any size.

    Args:
      graphs: G graphs with nodes [N_g, F], edges [E_g, D], edge_links [E_g, 2] (sender, receiver).
    Returns:
      nodes float32 [ΣN, F]; edges float32 [2ΣE, D + 1]; senders, receivers int32 [2ΣE]; n_node, n_edge int32 [G];
      globals float32 [G, 1], zero. Every edge enters twice, once in each direction; the last edge column is the
      direction (0: as given, 1: swapped).
    """
    num_nodes = np.array([len(graph.nodes) for graph in graphs], np.int32)
    num_edges = np.array([len(graph.edges) for graph in graphs], np.int32)
    first_node = np.cumsum(num_nodes) - num_nodes
    links = [np.asarray(graph.edge_links) + first for graph, first in zip(graphs, first_node, strict=True)]
    edges = [_with_direction(graph.edges, side) for graph in graphs for side in (0, 1)]
    return gn_graphs.GraphsTuple(
        nodes=tf.constant(np.concatenate([graph.nodes for graph in graphs]), tf.float32),
        edges=tf.constant(np.concatenate(edges), tf.float32),
        senders=tf.constant(np.concatenate([block[:, side] for block in links for side in (0, 1)]), tf.int32),
        receivers=tf.constant(np.concatenate([block[:, side] for block in links for side in (1, 0)]), tf.int32),
        n_node=tf.constant(num_nodes),
        n_edge=tf.constant(2 * num_edges),
        globals=tf.zeros([len(graphs), 1]),
    )


def _with_direction(edges: np.ndarray, swapped: int) -> np.ndarray:
    return np.concatenate([edges, np.full((len(edges), 1), swapped, np.float32)], axis=1)


def graphs_tuple_signature(features: FeatureSpec) -> gn_graphs.GraphsTuple:
    """Returns the `input_signature` entry under which one trace serves graphs of every size and number."""
    example = to_graphs_tuple([_smallest_graph(features)])
    return utils_tf.specs_from_graphs_tuple(
        example, dynamic_num_graphs=True, dynamic_num_nodes=True, dynamic_num_edges=True
    )


def _smallest_graph(features: FeatureSpec) -> StoredGraph:
    nodes, edges = np.zeros((1, len(features.node_features))), np.zeros((1, len(features.edge_features)))
    return StoredGraph(nodes, edges, np.zeros((1, 2), np.int64))
