"""Fusion as a Gymnasium environment: a state is a configuration, an action flips the decisions around one tensor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from environment.fusion.graphs import DEFAULT, NODE_COLUMNS, FusionGraph, load
from environment.fusion.objective import Objective
from taso_ext import NUM_FEATURE_OPERATORS, OnnxModel

LARGEST_LOG_RATIO = 100.0
"""Bound of ln(cost / start cost) in the observation space; e^100 is beyond any two plans of one graph."""


class FusionEnv(gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]]):
    """An environment that plans which operators of one graph share a kernel.

        env = FusionEnv("bert-base", device="v100")
        observation, info = env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step([node, distance])

    With N tensors, n of them configurable, and E edges an observation holds `nodes` float32 [N, F] (columns in
    `environment.fusion.graphs.NODE_COLUMNS`), `links` int32 [E, 2] (producer, reader), `configurable` int32 [n] (their
    tensors), `configuration` int8 [n] (1: fused into its readers), and `globals` float32 [2] (ln(cost / start cost),
    steps / max_steps). All but the last two stay the same.

    The action [node, distance] flips configurable tensor number `node` in [0, n), and all configurable tensors that are
    at most `distance` in [0, max_distance] edges away. Every action is legal.

    The reward is 100 · ln(cost before / cost after). It telescopes: the rewards of an episode sum to 100 · ln(start
    cost / last cost). An episode never terminates, because a plan is never complete. It is truncated after `max_steps`.

    `info` holds `cost_ms`, `best_cost_ms`, `start_cost_ms` and `queries` (prices asked for since `reset`). The prices
    that everybody has asked for since the problem was made are `env.graph.problem.queries`; nothing resets this.

    Args:
      graph: zoo name, path of an ONNX file, loaded model, or a `FusionGraph`.
      device: a preset of `environment.fusion.DEVICES`; not used for a FusionGraph.
      max_steps: steps of an episode.
      max_distance: largest distance of an action.
    Raises:
      ZooError, ModelError: the graph cannot be loaded.
      ValueError: the device is unknown, there is nothing to decide, or a number is out of range.
    """

    def __init__(
        self,
        graph: str | Path | OnnxModel | FusionGraph,
        *,
        device: str = "v100",
        max_steps: int = 100,
        max_distance: int = 1,
    ) -> None:
        if max_steps < 1 or max_distance < 0:
            raise ValueError(
                f"max_steps must be at least 1 and max_distance at least 0, got {max_steps} and {max_distance}"
            )
        self.graph = graph if isinstance(graph, FusionGraph) else load(graph, device)
        self.max_steps, self.max_distance = max_steps, max_distance
        self._objective = Objective(self.graph)
        self._steps = 0
        count = len(self.graph.configurable)
        self.action_space = spaces.MultiDiscrete(np.array([count, max_distance + 1]))
        self.observation_space = _observation_space(self.graph, count)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode.

        Args:
          options: `configuration`: "default" (the compiler's), "random", or uint8 [N] of all tensors.
        Raises:
          ValueError: a configuration of another name or size.
        """
        super().reset(seed=seed)
        chosen = (options or {}).get("configuration", DEFAULT)
        if isinstance(chosen, str):
            chosen = self.graph.start(chosen, int(self.np_random.integers(1 << 31)))
        self._objective, self._steps = Objective(self.graph, chosen), 0
        return self._observation(), self._info()

    def step(
        self, action: npt.NDArray[np.int64] | list[int]
    ) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes the action [node, distance].

        Raises:
          ValueError: the action is outside the action space.
        """
        node, distance = (int(part) for part in action)
        if not (0 <= node < len(self.graph.configurable) and 0 <= distance <= self.max_distance):
            raise ValueError(
                f"expected [node, distance] with node below {len(self.graph.configurable)} and distance at most "
                f"{self.max_distance}, got [{node}, {distance}]"
            )
        before = self._objective.cost_ms
        tensor = int(self.graph.configurable[node])
        after = self._objective.flipped(self.graph.problem.neighbourhood(tensor, distance))
        self._steps += 1
        reward = 100 * math.log(before / after)
        return self._observation(), reward, False, self._steps >= self.max_steps, self._info()

    @property
    def configuration(self) -> np.ndarray:
        """The present configuration of all tensors, uint8 [N]; a copy."""
        return self._objective.configuration

    def _observation(self) -> dict[str, Any]:
        objective = self._objective
        ratio = math.log(objective.cost_ms / objective.start_ms)
        return {
            "nodes": self.graph.nodes.copy(),
            "links": self.graph.links.copy(),
            "configurable": self.graph.configurable.copy(),
            "configuration": objective.configuration[self.graph.configurable].astype(np.int8),
            "globals": np.array([ratio, self._steps / self.max_steps], np.float32),
        }

    def _info(self) -> dict[str, Any]:
        objective = self._objective
        return {
            "cost_ms": objective.cost_ms,
            "best_cost_ms": objective.best_ms,
            "start_cost_ms": objective.start_ms,
            "queries": objective.queries,
        }


def _observation_space(graph: FusionGraph, count: int) -> spaces.Dict:
    tensors, edges = len(graph.nodes), len(graph.links)
    return spaces.Dict(
        {
            "nodes": spaces.Box(0, max(NUM_FEATURE_OPERATORS, 1e3), (tensors, len(NODE_COLUMNS)), np.float32),
            "links": spaces.Box(0, tensors, (edges, 2), np.int32),
            "configurable": spaces.Box(0, tensors, (count,), np.int32),
            "configuration": spaces.MultiBinary(count),
            "globals": spaces.Box(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO, (2,), np.float32),
        }
    )
