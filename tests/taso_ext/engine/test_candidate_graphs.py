"""The shared arrays of all graphs one rewrite away give each of them what listing it by itself gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from environment import GraphSubstitutionEnv, zoo

REACH = 3
NAMES = ("squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny", "composed-1-tiny")


def envs_along_a_walk(name: str, steps: int = 4) -> Iterator[GraphSubstitutionEnv]:
    """Yields the environment at several states of a random walk."""
    env = GraphSubstitutionEnv(zoo.build(name), costs="roofline:rtx2070", max_steps=steps + 1)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield env
        legal = env.legal_actions()
        env.step(legal[rng.integers(len(legal))])


def passed_along(nodes: np.ndarray, edges: np.ndarray, links: np.ndarray, rounds: int = REACH) -> np.ndarray:
    """Returns values of nodes [N, 8] after as many rounds of a network with fixed random weights."""
    rng = np.random.default_rng(1)
    own, sent, read = (rng.normal(size=(8, 8)) / 3 for _ in range(3))
    of_edges, of_operators, of_weights = rng.normal(size=(4, 8)), rng.normal(size=(1000, 8)), rng.normal(size=(4, 8))
    received = np.zeros((len(nodes), 8))
    np.add.at(received, links[:, 1], edges @ of_edges)
    values = np.tanh(
        of_operators[nodes[:, 0].astype(int)] + nodes[:, 1:2] + nodes[:, 2:] @ of_weights + received @ read
    )
    for _ in range(rounds):
        received = np.zeros_like(values)
        np.add.at(received, links[:, 1], np.tanh(values[links[:, 0]] @ sent + edges @ of_edges))
        values = np.tanh(values @ own + received)
    return values


def sums_of_graphs(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns the sum of the values of every graph's nodes, and their number: [graphs, 9]."""
    nodes, owners, _, edges, links, gone = arrays
    values = np.concatenate([passed_along(nodes, edges, links), np.ones((len(nodes), 1))], axis=1)
    sums = np.zeros((int(max(owners.max(), gone[:, 0].max(initial=0))) + 1, values.shape[1]))
    np.add.at(sums, owners, values)
    np.subtract.at(sums, gone[:, 0], values[gone[:, 1]])
    sums[1:] += sums[0]
    return sums


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_is_the_graph_that_its_rewrite_leads_to(name: str) -> None:
    for env in envs_along_a_walk(name):
        legal = env.state.legal_actions()
        sums = sums_of_graphs(env.state.candidate_graphs(REACH, 10**6))
        assert len(sums) <= len(legal) + 1  # the last rewrites may change nothing but weights
        for number, (rule, location) in enumerate(legal.tolist()[: len(sums) - 1], start=1):
            after = env.state.copy()
            after.step(rule, location)
            nodes, owners, _, edges, links, _ = after.candidate_graphs(REACH, 0)
            alone = passed_along(nodes, edges, links).sum(axis=0)
            np.testing.assert_allclose(sums[number, :-1], alone, atol=1e-9)
            assert not owners.any() and sums[number, -1] == len(nodes)


@pytest.mark.parametrize("name", NAMES)
def test_the_present_graph_has_the_nodes_and_edges_of_the_features(name: str) -> None:
    for env in envs_along_a_walk(name):
        nodes, owners, _, edges, links, gone = env.state.candidate_graphs(REACH, 10**6)
        features, _, plain_links = env.state.features()
        mine = owners == 0
        np.testing.assert_array_equal(nodes[mine, 0], features[:, 0])
        np.testing.assert_array_equal(links[links[:, 1] < mine.sum()], plain_links)
        assert (np.diff(owners) >= 0).all() and (np.diff(links[:, 1]) >= 0).all() and edges.shape[1] == 4
        assert (gone[:, 1] < mine.sum()).all() and (np.lexsort(gone.T[::-1]) == np.arange(len(gone))).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reach", [0, 1, REACH])
def test_nodes_have_one_colour_where_they_see_the_same_in_all_states(name: str, reach: int) -> None:
    seen: dict[int, np.ndarray] = {}
    for env in envs_along_a_walk(name):
        nodes, _, colours, edges, links, _ = env.state.candidate_graphs(reach, 10**6)
        for colour, value in zip(colours.tolist(), passed_along(nodes, edges, links, reach), strict=True):
            np.testing.assert_allclose(seen.setdefault(colour, value), value, atol=1e-9)
    different = np.unique(np.round(np.array(list(seen.values())), 9), axis=0)
    assert len(different) == len(seen), "what sees the same has no two colours"


def test_the_listed_candidates_are_the_first_ones() -> None:
    env = next(envs_along_a_walk("bert-base-tiny"))
    everything, some = (env.state.candidate_graphs(REACH, most) for most in (10**6, 5))
    assert some[1].max() == 5
    kept = everything[1] <= 5
    np.testing.assert_array_equal(some[0], everything[0][kept])
    np.testing.assert_array_equal(some[2], everything[2][kept])
    near, far = (len(env.state.candidate_graphs(reach, 10**6)[0]) for reach in (0, 5))
    assert near < len(everything[0]) < far, "a farther look sees more differences"


def test_negative_numbers_are_one_clear_error() -> None:
    env = next(envs_along_a_walk("squeezenet1.1-tiny"))
    for reach, most in ((-1, 5), (3, -1)):
        with pytest.raises(ValueError, match=f"reach and most must be at least 0, got {reach} and {most}"):
            env.state.candidate_graphs(reach, most)
