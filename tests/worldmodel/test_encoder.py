from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from toy_world import FEATURES, SMALL, ToyEnv, ToyGraph

from worldmodel.encoder import GraphEncoder
from worldmodel.graphs import to_graphs_tuple


def some_graphs() -> list[ToyGraph]:
    starts = [(0, 1, 0, 1, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0, 0), (2, 1, 0, 2, 0), (0, 1)]
    return [ToyEnv(start=start).graph() for start in starts]


@pytest.fixture(scope="module")
def encoder() -> GraphEncoder:
    tf.random.set_seed(0)
    encoder = GraphEncoder(SMALL.encoder, FEATURES)
    encoder.calibrate([to_graphs_tuple(some_graphs())])
    return encoder


def embed(encoder: GraphEncoder, *graphs: ToyGraph) -> np.ndarray:
    return encoder(to_graphs_tuple(graphs)).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_nodes_and_edges_does_not_matter(encoder: GraphEncoder, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for graph in some_graphs():
        nodes, edges = generator.permutation(len(graph.nodes)), generator.permutation(len(graph.edges))
        place = np.argsort(nodes)  # node i is now at place[i]
        shuffled = ToyGraph(graph.nodes[nodes], graph.edges[edges], place[graph.edge_links[edges]])
        np.testing.assert_allclose(embed(encoder, shuffled), embed(encoder, graph), atol=2e-3)


def test_wiring_and_direction_matter(encoder: GraphEncoder) -> None:
    graph = some_graphs()[0]
    rewired = graph._replace(edge_links=graph.edge_links[[1, 0, 2, 3]] * [1, 1])
    rewired.edge_links[0] = [0, 3]
    turned = graph._replace(edge_links=graph.edge_links[:, ::-1])
    for other in (rewired, turned):
        assert np.max(np.abs(embed(encoder, other) - embed(encoder, graph))) > 0.05


def test_neighbours_in_the_batch_do_not_matter(encoder: GraphEncoder) -> None:
    graphs = some_graphs()
    alone = np.concatenate([embed(encoder, graph) for graph in graphs])
    np.testing.assert_allclose(embed(encoder, *graphs), alone, atol=2e-3)


def test_one_rewrite_is_visible(encoder: GraphEncoder) -> None:
    env = ToyEnv(30)
    before = env.graph()
    env.rewrite(0, 14)
    assert np.max(np.abs(embed(encoder, env.graph()) - embed(encoder, before))) > 0.02


def test_every_variable_gets_a_gradient(encoder: GraphEncoder) -> None:
    """A linear function of z has none for what normalisation removes, hence the random squares."""
    weights = tf.constant(np.random.default_rng(0).normal(size=(5, 8)), tf.float32)
    with tf.GradientTape() as tape:
        z = encoder(to_graphs_tuple(some_graphs()), is_training=True)
        loss = tf.reduce_sum(weights * tf.square(z))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    for variable, gradient in zip(encoder.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0.0, variable.name


def test_operators_never_seen_are_met_gracefully(encoder: GraphEncoder) -> None:
    graph = some_graphs()[0]
    strange = graph._replace(nodes=graph.nodes * [0, 1, 1] + [0, 0, 0])  # operator 0 occurs in no toy graph
    z, usual = embed(encoder, strange), embed(encoder, *some_graphs())
    assert np.all(np.isfinite(z))
    assert np.max(np.abs(z)) < 20.0 * np.max(np.abs(usual))


def test_sub_networks_come_from_factories() -> None:
    made: list[int] = []

    def make_round(i: int) -> object:
        made.append(i)
        return lambda graph: graph

    encoder = GraphEncoder(SMALL.encoder, FEATURES, make_round=make_round, make_readout=lambda: lambda x: x[:, :3])
    assert embed(encoder, *some_graphs()).shape == (5, 3)
    assert made == list(range(SMALL.encoder.rounds))
