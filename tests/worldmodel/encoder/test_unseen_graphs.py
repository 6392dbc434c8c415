"""Tests of how an encoder embeds operators that it was not trained on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import FEATURES, SMALL, ToyEnv, ToyGraph, uniform_policy
from worldmodel.data.episodes import collect
from worldmodel.encoder.embedding import to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.encoder.training import EncoderDataset, EncoderTraining

UNSEEN, RARE = (0, 5), 4


class RareOperatorEnv(ToyEnv):
    """A toy environment in a tenth of whose states the first node has an operator that occurs nowhere else."""

    def graph(self) -> ToyGraph:
        graph = super().graph()
        if np.sum(self.cells == 2) >= 3:
            graph.nodes[0, 0] = RARE
        return graph


@pytest.mark.parametrize("kind", ["message_passing", pytest.param("attention", marks=pytest.mark.full)])
def test_they_resemble_a_rare_one(kind: str) -> None:
    """Exchanging one for the other moves an embedding by less than half of the mean distance between two graphs."""
    features = dataclasses.replace(FEATURES, num_operators=6)
    buffer = collect(RareOperatorEnv(8, max_steps=12), uniform_policy(0.02), 60, seed=1)
    tf.random.set_seed(0)
    encoder = GraphEncoder(dataclasses.replace(SMALL.encoder, kind=kind), features)
    data = EncoderDataset(buffer, buffer.action_table())
    EncoderTraining(encoder, features, [data], SMALL.encoder_training, seed=0).run()
    graphs = [buffer.graphs[graph_hash] for graph_hash in list(buffer.graphs)[::12]]
    z = encoder(to_graphs_tuple(graphs)).numpy()
    rare, *unseen = (
        encoder(to_graphs_tuple([with_operator(graph, i, operator) for i, graph in enumerate(graphs)])).numpy()
        for operator in (RARE, *UNSEEN)
    )
    assert np.all(np.isfinite(unseen))
    apart = distance(z[:, np.newaxis], z, z.std(axis=0))[~np.eye(len(z), dtype=bool)].mean()
    for other in unseen:
        assert distance(rare, other, z.std(axis=0)).mean() < 0.5 * apart


def with_operator(graph: ToyGraph, node: int, operator: int) -> ToyGraph:
    nodes = graph.nodes.copy()
    nodes[node % len(nodes), 0] = operator
    return ToyGraph(nodes, graph.edges, graph.edge_links)


def distance(one: np.ndarray, other: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Returns the root mean square difference over the dimensions, in units of the standard deviations `unit`."""
    return np.sqrt(np.mean(((one - other) / unit) ** 2, axis=-1))
