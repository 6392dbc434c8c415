"""Padded observations hold the whole graph in one shape, and a graph that does not fit is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from environment import Candidates, GraphSubstitutionEnv, Padded, zoo
from environment.policies.random import RandomAgent

TINY = tuple(name for name in zoo.names() if name.endswith("-tiny"))


def episode(env: gymnasium.Env, plain: GraphSubstitutionEnv, seed: int) -> Iterator[tuple[dict, dict]]:
    """Yields the observations of two environments along one random episode."""
    agent = RandomAgent(seed, noop_probability=0.0)
    shown, observation = env.reset(seed=seed)[0], plain.reset(seed=seed)[0]
    yield shown, observation
    done = False
    while not done:
        action = agent(observation)
        shown = env.step(action)[0]
        observation, _, terminated, truncated, _ = plain.step(action)
        done = terminated or truncated
        yield shown, observation


@pytest.mark.parametrize("name", TINY)
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*")
def test_passes_the_environment_checker(name: str) -> None:
    check_env(Padded(GraphSubstitutionEnv(name)), skip_render_check=True)


@pytest.mark.parametrize("name", TINY)
def test_holds_the_whole_graph_and_zeros(name: str) -> None:
    env, plain = Padded(GraphSubstitutionEnv(name)), GraphSubstitutionEnv(name)
    for shown, observation in episode(env, plain, seed=1):
        assert env.observation_space.contains(shown)
        nodes, edges, links = observation["graph"]
        for mask, size in (("node_mask", len(nodes)), ("edge_mask", len(edges))):
            assert shown[mask].sum() == size and shown[mask][:size].all()
        for part, whole in (("nodes", nodes), ("edges", edges), ("links", links)):
            assert np.array_equal(shown[part][: len(whole)], whole) and not shown[part][len(whole) :].any()
        for part in ("globals", "rule_mask", "location_mask"):
            assert np.array_equal(shown[part], observation[part])


def test_an_observation_that_is_kept_does_not_change() -> None:
    env, plain = Padded(GraphSubstitutionEnv("bert-base-tiny")), GraphSubstitutionEnv("bert-base-tiny")
    kept = [(shown, {part: value.copy() for part, value in shown.items()}) for shown, _ in episode(env, plain, seed=0)]
    assert all(np.array_equal(shown[part], copy[part]) for shown, copy in kept for part in copy)


def sizes_after(env: GraphSubstitutionEnv, action: Any) -> tuple[int, int]:
    state = env.state.copy()
    state.step(*(int(part) for part in action))
    nodes, edges, _ = state.features()
    return len(nodes), len(edges)


def test_a_graph_that_outgrows_it_is_an_error() -> None:
    plain = GraphSubstitutionEnv("bert-base-tiny", everywhere=False)
    nodes, edges, _ = plain.state.features()
    env = Padded(plain, max_nodes=len(nodes), max_edges=len(edges))
    env.reset(seed=0)
    action = max(plain.legal_actions(), key=lambda action: sizes_after(plain, action))
    more_nodes, more_edges = sizes_after(plain, action)
    assert more_nodes > len(nodes)
    with pytest.raises(ValueError, match=rf"has {more_nodes} nodes and {more_edges} edges"):
        env.step(action)
    roomy = Padded(plain, max_nodes=more_nodes, max_edges=more_edges)
    roomy.reset(seed=0)
    assert roomy.step(action)[0]["node_mask"].all()


def test_a_larger_graph_is_an_error_at_reset() -> None:
    env = Padded(GraphSubstitutionEnv("resnet18-tiny"))
    with pytest.raises(ValueError, match="Padded was made for at most"):
        env.reset(options={"graph": "bert-base-tiny"})


@pytest.mark.parametrize("sizes", [{"max_nodes": 5}, {"max_edges": 5}, {"max_nodes": 0}, {"max_edges": -1}])
def test_sizes_below_the_start_graph_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"max_nodes=\d+|at least 1"):
        Padded(GraphSubstitutionEnv("resnet18-tiny"), **sizes)


@pytest.mark.parametrize(
    "make", [lambda: Candidates(GraphSubstitutionEnv(TINY[0])), lambda: gymnasium.make("CartPole-v1")]
)
def test_needs_an_environment_with_a_graph(make: Any) -> None:
    with pytest.raises(ValueError, match="needs a GraphSubstitutionEnv"):
        Padded(make())


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_environments_on_different_graphs_vectorise(vector: Any) -> None:
    names = ("squeezenet1.1-tiny", "resnet18-tiny")

    def make(name: str) -> gymnasium.Env:
        return Padded(GraphSubstitutionEnv(name, max_locations=40), max_nodes=50, max_edges=60)

    alone = [make(name) for name in names]
    together = vector([lambda name=name: make(name) for name in names])
    try:
        expected, observations = [env.reset(seed=0)[0] for env in alone], together.reset(seed=0)[0]
        for step in range(3):
            for row, observation in enumerate(expected):
                assert all(np.array_equal(observations[part][row], observation[part]) for part in observation)
            actions = [RandomAgent(step, noop_probability=0.0)(observation) for observation in expected]
            results = [env.step(action) for env, action in zip(alone, actions, strict=True)]
            expected, observations = [result[0] for result in results], together.step(np.array(actions))[0]
            if any(result[2] or result[3] for result in results):
                break
        assert step > 0
    finally:
        together.close()


def test_can_be_made_again_from_its_spec() -> None:
    env = Padded(gymnasium.make("rlflow/GraphSubstitution-v0", graph="resnet18-tiny"), max_nodes=40)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert again.observation_space == env.observation_space


def test_random_play_fits_where_rewrites_multiply_operators() -> None:
    """A convolution becomes 25 operators if it is written out as Winograd's algorithm."""
    env, plain = Padded(GraphSubstitutionEnv("resnet18")), GraphSubstitutionEnv("resnet18")
    begun = plain.state.graph.num_runtime_nodes
    largest = max(int(shown["node_mask"].sum()) for seed in range(3) for shown, _ in episode(env, plain, seed))
    assert 3 * begun < largest <= env.max_nodes
