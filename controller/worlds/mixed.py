"""`MixedWorld`: short dreams from the real states that the policy itself reaches.

The errors of a dream grow with its length, and real episodes are dear. So the policy plays a few real episodes now and
then, and learns from many short dreams that begin in their states. What follows a dream is the policy's own estimate.

Source: Janner et al. 2019, "When to Trust Your Model: Model-Based Policy Optimization".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from environment.counting import count
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import Policy, Trajectory
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.players import PolicyPlayer
from worldmodel.dream.recollection import recollect
from worldmodel.world_model import WorldModel


class MixedWorld:
    """Rollouts in dreams of a few steps.

    Before every `refresh`-th rollout, the policy plays real episodes, which are kept in files. The states of these
    episodes, and of the first ones, are what dreams start from.
    """

    def __init__(
        self,
        world_model: WorldModel,
        env: Any,
        first: EpisodeBuffer,
        config: DreamConfig,
        *,
        branch: int,
        refresh: int,
        episodes: int,
        directory: Path,
        done: int = 0,
        seed: int = 0,
    ) -> None:
        """
        Args:
          world_model: a trained model, bound to the start graph of `env`.
          env: the real environment.
          first: the episodes that dreams start from before the policy has played any.
          config: the settings of the dreams.
          branch: the largest number of dreamed steps.
          refresh: number of rollouts between real episodes.
          episodes: number of real episodes each time.
          directory: the folder of their files. Files that are there are read instead of played again.
          done: number of rollouts that an interrupted training has finished.
          seed: the seed of the real episodes.
        """
        self._model, self._env, self._config = world_model, env, config
        self._starts, self._refreshes = EpisodeBuffer(first.rule_names, first.graphs, first), 0
        self._branch, self._refresh, self._episodes = branch, refresh, episodes
        self._directory, self._done, self._seed = directory, done, seed
        self._dream: DreamEnv | None = None

    @property
    def longest(self) -> int:
        """Largest number of steps of a rollout."""
        return self._branch

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Trajectory:
        """Plays `policy` from `batch` real states for at most `branch` steps, or `horizon` steps if that is less."""
        if self._dream is None or self._done % self._refresh == 0:
            self._dream = self._refreshed(policy)
        self._done += 1
        return self._dream.rollout(policy, batch=batch, horizon=min(horizon, self._branch), seed=seed)

    def _refreshed(self, policy: Policy) -> DreamEnv:
        """Plays what is missing, and returns a dream that starts from the states of all episodes so far."""
        number = self._done // self._refresh
        path = self._directory / f"episodes-{number:06d}.npz"
        if not path.is_file():
            self._directory.mkdir(parents=True, exist_ok=True)
            seed = self._seed + number
            recollect(self._model, self._env, PolicyPlayer(policy), episodes=self._episodes, seed=seed).save(path)
        elif self._done % self._refresh == 0:  # a command that was interrupted before its checkpoint has played them
            steps = EpisodeBuffer.load(path).num_transitions
            count(real_steps=steps, cost_evaluations=steps)
        for each in range(self._refreshes, number + 1):
            self._starts.extend(EpisodeBuffer.load(self._directory / f"episodes-{each:06d}.npz"))
        self._refreshes = number + 1
        return DreamEnv.of_episodes(self._model, self._starts, self._config, seed=self._seed, env=self._env)
