"""Batching graph observations into a `graph_nets.graphs.GraphsTuple`.

Every edge enters twice, once in each direction; the last edge column tells which (0 as given, 1 swapped). The first
column of nodes and edges is a category (operator, dtype), the rest are floats of order 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from graph_nets import graphs as gn_graphs
from graph_nets import utils_tf

from worldmodel.data.graph_store import GraphLike, StoredGraph

TIME, LOG_TIME_UNIT = "log_time", 5.0
"""The feature of nodes that is ln(1 + time in microseconds) in this unit, see `environment.substitution.features`."""


@dataclass(frozen=True)
class FeatureSpec:
    """What the columns of a graph observation mean; a model is only good for the features it was trained with.

    Attributes:
      node_features, edge_features: column names; column 0 is the operator and the dtype id.
      num_operators, num_dtypes: how many different ids there are.
      version: of what the columns mean.
    """

    node_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    num_operators: int
    num_dtypes: int
    version: int = 1

    @classmethod
    def current(cls) -> FeatureSpec:
        """The features of this version of `environment`."""
        from environment.substitution import features

        return cls(
            tuple(features.NODE_FEATURES),
            tuple(features.EDGE_FEATURES),
            features.NUM_OPERATORS,
            features.NUM_DTYPES,
            features.FEATURES_VERSION,
        )


def to_graphs_tuple(graphs: Sequence[GraphLike]) -> gn_graphs.GraphsTuple:
    """Batches graphs of any sizes.

    Args:
      graphs: G graphs of nodes [N_g, F], edges [E_g, D], edge_links [E_g, 2] (sender, receiver).
    Returns:
      nodes float32 [ΣN, F]; edges float32 [2ΣE, D + 1]; senders, receivers int32 [2ΣE]; n_node, n_edge int32 [G];
      globals float32 [G, 1], zero.
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
    """The `input_signature` entry under which one trace serves graphs of every size and number."""
    nodes, edges = np.zeros((1, len(features.node_features))), np.zeros((1, len(features.edge_features)))
    example = to_graphs_tuple([StoredGraph(nodes, edges, np.zeros((1, 2), np.int64))])
    return utils_tf.specs_from_graphs_tuple(
        example, dynamic_num_graphs=True, dynamic_num_nodes=True, dynamic_num_edges=True
    )
