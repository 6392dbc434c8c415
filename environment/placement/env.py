"""Device placement as a Gymnasium environment: all groups at once, or group by group.

env = PlacementEnv(problem)
observation, info = env.reset(seed=0)
observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
print(info["step_ms"], info["fits"])
"""

from __future__ import annotations

import math
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from environment.placement.features import group_adjacency, group_features
from environment.placement.problem import Outcome, PlacementProblem

Mode = Literal["whole", "stepwise"]
_FAILING_FACTOR = 10.0
_LARGEST_FEATURE = 60.0  # ln(1 + x) of anything that a machine holds is smaller


def failing_ms(problem: PlacementProblem) -> float:
    """Returns the time that stands for a placement without enough memory: ten times that of the host alone.

    The paper sets it by hand, above the time of every placement that runs (Mirhoseini et al. 2017, section 3.1).
    """
    return _FAILING_FACTOR * max(problem.evaluate(problem.single(0)).ms, 1e-9)


class PlacementEnv(gymnasium.Env[dict[str, Any], Any]):
    """An environment in which an episode places the groups of one problem on the devices of its machine.

    With G groups and D devices, an observation holds `groups` float32 [G, F + D] (`environment.placement.features`),
    `adjacency` int8 [G, G], `placement` int64 [G] (the device of each group, D where it has none yet) and `next` (the
    group to be placed; G when all are).

    Mode `whole`: an action is the device of each group, [G], and an episode has one step. Mode `stepwise`: an action
    is the device of group `next`; groups come in the order of their numbers, producers mostly first, and the reward of
    all steps but the last is 0.

    The reward is −√(time in seconds), as published; a placement that does not fit into memory counts as
    `failing_ms`. `info` holds, after the last step, `step_ms`, `fits`, `failure` (where memory is missing and how
    much), `peak_bytes` [D], `busy_ms` [D], `copied_bytes` and `copies`.

    Args:
      problem: what is placed.
      mode: `whole` or `stepwise`.
      failing: the time in ms that stands for a placement that does not fit; None: `failing_ms(problem)`.
    Raises:
      ValueError: the mode is unknown, or the problem has no groups.
    Source: Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning", section 3.
    """

    def __init__(self, problem: PlacementProblem, *, mode: Mode = "whole", failing: float | None = None) -> None:
        if mode not in ("whole", "stepwise"):
            raise ValueError(f"expected the mode 'whole' or 'stepwise', got {mode!r}")
        if problem.num_groups < 1:
            raise ValueError("expected at least one group, but the model has no operators that run")
        self.problem, self.mode = problem, mode
        self.failing_ms = failing_ms(problem) if failing is None else failing
        groups, devices = problem.num_groups, problem.machine.num_devices
        self._features = group_features(problem)
        self._adjacency = group_adjacency(problem)
        self._placement = np.full(groups, devices, np.int64)
        self._next = 0
        self.action_space = spaces.MultiDiscrete([devices] * groups) if mode == "whole" else spaces.Discrete(devices)
        self.observation_space = spaces.Dict(
            {
                "groups": spaces.Box(0.0, _LARGEST_FEATURE, self._features.shape, np.float32),
                "adjacency": spaces.MultiBinary([groups, groups]),
                "placement": spaces.MultiDiscrete([devices + 1] * groups),
                "next": spaces.Discrete(groups + 1),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode in which no group has a device."""
        super().reset(seed=seed)
        self._placement[:] = self.problem.machine.num_devices
        self._next = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Places all groups, or the next one.

        Raises:
          PlacementError: a device does not exist.
          ValueError: the episode has ended.
        """
        if self._next == self.problem.num_groups:
            raise ValueError("the episode has ended; call reset")
        if self.mode == "whole":
            self._placement[:] = action
            self._next = self.problem.num_groups
        else:
            self._placement[self._next] = int(action)
            self._next += 1
        if self._next < self.problem.num_groups:
            return self._observation(), 0.0, False, False, {}
        outcome = self.problem.evaluate(self._placement)
        return self._observation(), self.reward(outcome), True, False, self._info(outcome)

    def reward(self, outcome: Outcome) -> float:
        """Returns −√(seconds) of a simulated step."""
        return -math.sqrt(self.counted_ms(outcome) * 1e-3)

    def counted_ms(self, outcome: Outcome) -> float:
        """Returns the time that counts for a simulated step: `failing_ms` if it does not fit."""
        return outcome.ms if outcome.fits else self.failing_ms

    def _observation(self) -> dict[str, npt.NDArray[Any] | np.int64]:
        return {
            "groups": self._features.copy(),  # observations must share nothing
            "adjacency": self._adjacency.copy(),
            "placement": self._placement.copy(),
            "next": np.int64(self._next),
        }

    def _info(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "step_ms": outcome.ms,
            "fits": outcome.fits,
            "failure": self.problem.failure(outcome),
            "peak_bytes": outcome.peak_bytes,
            "busy_ms": outcome.busy_ms,
            "copied_bytes": outcome.copied_bytes,
            "copies": outcome.copies,
        }
