"""`Padded`: graph observations as arrays of a fixed size, for agents and vector environments that need one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from environment.policies.random import random_step
from environment.substitution.env import GraphSubstitutionEnv
from taso_ext import State

_EPISODES = 8

Arrays = dict[str, npt.NDArray[Any]]


class Padded(
    gymnasium.ObservationWrapper[dict[str, Any], npt.NDArray[np.int64], dict[str, Any]],
    RecordConstructorArgs,
):
    """Replaces the graph of an observation by arrays that are padded with zeros.

        env = Padded(GraphSubstitutionEnv("bert-base"))
        observation, info = env.reset(seed=0)
        nodes = observation["nodes"][observation["node_mask"] == 1]

    With N = max_nodes and E = max_edges an observation holds `nodes` float32 [N, F] and `edges` float32 [E, D] (columns
    in `environment.substitution.features`), `links` int64 [E, 2] (producer and consumer rows of `nodes`),
    `node_mask` int8 [N] and `edge_mask` int8 [E] (1 where a row is used; used rows come first). The other entries stay
    as they are.

    Environments on different graphs have the same space, and can be vectorised together, if their `max_nodes`,
    `max_edges` and `max_locations` are equal.

    Args:
      env: a GraphSubstitutionEnv, which may be wrapped already as long as its observations still hold the graph.
      max_nodes, max_edges: sizes; None means `with_headroom` of the largest sizes in some random episodes.
    Raises:
      ValueError: the environment's observations have no graph, or its graph does not fit. From `reset` and `step`: a
        graph has grown beyond the sizes. Nothing is ever left out.
    """

    def __init__(
        self,
        env: gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]],
        max_nodes: int | None = None,
        max_edges: int | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, max_nodes=max_nodes, max_edges=max_edges)
        super().__init__(env)
        space = env.observation_space
        if not (
            isinstance(env.unwrapped, GraphSubstitutionEnv)
            and isinstance(space, spaces.Dict)
            and "graph" in space.spaces
        ):
            raise ValueError(f"Padded needs a GraphSubstitutionEnv whose observations hold 'graph', got {env}")
        now = _sizes(env.unwrapped.state)
        if max_nodes is None or max_edges is None:
            largest = _largest(env.unwrapped.state, env.unwrapped.max_steps)
            max_nodes = with_headroom(int(largest[0])) if max_nodes is None else max_nodes
            max_edges = with_headroom(int(largest[1])) if max_edges is None else max_edges
        self.max_nodes, self.max_edges = max_nodes, max_edges
        if min(self.max_nodes, self.max_edges) < 1:
            raise ValueError(f"max_nodes and max_edges must be at least 1, got {self.max_nodes} and {self.max_edges}")
        self._check_fit(*now)
        self.observation_space = _padded_space(space, self.max_nodes, self.max_edges)

    def observation(self, observation: dict[str, Any]) -> Arrays:
        """Returns the observation with its graph padded."""
        nodes, edges, links = observation["graph"]
        self._check_fit(len(nodes), len(edges))
        return {
            "nodes": _filled_up(nodes, self.max_nodes),
            "node_mask": _mask(len(nodes), self.max_nodes),
            "edges": _filled_up(edges, self.max_edges),
            "links": _filled_up(links, self.max_edges),
            "edge_mask": _mask(len(edges), self.max_edges),
            **{name: value for name, value in observation.items() if name != "graph"},
        }

    def _check_fit(self, num_nodes: int, num_edges: int) -> None:
        if num_nodes > self.max_nodes or num_edges > self.max_edges:
            raise ValueError(
                f"the graph has {num_nodes} nodes and {num_edges} edges, but Padded was made for at most "
                f"{self.max_nodes} and {self.max_edges}; give it max_nodes={with_headroom(num_nodes)} and "
                f"max_edges={with_headroom(num_edges)}"
            )


def with_headroom(size: int) -> int:
    """Returns 1.5 times a size plus 16: a policy may look for rewrites that add more than random ones do."""
    return size + size // 2 + 16


def _sizes(state: State) -> npt.NDArray[np.int64]:
    """Returns the numbers of nodes and edges of the observed graph."""
    nodes, edges, _ = state.features()
    return np.array([len(nodes), len(edges)])


def _largest(start: State, max_steps: int) -> npt.NDArray[np.int64]:
    """Returns the largest numbers of nodes and edges in some random episodes."""
    rng, largest = np.random.default_rng(0), _sizes(start)
    for _ in range(_EPISODES):
        state = start.copy()
        for _ in range(max_steps):
            if not random_step(state, rng):
                break
            largest = np.maximum(largest, _sizes(state))
    return largest


def _padded_space(space: spaces.Dict, max_nodes: int, max_edges: int) -> spaces.Dict:
    graph = space["graph"]
    assert isinstance(graph, spaces.Graph) and isinstance(graph.node_space, spaces.Box)
    assert isinstance(graph.edge_space, spaces.Box)
    return spaces.Dict(
        {
            "nodes": _repeated(graph.node_space, max_nodes),
            "node_mask": spaces.MultiBinary(max_nodes),
            "edges": _repeated(graph.edge_space, max_edges),
            "links": spaces.Box(0, max_nodes - 1, (max_edges, 2), np.int64),
            "edge_mask": spaces.MultiBinary(max_edges),
            **{name: part for name, part in space.items() if name != "graph"},
        }
    )


def _repeated(row: spaces.Box, count: int) -> spaces.Box:
    low, high = (np.broadcast_to(bound, (count, *row.shape)) for bound in (row.low, row.high))
    return spaces.Box(low, high, dtype=np.float32)


def _filled_up(rows: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    out = np.zeros((count, *rows.shape[1:]), rows.dtype)
    out[: len(rows)] = rows
    return out


def _mask(used: int, count: int) -> npt.NDArray[np.int8]:
    return (np.arange(count) < used).astype(np.int8)
