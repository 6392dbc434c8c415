"""A rewriting environment without TensorFlow or an engine: a number of switches, each with a price."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np


class ToyEnv:
    """An environment like `GraphSubstitutionEnv`: rule r at location l adds `changes[r, l]` ms to the cost, once."""

    def __init__(self, changes: np.ndarray, *, initial_ms: float = 100.0, max_steps: int = 50) -> None:
        self.num_rules, self.num_locations = changes.shape
        self.everywhere = False
        self.max_steps = max_steps
        self._changes, self._initial_ms = changes, initial_ms
        self.reset()

    @property
    def unwrapped(self) -> ToyEnv:
        return self

    @property
    def state(self) -> Any:
        return SimpleNamespace(cost=SimpleNamespace(ms=self._cost_ms), hash="toy")

    def legal_actions(self) -> np.ndarray:
        return np.argwhere(self._legal).astype(np.int32)

    def candidates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rules, locations = self.legal_actions().T
        return rules, locations, self._cost_ms + self._changes[rules, locations]

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._legal = np.ones(self._changes.shape, bool)
        self._limit = (options or {}).get("max_steps", self.max_steps)
        self._cost_ms, self._steps = self._initial_ms, 0
        return self._observation(), {"cost_ms": self._cost_ms}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        rule, location = (int(part) for part in action)
        before, noop = self._cost_ms, rule == self.num_rules
        if not noop:
            assert self._legal[rule, location], f"illegal action {rule, location}"
            self._legal[rule, location] = False
            self._cost_ms += self._changes[rule, location]
        self._steps += 1
        terminated = noop or not self._legal.any()
        info = {"cost_ms": self._cost_ms, "rule_name": "no-op" if noop else f"rule-{rule}"}
        truncated = self._steps >= self._limit and not terminated
        return self._observation(), before - self._cost_ms, terminated, truncated, info

    def _observation(self) -> dict[str, np.ndarray]:
        rule_mask = np.append(self._legal.any(axis=1), True).astype(np.int8)
        return {"rule_mask": rule_mask, "location_mask": self._legal.astype(np.int8)}
