"""Nodes have the same colour where they see the same, in whichever graph, and in whatever order it is listed."""

from __future__ import annotations

import numpy as np
import pytest

from taso_ext import node_colours

PATH = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])


def colours(nodes: list[float], links: np.ndarray, rounds: int, edges: np.ndarray | None = None) -> list[int]:
    rows = np.array(nodes, np.float32)[:, np.newaxis]
    found = node_colours(rows, np.ones((len(links), 1)) if edges is None else edges, links, rounds)
    return [found.tolist().index(colour) for colour in found.tolist()]


def test_each_round_sees_one_edge_further_both_ways() -> None:
    assert colours([1, 1, 1, 1, 1, 1], PATH, 0) == [0, 1, 1, 1, 1, 5], "the ends have one edge, and these differ"
    assert colours([1, 1, 1, 1, 1, 1], PATH, 1) == [0, 1, 2, 2, 4, 5]
    assert colours([1, 1, 1, 1, 1, 1], PATH, 2) == [0, 1, 2, 3, 4, 5]
    assert colours([1, 1, 1, 1, 1, 2], PATH, 1) == [0, 1, 2, 2, 4, 5]


def test_the_order_of_nodes_and_edges_makes_no_difference_and_other_graphs_share_colours() -> None:
    generator = np.random.default_rng(0)
    nodes, links = generator.integers(0, 2, [12, 3]), generator.integers(0, 12, [30, 2])
    edges = generator.integers(0, 2, [30, 2]).astype(float)
    found = node_colours(nodes, edges, links, 3)
    order, of_edges = generator.permutation(12), generator.permutation(30)
    moved = node_colours(nodes[order], edges[of_edges], np.argsort(order)[links[of_edges]], 3)
    np.testing.assert_array_equal(moved, found[order])
    twice = node_colours(np.tile(nodes, (2, 1)), np.tile(edges, (2, 1)), np.concatenate([links, links + 12]), 3)
    np.testing.assert_array_equal(twice, np.tile(found, 2))
    edges[0] += 1
    assert (node_colours(nodes, edges, links, 3) != found).any()


@pytest.mark.parametrize(
    ("arrays", "rounds", "message"),
    [
        ((np.ones(3), np.ones((0, 1)), np.zeros((0, 2))), 1, r"nodes must be \[N, F\]"),
        ((np.ones((3, 1)), np.ones((2, 1)), np.zeros((1, 2))), 1, r"links \[E, 2\]"),
        ((np.ones((3, 1)), np.ones((1, 1)), np.array([[0, 3]])), 1, "a link names node 3 of 3"),
        ((np.ones((3, 1)), np.ones((1, 1)), np.array([[0, 1]])), -1, "rounds must be at least 0, got -1"),
        ((np.ones((3, 0)), np.ones((1, 0)), np.array([[0, 1]])), 1, "at least one column"),
    ],
)
def test_bad_arrays_are_one_clear_error(arrays: tuple[np.ndarray, ...], rounds: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_colours(*arrays, rounds)
