"""Who plays in a dream: a policy as one program over many rows, or anything else that acts, one row after another."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from environment.substitution.options import require_options
from worldmodel.data.trajectory import LatentObservation, Policy
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.step import DreamState
from worldmodel.errors import IllegalAction

_HIGHEST = 2**31


class Played(NamedTuple):
    """B dreams of at most T steps.

    Attributes:
      action: int32 [T, B], NO-OP behind the end of a row.
      reward: float32 [T, B].
      legal: bool [T + 1, B, A + 1].
      alive: bool [T, B], the steps that were taken.
    """

    action: np.ndarray
    reward: np.ndarray
    legal: np.ndarray
    alive: np.ndarray


class Player(Protocol):
    """Acts on the observations of a dream, whether a dream or a `LatentEnv` gives them."""

    def begin(self, view: Any, generator: np.random.Generator) -> None:
        """Prepares an episode; `view` gives its observations."""

    def choose(self, observation: LatentObservation, generator: np.random.Generator) -> int:
        """Returns a legal action for an observation of one row."""

    def dream(self, dream: DreamEnv, *, episodes: int, horizon: int, seed: int) -> Played:
        """Plays `episodes` dreams of at most `horizon` steps."""


class PolicyPlayer:
    """A `Policy` that plays."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._choose = tf.function(lambda observation, seed: policy(observation, seed)[0], autograph=False)

    def begin(self, view: Any, generator: np.random.Generator) -> None:
        return

    def choose(self, observation: LatentObservation, generator: np.random.Generator) -> int:
        seed = tf.constant(generator.integers(_HIGHEST, size=2), tf.int32)
        return int(self._choose(observation, seed)[0])

    def dream(self, dream: DreamEnv, *, episodes: int, horizon: int, seed: int) -> Played:
        rollout = dream.rollout(self._policy, batch=episodes, horizon=horizon, seed=seed)
        return Played(*(part.numpy() for part in (rollout.action, rollout.reward, rollout.legal, rollout.alive)))


class ActingPlayer:
    """A `controller.interface.Controller` without a policy, which acts on one observation at a time.

    It takes NO-OP after `max_steps` steps of the controller, which is not asked for any more.
    """

    def __init__(self, controller: Any, *, deterministic: bool = False) -> None:
        self._controller, self._deterministic, self._steps = controller, deterministic, 0

    def begin(self, view: Any, generator: np.random.Generator) -> None:
        self._steps = 0
        self._controller.begin_episode(view, seed=int(generator.integers(_HIGHEST)))

    def choose(self, observation: LatentObservation, generator: np.random.Generator) -> int:
        limit = self._controller.max_steps
        if limit is not None and self._steps >= limit:
            return int(observation.action_mask.shape[1]) - 1
        self._steps += 1
        return int(self._controller.act(observation, deterministic=self._deterministic))

    def dream(self, dream: DreamEnv, *, episodes: int, horizon: int, seed: int) -> Played:
        action = np.full((horizon, episodes), dream.num_actions, np.int32)
        reward, alive = np.zeros(action.shape, np.float32), np.zeros(action.shape, bool)
        legal = np.zeros((horizon + 1, episodes, dream.num_actions + 1), bool)
        for row in range(episodes):
            generator = np.random.default_rng([seed, row])
            view = DreamView(dream, horizon)
            observation, _ = view.reset(seed=int(generator.integers(_HIGHEST)))
            self.begin(view, generator)
            step, over = 0, False
            legal[0, row] = observation.action_mask.numpy()[0]
            while not over:
                action[step, row] = self.choose(observation, generator)
                observation, reward[step, row], terminated, truncated, _ = view.step(int(action[step, row]))
                alive[step, row], step, over = True, step + 1, terminated or truncated
                legal[step:, row] = observation.action_mask.numpy()[0]
        return Played(action, reward, legal, alive)


def player_of(controller: Any) -> Player:
    """Returns the player that plays as a controller does that has learned in a dream."""
    return ActingPlayer(controller) if controller.policy is None else PolicyPlayer(controller.policy)


class DreamView:
    """A dream of one row, with Gymnasium's `reset` and `step` and the observations of a `LatentEnv`.

    Attributes: num_actions (A, NO-OP not counted), structure (that of the dream).
    """

    def __init__(self, dream: DreamEnv, horizon: int) -> None:
        """
        Args:
          dream: the dream.
          horizon: the number of steps after which an episode is truncated.
        """
        self._dream, self._horizon, self._limit = dream, horizon, horizon
        self.num_actions, self.structure = dream.num_actions, dream.structure

    def reset(
        self, *, seed: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[LatentObservation, dict[str, Any]]:
        """Draws a start state.

        Args:
          options: `max_steps`, if not None, limits this episode; there is no other option.
        Raises:
          ValueError: `max_steps` is no whole number of at least 1, or there is no such option.
        """
        limit = require_options(options, "max_steps").get("max_steps")
        self._limit = self._horizon if limit is None else limit
        self._seed, self._steps = seed, 0
        self._state = self._dream.start(1, tf.constant([seed, -1], tf.int32))
        return self._state.observation(), {}

    @property
    def state(self) -> DreamState:
        """The present state, with one row."""
        return self._state

    def step(self, action: int) -> tuple[LatentObservation, float, bool, bool, dict[str, Any]]:
        """Dreams what follows an action in [0, A].

        Raises:
          IllegalAction: the action is outside [0, A], or the dream holds it to be illegal in this state.
        """
        if not 0 <= action <= self.num_actions or not self._state.action_mask.numpy()[0, action]:
            raise IllegalAction(f"action {action} is illegal in this state of the dream")
        seed = tf.constant([self._seed, self._steps], tf.int32)
        self._state, reward, terminal = self._dream.step(self._state, tf.constant([action], tf.int32), seed)
        self._steps += 1
        truncated = self._steps >= self._limit
        return self._state.observation(), float(reward[0]), bool(terminal[0]), truncated, {}
