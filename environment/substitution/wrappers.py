"""Wrappers for agents that need another form of actions and observations.

| wrapper | what it gives |
|---|---|
| `Candidates` | one discrete action and one row of features for each candidate rewrite |
| `Padded` | graph observations as arrays of a fixed size, also for vector environments |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from environment.policies.random import EVERYWHERE_PROBABILITY, random_step
from environment.substitution.env import GraphSubstitutionEnv
from taso_ext import State

Arrays = dict[str, npt.NDArray[Any]]
RuleEncoding = Literal["one-hot", "id"]
_EPISODES = 8  # random episodes from which the wrappers estimate how large graphs and lists of rewrites become


class Candidates(
    gymnasium.Wrapper[dict[str, Any], Any, dict[str, Any], npt.NDArray[np.int64]],
    RecordConstructorArgs,
):
    """A wrapper in which action 0 is NO-OP and action k is the k-th legal (rule, location).

    If the environment has everywhere-actions, these come first, ordered by rule. The others are in ascending order.

        env = Candidates(GraphSubstitutionEnv("bert-base"))
        observation, info = env.reset(seed=0)
        slot = np.random.choice(np.flatnonzero(env.action_masks()))
        observation, reward, terminated, truncated, info = env.step(slot)

    Agents that mask invalid actions need nothing else:

        sb3_contrib.MaskablePPO("MultiInputPolicy", env).learn(100_000)

    With M = max_candidates an observation holds `globals` as in the environment, and `candidates` float32
    [M + 1, F]: row k describes action k, and rows without a rewrite are zero. The columns, which `columns` names, are
    of order 1:

    - the rule, a category. "one-hot" has R + 1 columns, the last for NO-OP. "id" has one column, (rule + 1) / (R + 1),
      for agents that embed rules themselves or need small observations (with 440 rules and M = 700: 14 kB, not 1.2 MB);
    - `everywhere`, if the environment has everywhere-actions: 1 for these, else 0;
    - `location`, (location + 1) / L: a rewrite keeps its location as long as no step touches it, and the location
      separates rewrites that are alike in all other columns; 0 for NO-OP and everywhere-actions;
    - `position` of the rewrite's root in topological order, in (0, 1]; 0 for NO-OP and everywhere-actions;
    - `log_flops`, `log_bytes` of the matched operators (for everywhere-actions of all matches), each log(1 + x) / 20;
    - `cost_change`, if `candidate_costs` is set: 100 ln(cost after / cost now), a one-step look-ahead in percent.

    `info` gains `num_candidates` (candidates with an action, NO-OP not counted) and `truncated_candidates` (candidates
    beyond M, without an action). An action without a rewrite is an illegal action of the environment: it changes
    nothing and its reward is `invalid_reward`, or it raises ValueError if the environment is strict.

    Args:
      env: a GraphSubstitutionEnv, wrapped or not.
      max_candidates: M, which sets the shape of the arrays; an agent made for one M cannot use another. None means
        `with_headroom` of the largest number in some random episodes.
      candidate_costs: whether the column `cost_change` is added.
      rule_encoding: "one-hot" or "id".
    Raises:
      ValueError: `env` is another environment, or an argument is out of its range.
    """

    def __init__(
        self,
        env: gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]],
        max_candidates: int | None = None,
        candidate_costs: bool = False,
        rule_encoding: RuleEncoding = "one-hot",
    ) -> None:
        RecordConstructorArgs.__init__(
            self, max_candidates=max_candidates, candidate_costs=candidate_costs, rule_encoding=rule_encoding
        )
        super().__init__(env)
        self._base, space = _wrapped(env, "globals", "Candidates needs a GraphSubstitutionEnv with its observations")
        if rule_encoding not in ("one-hot", "id"):
            raise ValueError(f"rule_encoding must be 'one-hot' or 'id', got {rule_encoding!r}")
        if max_candidates is None:
            max_candidates = with_headroom(int(_largest(self._base, _num_candidates)[0]))
        self.max_candidates, self.candidate_costs = max_candidates, candidate_costs
        self.rule_encoding: RuleEncoding = rule_encoding
        self.columns = _column_names(self._base, rule_encoding, candidate_costs)
        candidates = _candidate_space(self.columns, len(self._features()))
        self.action_space = spaces.Discrete(max_candidates + 1)
        self.observation_space = spaces.Dict({"globals": space["globals"], "candidates": candidates})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Starts an episode; see `GraphSubstitutionEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._present(observation, info)

    def step(self, action: int) -> tuple[Arrays, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes the rewrite of a slot; slot 0 is NO-OP."""
        observation, reward, terminated, truncated, info = self.env.step(self._pair(int(action)))
        shown, info = self._present(observation, info)
        return shown, reward, terminated, truncated, info

    def rewrite(self, slot: int) -> npt.NDArray[np.int64]:
        """Returns the [rule, location] of a slot in this state.

        Raises:
          ValueError: the slot has no rewrite.
        """
        if slot == 0:
            return np.array([self._base.num_rules, 0], np.int64)
        rewrites = self._rewrites()
        if not 1 <= slot <= len(rewrites):
            raise ValueError(
                f"candidate {slot} has no rewrite: this state has NO-OP at 0 and {len(rewrites)} rewrites after it "
                "(see action_masks())"
            )
        return rewrites[slot - 1].astype(np.int64)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Returns which slots are legal in this state [M + 1]; sb3-contrib calls this method by its name."""
        return np.arange(self.max_candidates + 1) <= len(self._rewrites())

    def _pair(self, slot: int) -> npt.NDArray[np.int64]:
        if self._base.strict or 0 <= slot <= len(self._rewrites()):
            return self.rewrite(slot)
        # No state has a rewrite behind the last place: the environment decides the reward of an illegal action.
        return np.array([0, self._base.num_places], np.int64)

    def _present(self, observation: dict[str, Any], info: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        legal, shown = int(_num_candidates(self._base.state, self._base.everywhere)[0]), len(self._rewrites())
        counts = {"num_candidates": shown, "truncated_candidates": legal - shown}
        return {"globals": observation["globals"], "candidates": self._features()}, {**info, **counts}

    def _rewrites(self) -> npt.NDArray[np.int32]:
        legal = self._base.legal_actions()
        everywhere = legal[:, 1] == self._base.num_locations
        return np.concatenate([legal[everywhere], legal[~everywhere]])[: self.max_candidates]

    def _features(self) -> npt.NDArray[np.float32]:
        return self._base.state.candidate_features(
            self.max_candidates,
            one_hot_rules=self.rule_encoding == "one-hot",
            costs=self.candidate_costs,
            everywhere=self._base.everywhere,
        )


def _column_names(env: GraphSubstitutionEnv, rule_encoding: RuleEncoding, candidate_costs: bool) -> tuple[str, ...]:
    rule = [f"rule:{name}" for name in (*env.rule_names, "no-op")] if rule_encoding == "one-hot" else ["rule"]
    everywhere, costs = ["everywhere"] * env.everywhere, ["cost_change"] * candidate_costs
    return (*rule, *everywhere, "location", "position", "log_flops", "log_bytes", *costs)


def _num_candidates(state: State, everywhere: bool) -> npt.NDArray[np.int64]:
    """Returns the number of legal actions [1]."""
    return np.array([state.location_counts().sum() + everywhere * state.everywhere_mask().sum()])


def _candidate_space(columns: tuple[str, ...], rows: int) -> spaces.Box:
    # log(1 + x) / 20 of e^100 FLOPs, and a cost ratio of e^50 in percent: nothing gets there.
    bounds = {"log_flops": 5.0, "log_bytes": 5.0, "cost_change": 5000.0}
    high = np.array([bounds.get(column, 1.0) for column in columns], np.float32)
    low = np.array([-5000.0 if column == "cost_change" else 0.0 for column in columns], np.float32)
    return spaces.Box(np.tile(low, (rows, 1)), np.tile(high, (rows, 1)), dtype=np.float32)


class Padded(
    gymnasium.ObservationWrapper[dict[str, Any], npt.NDArray[np.int64], dict[str, Any]],
    RecordConstructorArgs,
):
    """A wrapper that replaces the graph of an observation by arrays that are padded with zeros.

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
        base, space = _wrapped(env, "graph", "Padded needs a GraphSubstitutionEnv whose observations hold 'graph'")
        now = _sizes(base.state)
        if max_nodes is None or max_edges is None:
            largest = _largest(base, _sizes)
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


def _sizes(state: State, everywhere: bool = False) -> npt.NDArray[np.int64]:
    """Returns the numbers of nodes and edges of the observed graph."""
    nodes, edges, _ = state.features()
    return np.array([len(nodes), len(edges)])


def _largest(env: GraphSubstitutionEnv, sizes: Callable[[State, bool], npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Returns the largest sizes in some random episodes that begin in the present state."""
    probability = EVERYWHERE_PROBABILITY if env.everywhere else 0.0
    rng, largest = np.random.default_rng(0), sizes(env.state, env.everywhere)
    for _ in range(_EPISODES):
        state = env.state.copy()
        for _ in range(env.max_steps):
            if not random_step(state, rng, probability):
                break
            largest = np.maximum(largest, sizes(state, env.everywhere))
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


def _wrapped(env: gymnasium.Env[Any, Any], entry: str, needed: str) -> tuple[GraphSubstitutionEnv, spaces.Dict]:
    """Returns the innermost environment and the space of observations, which must have an entry.

    Raises:
      ValueError: the environment does not fit; the message says what is `needed` and what came.
    """
    base, space = env.unwrapped, env.observation_space
    if isinstance(base, GraphSubstitutionEnv) and isinstance(space, spaces.Dict) and entry in space.spaces:
        return base, space
    raise ValueError(f"{needed}, got {env}")
