"""Graphs of a buffer through the encoder, each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.graph_store import GraphLike, GraphStore
from worldmodel.data.graphs import FeatureSpec, graphs_tuple_signature, to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder

ENCODE_BATCH = 16  # graphs a call: more brings nothing on a CPU, and BERT's activations stay in the cache


def used_graphs(buffer: EpisodeBuffer) -> Mapping[str, GraphLike]:
    """The graphs that the episodes of `buffer` visit, in order of first visit, read from the store when asked for."""
    return _Subset(buffer.graphs, dict.fromkeys(h for episode in buffer for h in episode.hashes))


class _Subset(Mapping[str, GraphLike]):
    def __init__(self, graphs: GraphStore, hashes: Mapping[str, None]) -> None:
        self._graphs, self._hashes = graphs, hashes

    def __getitem__(self, graph_hash: str) -> GraphLike:
        return self._graphs[graph_hash]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)


def embedder(encoder: GraphEncoder, features: FeatureSpec) -> Any:
    """The encoder as a `tf.function` with one trace for graphs of all sizes: GraphsTuple to raw embeddings."""
    return tf.function(encoder, input_signature=[graphs_tuple_signature(features)], autograph=False)


def embed_all(embed: Any, graphs: Iterable[GraphLike]) -> np.ndarray:
    """Raw embeddings of at least one graph, a few at a time: float32 [n, latent]."""
    remaining = iter(graphs)
    batches = iter(lambda: list(itertools.islice(remaining, ENCODE_BATCH)), [])
    return np.concatenate([embed(to_graphs_tuple(batch)).numpy() for batch in batches])


def operators_of(encoder: GraphEncoder, features: FeatureSpec, graph: GraphLike) -> np.ndarray:
    """What the encoder makes of every operator of one graph, its inputs left out: float32 [operators, hidden]."""
    is_operator = np.asarray(graph.nodes)[:, 0] != features.num_operators - 1
    return encoder.embedded(to_graphs_tuple([graph])).nodes.numpy()[is_operator]
