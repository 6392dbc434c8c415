"""Recollection: real episodes of a policy that sees latents, for the next round of training its world model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.episodes import Episode, EpisodeBuffer, RewriteEnv, collect
from worldmodel.latent_env import LatentEnv
from worldmodel.rollout import Policy
from worldmodel.world_model import WorldModel

_LATENT = "latent"


def recollect(
    world_model: WorldModel,
    env: RewriteEnv,
    policy: Policy,
    *,
    episodes: int,
    seed: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> EpisodeBuffer:
    """Real episodes of a policy; `EpisodeBuffer.extend` adds them to those that the model was trained on.

    All that is legal is noted, but the policy can only take what the model's table holds.

    Args:
      env: the real environment.
      policy: as `DreamEnv.rollout` takes it; it sees the real states through `world_model`.
      episodes, seed, on_episode: see `worldmodel.episodes.collect`.
    """
    choose = tf.function(lambda observation, seed: policy(observation, seed)[0], autograph=False)

    def behave(observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        action = choose(observation[_LATENT], tf.constant(generator.integers(2**31, size=2), tf.int32))
        return world_model.table.decode(action.numpy())[0]

    return collect(_Latent(env, world_model), behave, episodes, seed, on_episode=on_episode)


class _Latent:
    """A `RewriteEnv` whose observations hold what `LatentEnv` makes of the state, beside the state itself."""

    def __init__(self, env: RewriteEnv, world_model: WorldModel) -> None:
        self._real = _Remembering(env)
        self._latent = LatentEnv(self._real, world_model)
        self.rule_names, self.num_locations = env.rule_names, env.num_locations
        self.legal_actions = env.legal_actions

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        latent, info = self._latent.reset(seed=seed)
        return {**self._real.observation, _LATENT: latent}, info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        (index,) = self._latent.table.encode(action)
        latent, reward, terminated, truncated, info = self._latent.step(int(index))
        return {**self._real.observation, _LATENT: latent}, reward, terminated, truncated, info


class _Remembering:
    """Passes everything on and keeps the last observation, which `LatentEnv` does not show."""

    def __init__(self, env: RewriteEnv) -> None:
        self._env = env
        self.observation: dict[str, Any] = {}
        self.rule_names, self.num_locations = env.rule_names, env.num_locations
        self.legal_actions = env.legal_actions

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.observation, info = self._env.reset(seed=seed)
        return self.observation, info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        self.observation, reward, terminated, truncated, info = self._env.step(action)
        return self.observation, reward, terminated, truncated, info
