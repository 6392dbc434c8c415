"""The real environment as X-RLflow sees it: the present graph, and every graph that one rewrite leads to.

A graph after a rewrite shares almost everything with the present one, and within a graph much is alike. The engine
lists what differs (`taso_ext.State.candidate_graphs`), and a network computes each embedding once. The same rewrite in
different layers often changes the same: candidates of which a network sees no difference are of one kind.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from controller.worlds.graph_view import GraphView
from controller.worlds.ragged import Layout, Row


class CandidateObservation(NamedTuple):
    """S states, each with its present graph (number 0) and its candidates (from 1 on), as ragged tensors.

    Attributes:
      nodes: float32 [S, (nodes), 6], operator, log cost of the operator by itself, and the sum of the extents of the
        weights that it reads, likewise; each stands for all nodes of the state that see the same over the view's reach.
      colours: int64 [S, (nodes)], different within a state, and equal where nodes of different states see the same.
      edges: float32 [S, (edges), 4], the extents of the tensor over 4096, the last one first.
      links: int32 [S, (edges), 2], producer and consumer, numbered within each state; in the order of the consumers.
      parts: int32 [S, (parts), 2], ascending: a kind of graph and a node.
      counts: int32 [S, (parts)], how many such nodes the present graph has, or how many more a candidate has.
      kinds: int32 [S, (kinds)], how many graphs are of each kind, in the order of their first ones; the present graph
        is a kind of its own.
      kind: int32 [S, (graphs)], the number of the kind of each graph.
      candidates: int32 [S, (graphs)], index rule · P + location of the rewrite that leads to each graph, with
        P = `env.num_places`; the first is NO-OP, R · P.
      dropped: int32 [S], rewrites that are no candidates because there was no place for them.
    """

    nodes: tf.RaggedTensor
    colours: tf.RaggedTensor
    edges: tf.RaggedTensor
    links: tf.RaggedTensor
    parts: tf.RaggedTensor
    counts: tf.RaggedTensor
    kinds: tf.RaggedTensor
    kind: tf.RaggedTensor
    candidates: tf.RaggedTensor
    dropped: tf.Tensor


CANDIDATES = Layout(CandidateObservation, (tf.float32, tf.int64, tf.float32, *[tf.int32] * 7), ("dropped",))
"""How rows become a `CandidateObservation`."""


class CandidateView(GraphView):
    """A view of a `GraphSubstitutionEnv` in which an action is the number of a candidate graph; 0 is NO-OP.

    Everywhere-actions are no candidates.
    """

    layout = CANDIDATES

    def __init__(self, env: Any, *, reach: int, most: int) -> None:
        """
        Args:
          env: the environment.
          reach: the number of edges over which the network looks.
          most: the largest number of candidates of a state; later ones, in the order of rules, are dropped. They are
            counted, and so are rewrites for which the environment has no location (`environment.max_locations`).
        """
        super().__init__(env, reach)
        self._most = most

    def _seen(self, observation: dict[str, Any]) -> Row:
        env, state = self._env, self._env.state
        *nodes_and_edges, parts, counts = state.candidate_graphs(self._reach, self._most)
        legal = state.legal_actions()
        kept = legal[: self._most]
        self._candidates = np.append(env.num_rules * env.num_places, kept[:, 0] * env.num_places + kept[:, 1])
        of_kinds = by_kind(parts, counts, len(self._candidates))
        dropped = len(legal) - len(kept) + state.truncated_matches
        return *nodes_and_edges, *of_kinds, self._candidates, np.array(dropped)


def by_kind(
    parts: np.ndarray, counts: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns `parts`, `counts`, `kinds` and `kind` of one state.

    Args:
      parts: int [parts, 2], ascending: a graph and a node.
      counts: int [parts].
      number: the number of graphs.
    """
    bounds = np.searchsorted(parts[:, 0], np.arange(number + 1)).tolist()
    differing = np.stack([parts[:, 1], counts], axis=1)
    known: dict[bytes, int] = {}
    kind, first = np.zeros(number, np.int32), np.ones(number, bool)
    for graph, (start, end) in enumerate(itertools.pairwise(bounds[1:]), 1):
        fresh = len(known) + 1
        kind[graph] = known.setdefault(differing[start:end].tobytes(), fresh)
        first[graph] = len(known) == fresh
    kept = first[parts[:, 0]]
    parts = np.stack([kind[parts[kept, 0]], parts[kept, 1]], axis=1)
    return parts, counts[kept], np.bincount(kind), kind
