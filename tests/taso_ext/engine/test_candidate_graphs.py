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
    nodes, _, edges, links, parts, counts = arrays
    values = np.concatenate([passed_along(nodes, edges, links), np.ones((len(nodes), 1))], axis=1)
    sums = np.zeros((int(parts[:, 0].max()) + 1, values.shape[1]))
    np.add.at(sums, parts[:, 0], values[parts[:, 1]] * counts[:, np.newaxis])
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
            np.testing.assert_allclose(sums[number], sums_of_graphs(after.candidate_graphs(REACH, 0))[0], atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_present_graph_is_that_of_the_features(name: str) -> None:
    """Features list every node by itself. They have the logarithms of extents, and other columns of nodes."""
    for env in envs_along_a_walk(name):
        nodes, colours, edges, *others = env.state.candidate_graphs(REACH, 10**6)
        features, of_edges, links = env.state.features()
        assert edges.shape[1] == 4
        extents = np.expm1(8 * of_edges[:, 1:].astype(float)) / 4096
        values = passed_along(only_operators(features), extents, links)
        sums = sums_of_graphs((only_operators(nodes), colours, edges, *others))[0]
        np.testing.assert_allclose(sums[:-1], values.sum(axis=0), atol=1e-3)
        assert sums[-1] == len(features)


def only_operators(nodes: np.ndarray) -> np.ndarray:
    """Returns rows [N, 6] whose first column alone is kept."""
    return np.concatenate([nodes[:, :1], np.zeros((len(nodes), 5))], axis=1)


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_in_order_and_nothing_is_listed_twice(name: str) -> None:
    for env in envs_along_a_walk(name):
        _, colours, _, links, parts, counts = env.state.candidate_graphs(REACH, 10**6)
        assert len(np.unique(colours)) == len(colours) and (np.diff(links[:, 1]) >= 0).all()
        assert counts.all() and (counts[parts[:, 0] == 0] > 0).all()
        np.testing.assert_array_equal(np.unique(parts, axis=0), parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reach", [0, 1, REACH])
def test_nodes_have_one_colour_where_they_see_the_same_in_all_states(name: str, reach: int) -> None:
    seen: dict[int, np.ndarray] = {}
    for env in envs_along_a_walk(name):
        nodes, colours, edges, links, *_ = env.state.candidate_graphs(reach, 10**6)
        for colour, value in zip(colours.tolist(), passed_along(nodes, edges, links, reach), strict=True):
            np.testing.assert_allclose(seen.setdefault(colour, value), value, atol=1e-9)
    different = np.unique(np.round(np.array(list(seen.values())), 9), axis=0)
    assert len(different) == len(seen), "what sees the same has no two colours"


def test_the_listed_candidates_are_the_first_ones() -> None:
    env = next(envs_along_a_walk("bert-base-tiny"))
    everything, some = (env.state.candidate_graphs(REACH, most) for most in (10**6, 5))
    assert some[4][:, 0].max() == 5
    kept = everything[4][:, 0] <= 5
    for column in (4, 5):
        np.testing.assert_array_equal(some[column], everything[column][kept])
    for column in (0, 1):
        np.testing.assert_array_equal(some[column], everything[column][: len(some[column])])
    near, far = (len(env.state.candidate_graphs(reach, 10**6)[0]) for reach in (0, 5))
    assert near < len(everything[0]) < far, "a farther look sees more differences"


def test_negative_numbers_are_one_clear_error() -> None:
    env = next(envs_along_a_walk("squeezenet1.1-tiny"))
    for reach, most in ((-1, 5), (3, -1)):
        with pytest.raises(ValueError, match=f"reach and most must be at least 0, got {reach} and {most}"):
            env.state.candidate_graphs(reach, most)
