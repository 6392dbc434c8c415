from __future__ import annotations

import numpy as np
import pytest

from tests.worldmodel.toy_world import ToyEnv, ToyGraph
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.graph_store import GraphStore


def random_graph(seed: int, *, nodes: int = 300, edges: int = 400, kinds: int = 7) -> ToyGraph:
    """Returns a graph whose feature rows are drawn from a few kinds, as in real graphs."""
    generator = np.random.default_rng(seed)
    rows = np.random.default_rng(0).normal(size=(kinds, 5)).astype(np.float32)
    links = generator.integers(0, nodes, (edges, 2))
    return ToyGraph(rows[generator.integers(0, kinds, nodes)], rows[generator.integers(0, kinds, edges)][:, :3], links)


def assert_same(left: ToyGraph, right: ToyGraph) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_graphs_come_back_bit_for_bit() -> None:
    store = GraphStore(5, 3)
    for seed in range(5):
        store.add(str(seed), random_graph(seed))
    again = GraphStore.from_arrays(store.to_arrays())
    assert list(again) == list(store) == [str(seed) for seed in range(5)]
    for seed in range(5):
        assert_same(store[str(seed)], random_graph(seed))
        assert_same(again[str(seed)], random_graph(seed))


def test_a_loaded_store_goes_on_like_the_old_one() -> None:
    store = GraphStore(5, 3)
    store.add("a", random_graph(1))
    again = GraphStore.from_arrays(store.to_arrays())
    for each in (store, again):
        each.add("b", random_graph(2, kinds=20))
    assert_same(again["b"], store["b"])


def test_stored_graphs_are_small() -> None:
    store, graph = GraphStore(5, 3), random_graph(0)
    for number in range(20):
        store.add(str(number), random_graph(number))
    stored = sum(array.nbytes for array in store.to_arrays().values())
    assert stored < 0.25 * 20 * sum(part.nbytes for part in graph)


def test_a_known_hash_keeps_its_graph() -> None:
    store = GraphStore(5, 3)
    store.add("same", random_graph(1))
    store.add("same", random_graph(2))
    assert_same(store["same"], random_graph(1))


def test_graphs_without_edges_are_kept() -> None:
    store = GraphStore(5, 3)
    store.add("lonely", ToyGraph(np.ones((1, 5), np.float32), np.zeros((0, 3), np.float32), np.zeros((0, 2), np.int64)))
    again = GraphStore.from_arrays(store.to_arrays())
    assert again["lonely"].edges.shape == (0, 3)
    assert again["lonely"].edge_links.shape == (0, 2)


def test_wrong_widths_and_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="width 4"):
        GraphStore(4, 3).add("x", random_graph(0))
    graph = random_graph(0)
    with pytest.raises(ValueError, match="400 rows of edge features but 399 links"):
        GraphStore(5, 3).add("x", graph._replace(edge_links=graph.edge_links[1:]))


def test_the_buffer_holds_each_visited_graph_once(episodes: EpisodeBuffer) -> None:
    visited = {graph_hash for episode in episodes for graph_hash in episode.hashes}
    assert set(episodes.graphs) == visited
    assert_same(episodes.graphs[episodes[0].hashes[0]], ToyEnv(8).graph())
