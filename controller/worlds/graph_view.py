"""The real environment as model-free policies see it: the graph itself, and the rewrites that are legal in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from controller.worlds.ragged import Layout, Row
from taso_ext import node_colours


class GraphObservation(NamedTuple):
    """S graphs with their candidates, as ragged tensors: rows can be gathered and concatenated like any tensor's.

    Attributes:
      nodes: float32 [S, (nodes), F].
      edges: float32 [S, (edges), D].
      links: int32 [S, (edges), 2], sender and receiver, numbered within each graph.
      colours: int64 [S, (nodes)], equal for nodes, of any graphs, that see the same over the policy's reach; empty for
        policies that have none.
      summary: float32 [S, G], the environment's globals.
      candidates: int32 [S, (candidates)], indices rule · P + location with P = `env.num_places`; the last is NO-OP,
        R · P.
      rewritten: int32 [S, (pairs), 2], the nodes that each candidate rewrites, in ascending order: its position in the
        row, and one of these nodes, numbered within the graph. NO-OP rewrites none, and everywhere-actions rewrite
        those of all matches of their rule.
    """

    nodes: tf.RaggedTensor
    edges: tf.RaggedTensor
    links: tf.RaggedTensor
    colours: tf.RaggedTensor
    summary: tf.Tensor
    candidates: tf.RaggedTensor
    rewritten: tf.RaggedTensor

    def graphs(self) -> gn_graphs.GraphsTuple:
        """Returns the graphs as `worldmodel.encoder.embedding.to_graphs_tuple` does: every edge in both directions."""
        both = [self.edges.with_flat_values(_with_direction(self.edges.flat_values, side)) for side in (0.0, 1.0)]
        first_node = self.nodes.row_starts()[:, tf.newaxis, tf.newaxis]
        ends = self.links + tf.cast(first_node, tf.int32)
        swapped = ends.with_flat_values(tf.reverse(ends.flat_values, axis=[1]))
        links = tf.concat([ends, swapped], axis=1).flat_values
        return gn_graphs.GraphsTuple(
            nodes=self.nodes.flat_values,
            edges=tf.concat(both, axis=1).flat_values,
            senders=links[:, 0],
            receivers=links[:, 1],
            n_node=tf.cast(self.nodes.row_lengths(), tf.int32),
            n_edge=tf.cast(2 * self.edges.row_lengths(), tf.int32),
            globals=tf.zeros([tf.shape(self.summary)[0], 1]),
        )


def _with_direction(edges: tf.Tensor, side: float) -> tf.Tensor:
    return tf.pad(edges, [[0, 0], [0, 1]], constant_values=side)


class GraphRow(NamedTuple):
    """One row of a `GraphObservation`, as arrays of the same names without the first axis."""

    nodes: np.ndarray
    edges: np.ndarray
    links: np.ndarray
    colours: np.ndarray
    summary: np.ndarray
    candidates: np.ndarray
    rewritten: np.ndarray


def row_of(env: Any, observation: dict[str, Any], reach: int | None = None) -> GraphRow:
    """Returns the policy's observation of one state.

    Args:
      env: the `GraphSubstitutionEnv`, which must be in that state.
      observation: the observation that `env` returned.
      reach: the number of edges over which the policy's nodes see; None: it needs no colours.
    """
    graph, legal = observation["graph"], env.legal_actions()
    arrays = graph.nodes, graph.edges, graph.edge_links
    colours = np.zeros(0, np.int64) if reach is None else node_colours(*arrays, reach)
    candidates = np.append(legal[:, 0] * env.num_places + legal[:, 1], env.num_rules * env.num_places)
    return GraphRow(*arrays, colours, observation["globals"], candidates, env.rewritten_nodes())


GRAPHS = Layout(
    GraphObservation, (tf.float32, tf.float32, tf.int32, tf.int64, tf.float32, tf.int32, tf.int32), ("summary",)
)
"""How rows become a `GraphObservation`."""


class GraphView:
    """A view of a `GraphSubstitutionEnv`; an action is a position among the observation's candidates.

    `step` reports the real action as `info["action"]`. Who plays many environments at once calls `begin` and `advance`
    in place of `reset` and `step`: they return rows, which `layout` stacks.
    """

    layout: Layout[Any] = GRAPHS

    def __init__(self, env: Any, reach: int | None = None) -> None:
        """
        Args:
          env: the environment.
          reach: see `row_of`.
        """
        self._env, self._reach = env.unwrapped, reach
        self._candidates = np.zeros(0, np.int32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        row, info = self.begin(seed=seed, options=options)
        return self.layout.stack([row]), info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        row, *outcome = self.advance(action)
        return self.layout.stack([row]), *outcome

    def begin(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        """Begins an episode; returns its first state as a row, and the environment's information."""
        observation, info = self._env.reset(seed=seed, options=options)
        return self._seen(observation), info

    def advance(self, action: int) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Takes a step; returns what `step` returns, with the state as a row."""
        pair = np.array(divmod(int(self._candidates[action]), self._env.num_places), np.int64)
        observation, reward, terminated, truncated, info = self._env.step(pair)
        return self._seen(observation), reward, terminated, truncated, {**info, "action": pair}

    def _seen(self, observation: dict[str, Any]) -> Row:
        """Returns the row of the present state, and keeps its candidates."""
        row = row_of(self._env, observation, self._reach)
        self._candidates = row.candidates
        return row
