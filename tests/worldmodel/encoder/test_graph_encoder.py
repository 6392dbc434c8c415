from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from taso_ext import node_colours
from tests.worldmodel.toy_world import FEATURES, SMALL, ToyEnv, ToyGraph
from worldmodel.config import EncoderConfig
from worldmodel.encoder.embedding import Embeddings, to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.signature import FeatureSpec

KINDS = ("message_passing", "attention", "interaction")


def some_graphs() -> list[ToyGraph]:
    starts = [(0, 1, 0, 1, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0, 0), (2, 1, 0, 2, 0), (0, 1)]
    return [ToyEnv(start=start).graph() for start in starts]


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest) -> GraphEncoder:
    tf.random.set_seed(0)
    encoder = GraphEncoder(dataclasses.replace(SMALL.encoder, kind=request.param), FEATURES)
    encoder.calibrate([to_graphs_tuple(some_graphs())])
    encoder(to_graphs_tuple(some_graphs()))  # makes all weights, whichever test comes first
    return encoder


def embed(encoder: GraphEncoder, *graphs: ToyGraph) -> np.ndarray:
    return encoder(to_graphs_tuple(graphs)).numpy()


def nodes_of(encoder: GraphEncoder, *graphs: ToyGraph) -> np.ndarray:
    return encoder.embedded(to_graphs_tuple(graphs)).nodes.numpy()


def test_nodes_that_see_the_same_can_be_embedded_together() -> None:
    tf.random.set_seed(0)
    encoder = GraphEncoder(dataclasses.replace(SMALL.encoder, kind="interaction"), FEATURES)
    graphs = [*some_graphs(), ToyEnv(start=(0, 1, 0, 1, 2)).graph(), *some_graphs(), *some_graphs()]
    rounds = SMALL.encoder.rounds
    colours = [node_colours(graph.nodes, graph.edges, graph.edge_links, rounds) for graph in graphs]
    batch = to_graphs_tuple(graphs)
    assert len(np.unique(np.concatenate(colours))) < len(batch.nodes) / 2
    apart, together = encoder.with_nodes(batch), encoder.with_nodes(batch, colours=tf.concat(colours, axis=0))
    for one, other in zip(apart, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_nodes_that_read_globals_cannot_be_embedded_together() -> None:
    encoder = GraphEncoder(SMALL.encoder, FEATURES)
    batch = to_graphs_tuple(some_graphs())
    with pytest.raises(ValueError, match="'message_passing' has globals"):
        encoder.with_nodes(batch, colours=tf.range(len(batch.nodes), dtype=tf.int64))


def shuffle(graph: ToyGraph, generator: np.random.Generator) -> tuple[ToyGraph, np.ndarray]:
    """Returns the graph with its nodes and edges in another order, and the old number of every new node."""
    nodes, edges = generator.permutation(len(graph.nodes)), generator.permutation(len(graph.edges))
    place = np.argsort(nodes)  # node i is now at place[i]
    return ToyGraph(graph.nodes[nodes], graph.edges[edges], place[graph.edge_links[edges]]), nodes


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_nodes_and_edges_does_not_matter(encoder: GraphEncoder, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for graph in some_graphs():
        shuffled, _ = shuffle(graph, generator)
        np.testing.assert_allclose(embed(encoder, shuffled), embed(encoder, graph), atol=2e-3)


def test_node_embeddings_follow_their_nodes(encoder: GraphEncoder) -> None:
    """A batch has the node embeddings of its graphs one after the other; reordered nodes keep their embeddings."""
    generator, graphs = np.random.default_rng(0), some_graphs()
    parts = [nodes_of(encoder, graph) for graph in graphs]
    assert [part.shape for part in parts] == [(len(graph.nodes), SMALL.encoder.hidden) for graph in graphs]
    together = nodes_of(encoder, *graphs)
    np.testing.assert_allclose(together, np.concatenate(parts), atol=1e-4)
    for graph, part in zip(graphs, parts, strict=True):
        shuffled, nodes = shuffle(graph, generator)
        found = nodes_of(encoder, shuffled)
        np.testing.assert_allclose(found, part[nodes], atol=1e-4)


def test_nodes_are_told_apart_by_what_surrounds_them(encoder: GraphEncoder) -> None:
    """All nodes of this chain except the first have the same features."""
    embeddings = nodes_of(encoder, ToyEnv(start=(0,) * 8).graph())
    distances = np.abs(embeddings[1:, np.newaxis] - embeddings[1:]).max(axis=-1)
    seen = SMALL.encoder.rounds  # further from either end nothing differs
    assert distances[0, 1] > 0.01 and distances[-1, -2] > 0.01
    assert distances[seen, seen + 1] < 1e-4


def test_one_trace_serves_graphs_of_all_sizes(encoder: GraphEncoder) -> None:
    embeddings = Embeddings(encoder, FEATURES)
    single = ToyEnv(start=(1,)).graph()
    for number, graphs in enumerate(([single], some_graphs(), some_graphs()[:2], [single, *some_graphs()])):
        found = embeddings({f"{number} {i}": graph for i, graph in enumerate(graphs)})
        np.testing.assert_allclose(np.stack(list(found.values())), embed(encoder, *graphs), atol=2e-3)
    assert embeddings._encode.experimental_get_tracing_count() == 1


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
    """The loss is quadratic, because a linear function of z has no gradient for what normalisation removes."""
    weights = tf.constant(np.random.default_rng(0).normal(size=(5, 8)), tf.float32)
    with tf.GradientTape() as tape:
        z = encoder(to_graphs_tuple(some_graphs()), is_training=True)
        loss = tf.reduce_sum(weights * tf.square(z))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    for variable, gradient in zip(encoder.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))) > 0.0, variable.name


def test_sub_networks_come_from_factories() -> None:
    made: list[int] = []

    def make_round(i: int) -> object:
        made.append(i)
        return lambda graph: graph

    encoder = GraphEncoder(SMALL.encoder, FEATURES, make_round=make_round, make_readout=lambda: lambda x: x[:, :3])
    assert embed(encoder, *some_graphs()).shape == (5, 3)
    assert made == list(range(SMALL.encoder.rounds))


def test_heads_have_to_divide_the_width() -> None:
    with pytest.raises(ValueError, match="hidden=65"):
        EncoderConfig(kind="attention", hidden=64, heads=5)
    EncoderConfig(hidden=64, heads=5)  # message passing has no heads


TIMED = FeatureSpec(("operator", "size", "log_time"), ("dtype", "length"), num_operators=4, num_dtypes=2)


def test_the_last_dimension_is_the_total_time() -> None:
    """This holds whatever the weights are, and also for times that the calibration has not seen."""
    tf.random.set_seed(0)
    encoder = GraphEncoder(dataclasses.replace(SMALL.encoder, total_time=True), TIMED)
    rng = np.random.default_rng(0)
    times = [rng.uniform(1.0, 50.0, len(graph.nodes)) * (1 + 9 * i) for i, graph in enumerate(some_graphs())]
    graphs = [
        graph._replace(nodes=np.c_[graph.nodes[:, :2], np.log1p(us) / 5.0].astype(np.float32))
        for graph, us in zip(some_graphs(), times, strict=True)
    ]
    encoder.calibrate([to_graphs_tuple(graphs[:3])])
    z, logs = embed(encoder, *graphs), np.array([np.log1p(us.sum()) for us in times])
    assert z.shape == (5, SMALL.encoder.latent)
    known = logs[:3]
    np.testing.assert_allclose(z[:, -1], (logs - known.mean()) / known.std(), rtol=1e-3)
    loaded = encoder(to_graphs_tuple(graphs), is_training=True)
    np.testing.assert_allclose(loaded[:, -1], (logs - logs.mean()) / logs.std(), rtol=1e-3)


def test_a_total_needs_times_and_a_place_in_z() -> None:
    with pytest.raises(ValueError, match=r"'log_time'.*operator, size, first.*total_time=false"):
        GraphEncoder(dataclasses.replace(SMALL.encoder, total_time=True), FEATURES)
    with pytest.raises(ValueError, match="total_time=false"):
        EncoderConfig(latent=1, total_time=True)
    discrete = EncoderConfig(latent=16, categories=4, total_time=True)
    assert embed(GraphEncoder(discrete, FEATURES), *some_graphs()).shape == (5, 16), "codes have no place for it"
