from __future__ import annotations

import numpy as np
import tensorflow as tf
from graph_nets import utils_np, utils_tf

from tests.worldmodel.toy_world import FEATURES, ToyEnv
from worldmodel.encoder.embedding import graphs_tuple_signature, to_graphs_tuple

GRAPHS = [ToyEnv(length).graph() for length in (1, 5, 3)]


def test_every_edge_enters_in_both_directions() -> None:
    batch = utils_np.graphs_tuple_to_data_dicts(to_graphs_tuple(GRAPHS).map(lambda field: field.numpy()))
    for graph, entry in zip(GRAPHS, batch, strict=True):
        count = len(graph.edges)
        np.testing.assert_array_equal(entry["nodes"], graph.nodes)
        np.testing.assert_array_equal(entry["senders"], np.r_[graph.edge_links[:, 0], graph.edge_links[:, 1]])
        np.testing.assert_array_equal(entry["receivers"], np.r_[graph.edge_links[:, 1], graph.edge_links[:, 0]])
        np.testing.assert_array_equal(entry["edges"][:, :-1], np.concatenate([graph.edges, graph.edges]))
        np.testing.assert_array_equal(entry["edges"][:, -1], np.repeat([0.0, 1.0], count))


def test_batching_agrees_with_graph_nets() -> None:
    batch = to_graphs_tuple(GRAPHS)
    again = utils_tf.concat([to_graphs_tuple([graph]) for graph in GRAPHS], axis=0)
    for mine, theirs in zip(batch, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_trace_serves_all_sizes() -> None:
    traces = []

    @tf.function(input_signature=[graphs_tuple_signature(FEATURES)])
    def count(graphs: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return tf.reduce_sum(graphs.n_node)

    assert [int(count(to_graphs_tuple(GRAPHS[:n]))) for n in (1, 2, 3)] == [1, 6, 9]
    assert len(traces) == 1
