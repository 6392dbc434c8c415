"""Tests of the world model's data from the real environment; the toy problem covers learning from data."""

from __future__ import annotations

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from worldmodel.config import EncoderConfig
from worldmodel.data.actions import pack
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.encoder.embedding import to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder, log_total_time
from worldmodel.signature import TIME, FeatureSpec


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=12)


@pytest.fixture(scope="module")
def buffer(env: GraphSubstitutionEnv) -> EpisodeBuffer:
    return collect(env, RandomAgent(noop_probability=0.02), 6, seed=0)


def test_recorded_episodes_can_be_replayed(env: GraphSubstitutionEnv, buffer: EpisodeBuffer) -> None:
    for episode in buffer:
        env.reset()
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(np.sort(pack(env.legal_actions())), pack(episode.legal_actions(t)))
            _, reward, _, _, info = env.step(action)
            assert float(reward) == pytest.approx(float(episode.rewards[t]), abs=1e-4)
            assert info["graph_hash"] == episode.hashes[t + 1]


def test_the_environments_features_fit_the_encoder(buffer: EpisodeBuffer) -> None:
    features = FeatureSpec.current()
    assert buffer.graphs.node_width == len(features.node_features)
    assert buffer.graphs.edge_width == len(features.edge_features)
    graphs = list(buffer.graphs.values())
    assert max(graph.nodes[:, 0].max() for graph in graphs) < features.num_operators
    assert max(graph.edges[:, 0].max() for graph in graphs) < features.num_dtypes
    encoder = GraphEncoder(EncoderConfig(hidden=16, rounds=2), features)
    encoder.calibrate([to_graphs_tuple(graphs)])
    z = encoder(to_graphs_tuple(graphs)).numpy()
    assert np.all(np.isfinite(z))
    assert len({row.tobytes() for row in z}) == len(graphs), "different graphs have different embeddings"


def test_the_total_time_is_the_cost(buffer: EpisodeBuffer) -> None:
    """The node features hold times in microseconds, to six digits."""
    episode, column = buffer[0], FeatureSpec.current().node_features.index(TIME)
    graphs = to_graphs_tuple([buffer.graphs[graph_hash] for graph_hash in episode.hashes])
    found = np.expm1(log_total_time(graphs.nodes, graphs.n_node, column).numpy()[:, 0])
    np.testing.assert_allclose(found, 1e3 * episode.cost_ms, rtol=1e-5)
