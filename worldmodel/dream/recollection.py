"""Recollection: real episodes of a player that sees latents, for the next round of training its world model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from worldmodel.data.episodes import Episode, EpisodeBuffer, RewriteEnv, collect
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.players import Player
from worldmodel.world_model import WorldModel

_LATENT, _IS_FIRST = "latent", "is first"


def recollect(
    world_model: WorldModel,
    env: RewriteEnv,
    player: Player,
    *,
    episodes: int,
    seed: int,
    dream: DreamEnv | None = None,
    dreamed: float = 0.5,
    on_episode: Callable[[Episode], None] | None = None,
) -> EpisodeBuffer:
    """Returns real episodes of a player; `EpisodeBuffer.extend` adds them to those that the model was trained on.

    In some episodes it sees the real states. In others it first plays a dream, and then the dreamed actions are taken
    in reality, except those that turn out to be illegal. These episodes lead to the states where dreams go wrong. A
    player that sees the real states would not go there, and the model would not learn from them.

    The episodes hold all legal actions, but the player can only take actions in the model's table.

    Args:
      env: the real environment.
      player: it sees the real states through `world_model`.
      dream: a `DreamEnv.of_root` of `world_model`; None: the player sees the real states in all episodes.
      dreamed: the share of episodes that follow a dream.
      episodes, seed, on_episode: see `worldmodel.data.episodes.collect`.
    """
    latent = _Latent(env, world_model)
    behaviour = _Behaviour(world_model, latent, player, dream, dreamed)
    return collect(latent, behaviour, episodes, seed, on_episode=on_episode)


class _Behaviour:
    """A behaviour policy that follows the real states or a dream; chance decides which when an episode begins."""

    def __init__(
        self, world_model: WorldModel, env: _Latent, player: Player, dream: DreamEnv | None, dreamed: float
    ) -> None:
        self._table, self._longest = world_model.table, world_model.statistics.longest
        self._env, self._player, self._dream, self._dreamed = env, player, dream, dreamed
        self._plan: list[int] | None = None

    def __call__(self, observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        if observation[_IS_FIRST]:
            self._plan = self._drawn_plan(generator)
            if self._plan is None:
                self._player.begin(self._env.latent, generator)
        return self._table.decode(np.array([self._action(observation, generator)]))[0]

    def _drawn_plan(self, generator: np.random.Generator) -> list[int] | None:
        """Returns the actions of a dream, last first; None for an episode in which the player sees the real states."""
        if self._dream is None or generator.random() >= self._dreamed:
            return None
        seed = int(generator.integers(2**31))
        played = self._player.dream(self._dream, episodes=1, horizon=self._longest, seed=seed)
        taken = played.action[played.alive]
        return [int(action) for action in taken[::-1]]

    def _action(self, observation: dict[str, Any], generator: np.random.Generator) -> int:
        if self._plan is None:
            return self._player.choose(observation[_LATENT], generator)
        legal = observation[_LATENT].action_mask.numpy()[0]
        while self._plan:
            action = self._plan.pop()
            if legal[action]:
                return action
        return self._table.num_actions


class _Latent:
    """A `RewriteEnv` whose observations hold the observation of `LatentEnv` beside the real one."""

    def __init__(self, env: RewriteEnv, world_model: WorldModel) -> None:
        self._real = _Remembering(env)
        self.latent = LatentEnv(self._real, world_model)
        self.rule_names, self.num_locations, self.everywhere = env.rule_names, env.num_locations, env.everywhere
        self.legal_actions = env.legal_actions

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        latent, info = self.latent.reset(seed=seed)
        return {**self._real.observation, _LATENT: latent, _IS_FIRST: True}, info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        (index,) = self.latent.table.encode(action)
        latent, reward, terminated, truncated, info = self.latent.step(int(index))
        observation = {**self._real.observation, _LATENT: latent, _IS_FIRST: False}
        return observation, reward, terminated, truncated, info


class _Remembering:
    """A `RewriteEnv` that passes everything on and keeps the last observation, which `LatentEnv` does not show."""

    def __init__(self, env: RewriteEnv) -> None:
        self._env = env
        self.observation: dict[str, Any] = {}
        self.rule_names, self.num_locations, self.everywhere = env.rule_names, env.num_locations, env.everywhere
        self.legal_actions = env.legal_actions

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.observation, info = self._env.reset(seed=seed)
        return self.observation, info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        self.observation, reward, terminated, truncated, info = self._env.step(action)
        return self.observation, reward, terminated, truncated, info
