"""The substitution game as a Gymnasium environment: a state is a graph, an action is (rule, location).

May use the engine, rewards, cost models and the zoo; knows nothing of learning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
import onnx
from gymnasium import spaces

from environment import cost_models, features, rewards, zoo
from taso_ext import Cost, CostModel, Graph, OnnxModel, RuleSet, State

GraphSource = str | os.PathLike[str] | onnx.ModelProto | OnnxModel


class GraphSubstitutionEnv(gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]]):
    """Rewrites one model; an episode starts from its cleaned graph.

        env = GraphSubstitutionEnv("squeezenet1.1")
        observation, info = env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step([rule, location])

    With R rules and L locations an observation holds `graph` (N nodes, E edges; columns in `environment.features`),
    `globals` float32 [2] (ln(cost / start cost), steps / max_steps), `rule_mask` int8 [R + 1] (NO-OP, at index R, is
    always legal) and `location_mask` int8 [R, L]. A rewrite that a step does not touch keeps its location.

    `info` holds `cost_ms`, `flops`, `memory_bytes`, `kernel_launches`, `rule_name`, `graph_hash`, `best_cost_ms` and
    `truncated_matches` (matches beyond L, which have no location).

    An episode terminates by NO-OP or when no rewrite is left, and is truncated after `max_steps`.

    Args:
      graph: zoo name, path of an ONNX file, ModelProto, or a loaded OnnxModel. An episode can start from another one
        with `reset(options={"graph": ...})`, as long as no more than L locations are asked for at construction.
      costs: name of a cost model (`environment.cost_models.names()`).
      reward: name of a reward (`environment.rewards.names()`) or a `Reward`.
      rules: a RuleSet, the path of a rule file, or None for the shipped rules.
      max_steps: steps after which an episode is truncated.
      max_locations: L; None sizes it to the graph (its run-time operators).
      clean, dims: see `OnnxModel.load`; not used for an OnnxModel.
      strict: an illegal action raises ValueError; otherwise it changes nothing and earns `invalid_reward`.
    Raises:
      ModelError: a model that cannot be used; ZooError, ValueError: unknown names.
    """

    def __init__(
        self,
        graph: GraphSource,
        *,
        costs: str | CostModel = "roofline:rtx2070",
        reward: str | rewards.Reward = "log_ratio",
        rules: RuleSet | str | os.PathLike[str] | None = None,
        max_steps: int = 50,
        max_locations: int | None = None,
        clean: str = "full",
        dims: Mapping[str, int] | None = None,
        strict: bool = False,
        invalid_reward: float = -100.0,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        if max_locations is not None and max_locations < 1:
            raise ValueError(f"max_locations must be at least 1, got {max_locations}")
        self.cost_model = cost_models.find(costs)
        self.reward = rewards.find(reward)
        self.rules = _load_rules(rules)
        self.rule_names: tuple[str, ...] = tuple(self.rules.names)
        self.num_rules = len(self.rules)
        self.max_steps, self.strict, self.invalid_reward = max_steps, strict, invalid_reward
        self._clean, self._dims = clean, dict(dims or {})
        self._max_locations = max_locations or 0
        self._load(graph)
        self.num_locations = self._start.num_locations
        self._begin()
        self.action_space = spaces.MultiDiscrete(np.array([self.num_rules + 1, self.num_locations]))
        self.observation_space = _observation_space(self.num_rules, self.num_locations)

    def _load(self, graph: GraphSource) -> None:
        self.model = _load_model(graph, self._clean, self._dims)
        self._start = State(self.model.graph, self.rules, self.cost_model, self._max_locations)

    def _begin(self) -> None:
        self.state = self._start.copy()
        self.initial_cost: Cost = self._start.cost
        self._cost = self._last_measured = self.initial_cost
        self._best_cost_ms = self.initial_cost.ms
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode. `options={"graph": ...}` changes to another model for this and later episodes."""
        super().reset(seed=seed)
        if options and "graph" in options:
            self._max_locations = self.num_locations  # the spaces are fixed: matches beyond L are counted, not shown
            self._load(options["graph"])
        self._begin()
        return self._observation(), self._info("")

    def step(
        self, action: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes [rule, location]; rule R is NO-OP, whatever the location."""
        rule, location = (int(part) for part in action)
        self._steps += 1
        if rule == self.num_rules:
            return self._finish_step("no-op", terminated=True)
        try:
            self.state.step(rule, location)
        except ValueError:
            if self.strict:
                raise
            truncated = self._steps >= self.max_steps
            return self._observation(), self.invalid_reward, False, truncated, self._info("invalid")
        return self._finish_step(self.rule_names[rule], terminated=not len(self.state.legal_actions()))

    def _finish_step(
        self, rule_name: str, terminated: bool
    ) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        truncated = not terminated and self._steps >= self.max_steps
        before, self._cost = self._cost, self.state.cost
        done = terminated or truncated
        reward = self.reward.function(
            rewards.Transition(self.initial_cost, before, self._cost, self._last_measured, self._steps, done)
        )
        if self.reward.measures(self._steps, done):
            self._last_measured = self._cost
        self._best_cost_ms = min(self._best_cost_ms, self._cost.ms)
        return self._observation(), reward, terminated, truncated, self._info(rule_name)

    def legal_actions(self) -> npt.NDArray[np.int32]:
        """[C, 2], every legal (rule, location) but NO-OP, in ascending order."""
        return self.state.legal_actions()

    def candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """(rule [C], location [C], cost_ms [C]): what each legal rewrite would lead to, a one-step look-ahead."""
        return self.state.candidates()

    def replay(self, actions: Sequence[Sequence[int]]) -> Graph:
        """The graph that a list of (rule, location) leads to from the start; the episode under way is not touched.

        Raises:
          ValueError: naming the first action that is not legal.
        """
        state = self._start.copy()
        for position, (rule, location) in enumerate(actions):
            try:
                state.step(int(rule), int(location))
            except ValueError as error:
                raise ValueError(f"action {position} of the log cannot be replayed: {error}") from error
        return state.graph

    def _observation(self) -> dict[str, Any]:
        nodes, edges, links = self.state.features()
        ratio = self._cost.ms / self.initial_cost.ms if self.initial_cost.ms > 0 and self._cost.ms > 0 else 1.0
        return {
            "graph": spaces.GraphInstance(nodes, edges, links),
            "globals": np.array([np.log(ratio), self._steps / self.max_steps], np.float32),
            "rule_mask": np.append(self.state.rule_mask(), True).astype(np.int8),
            "location_mask": self.state.location_mask().astype(np.int8),
        }

    def _info(self, rule_name: str) -> dict[str, Any]:
        return {
            "cost_ms": self._cost.ms,
            "flops": self._cost.flops,
            "memory_bytes": self._cost.memory_bytes,
            "kernel_launches": self._cost.kernel_launches,
            "rule_name": rule_name,
            "graph_hash": self.state.hash,
            "best_cost_ms": self._best_cost_ms,
            "truncated_matches": self.state.truncated_matches,
        }


def _load_rules(rules: RuleSet | str | os.PathLike[str] | None) -> RuleSet:
    if rules is None:
        return RuleSet.default()
    return rules if isinstance(rules, RuleSet) else RuleSet.load(os.fspath(rules))


def _load_model(graph: GraphSource, clean: str, dims: Mapping[str, int]) -> OnnxModel:
    if isinstance(graph, OnnxModel):
        return graph
    is_name = isinstance(graph, str) and not graph.endswith(".onnx") and not Path(graph).exists()
    return OnnxModel.load(zoo.build(graph) if is_name else graph, clean=clean, dims=dims)  # type: ignore[arg-type]


def _observation_space(num_rules: int, num_locations: int) -> spaces.Dict:
    # Categories share the array with the other features, so the box is bounded by the greatest id.
    node = spaces.Box(0.0, float(features.NUM_OPERATORS), (len(features.NODE_FEATURES),), np.float32)
    global_bounds = np.array([[-50, 0], [50, 1]], np.float32)  # e^50: no cost ratio gets there
    edge = spaces.Box(0.0, float(features.NUM_DTYPES), (len(features.EDGE_FEATURES),), np.float32)
    return spaces.Dict(
        {
            "graph": spaces.Graph(node, edge),
            "globals": spaces.Box(*global_bounds, dtype=np.float32),
            "rule_mask": spaces.MultiBinary(num_rules + 1),
            "location_mask": spaces.MultiBinary([num_rules, num_locations]),
        }
    )
