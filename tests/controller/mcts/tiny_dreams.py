"""Tiny worlds as dreams that `mcts` can simulate and play in."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from controller.mcts.config import MctsConfig
from controller.mcts.controller import MctsController
from controller.mcts.episodes import DreamSide
from tests.controller.tiny_worlds import TinyWorld
from worldmodel.config import DreamConfig
from worldmodel.data.trajectory import LatentObservation
from worldmodel.dream.step import DreamState


class TinyDream:
    """A `TinyWorld` behind the part of `DreamEnv`'s interface that simulators use."""

    structure = None  # it predicts what is legal

    def __init__(self, world: TinyWorld, longest: int = 6) -> None:
        self.world, self.longest, self.num_actions = world, longest, len(world.rules)
        self.steps = 0

    def state(self, states: np.ndarray) -> DreamState:
        seen = self.world.observe(tf.constant(states))
        return DreamState(seen.z, seen.h, seen.h, seen.action_mask, tf.zeros_like(seen.action_mask))

    def begun(self, state: DreamState) -> DreamState:
        return state

    def start_with_limits(self, batch: int, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor]:
        return self.state(np.zeros(batch, int)), tf.fill([batch], self.longest)

    def step(self, state: DreamState, action: tf.Tensor, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        states, actions, world = state.z.numpy().argmax(axis=1), action.numpy(), self.world
        self.steps += len(actions)
        noop = actions == self.num_actions
        taken = np.where(noop, 0, actions)
        assert (noop | world.legal[states, taken]).all()
        rewards = np.where(noop, 0.0, world.rewards[states, taken])
        following = np.where(noop, states, world.following[states, taken])
        terminal = noop | ~world.legal[following].any(axis=1)
        return self.state(following), tf.constant(rewards, tf.float32), tf.constant(terminal)


class TinyView:
    """A `TinyWorld` as a real environment, seen as `LatentEnv` shows one; it truncates after `longest` steps."""

    structure = None

    def __init__(self, dream: TinyDream) -> None:
        self._dream = dream

    @property
    def state(self) -> DreamState:
        return self._dream.state(np.array([self._state]))

    def reset(self, *, seed: int | None = None) -> tuple[LatentObservation, dict[str, Any]]:
        self._state, self._steps, self._cost_ms = 0, 0, 100.0
        return self.state.observation(), {"cost_ms": self._cost_ms}

    def step(self, action: int) -> tuple[LatentObservation, float, bool, bool, dict[str, Any]]:
        world, noop = self._dream.world, action == self._dream.num_actions
        reward = 0.0 if noop else float(world.rewards[self._state, action])
        self._state = self._state if noop else int(world.following[self._state, action])
        self._steps, self._cost_ms = self._steps + 1, self._cost_ms - reward
        over = noop or not world.legal[self._state].any()
        pair = (world.rules.max() + 1, 0) if noop else (world.rules[action], world.sites[action])
        info = {"cost_ms": self._cost_ms, "rule_name": str(pair[0]), "action": pair}
        return self.state.observation(), reward, over, not over and self._steps >= self._dream.longest, info


class TinySide(DreamSide):
    """The side of a controller that trains in a `TinyDream` and plays in the `TinyView` of the same world."""

    def __init__(self, dream: TinyDream, config: MctsConfig) -> None:
        super().__init__(None, config, DreamConfig(), telescoping=True)  # type: ignore[arg-type]  # not used
        self._dream = dream  # type: ignore[assignment]

    def view(self, env: Any) -> Any:
        return env


def tiny_controller(dream: TinyDream, config: MctsConfig, *, seed: int = 0) -> MctsController:
    return MctsController(dream.world.policy(seed=seed), config, TinySide(dream, config), seed=seed)
