"""Environments that play in lockstep, so that a policy sees them as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from controller.ppo.learner import any_rows
from controller.records import EpisodeLog, EpisodeRecord
from controller.worlds.ragged import Layout, Row
from worldmodel.data.trajectory import Trajectory


class Lockstep:
    """Rollouts of a policy that sees graphs in several real environments at once."""

    def __init__(self, make_env: Callable[[], Any]) -> None:
        """
        Args:
          make_env: a function that builds one more environment; it is called once for each row of the largest batch.
        """
        self._make_env = make_env
        self._envs: list[Any] = []
        self._programs: dict[Any, Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]] = {}

    @property
    def longest(self) -> int:
        """Number of steps after which the environments truncate an episode."""
        return int(self._grown(1)[0].unwrapped.max_steps)

    def _grown(self, batch: int) -> list[Any]:
        while len(self._envs) < batch:
            self._envs.append(self._make_env())
        return self._envs[:batch]

    def rollout(self, policy: Any, *, batch: int, horizon: int, seed: int) -> tuple[Trajectory, list[EpisodeRecord]]:
        """Plays episodes; see `RealWorld.rollout`. Returns their trajectory, and the record of each."""
        rows = [_Row(policy.view(env), seed) for env in self._grown(batch)]
        layout = rows[0].layout
        log = _Log(batch, horizon)
        for step in range(horizon):
            playing = [index for index, row in enumerate(rows) if not row.episode.over]
            if not playing:
                break
            seen = [rows[index].seen for index in playing]
            decided = self._decide(policy, layout.stack(seen), seed, step)
            log.observe(step, playing, seen, decided)
            for index, action in zip(playing, decided[0], strict=True):
                log.reward[step, index], log.terminal[step, index] = rows[index].take(int(action))
        self._bootstrap(policy, rows, log, seed)
        return log.trajectory(layout), [row.episode.record() for row in rows]

    def _decide(self, policy: Any, seen: Any, seed: int, step: int) -> list[np.ndarray]:
        """Returns (action, log-probability, value) of every graph."""
        if policy not in self._programs:
            specs = [any_rows(seen), tf.TensorSpec([2], tf.int32)]
            self._programs[policy] = tf.function(policy, input_signature=specs, autograph=False)
        return [part.numpy() for part in self._programs[policy](seen, tf.constant([seed, step], tf.int32))]

    def _bootstrap(self, policy: Any, rows: list[_Row], log: _Log, seed: int) -> None:
        """Writes the values of the last states of truncated rows, and of rows that reached the horizon."""
        left = [index for index, row in enumerate(rows) if not row.episode.terminated]
        if left:
            seen = rows[0].layout.stack([rows[index].seen for index in left])
            values = self._decide(policy, seen, seed, len(log.reward))[2]
            log.value[log.alive[:, left].sum(axis=0), left] = values


class _Row:
    """One environment in the middle of its episode."""

    def __init__(self, view: Any, seed: int) -> None:
        self._view = view
        self.layout: Layout[Any] = view.layout
        self.seen, info = view.begin(seed=seed)
        self.episode = EpisodeLog("training", seed, info)

    def take(self, action: int) -> tuple[float, bool]:
        self.seen, reward, terminated, truncated, info = self._view.advance(action)
        self.episode.add(action, reward, terminated, truncated, info)
        return reward, self.episode.terminated


class _Log:
    """A trajectory while it is played."""

    def __init__(self, batch: int, horizon: int) -> None:
        steps, states = (horizon, batch), (horizon + 1, batch)
        self.action, self.alive, self.terminal = np.zeros(steps, np.int32), np.zeros(steps, bool), np.zeros(steps, bool)
        self.reward, self.log_prob = np.zeros(steps, np.float32), np.zeros(steps, np.float32)
        self.value = np.zeros(states, np.float32)
        self._seen: dict[tuple[int, int], Row] = {}  # the states that a policy saw, by step and row

    def observe(self, step: int, playing: list[int], seen: list[Row], decided: list[np.ndarray]) -> None:
        self.action[step, playing], self.log_prob[step, playing], self.value[step, playing] = decided
        self.alive[step, playing] = True
        self._seen.update({(step, index): row for index, row in zip(playing, seen, strict=True)})

    def trajectory(self, layout: Layout[Any]) -> Trajectory:
        """Returns the trajectory. Padding, and states in which no action was taken, are graphs without nodes."""
        padding = layout.empty(next(iter(self._seen.values())))
        states = [self._seen.get(place, padding) for place in np.ndindex(self.value.shape)]
        fields = (self.action, self.reward, self.terminal, self.alive)
        action, reward, terminal, alive = (tf.constant(field) for field in fields)
        return Trajectory(
            state=layout.stack(states),
            legal=(),
            action=action,
            reward=reward,
            terminal=terminal,
            alive=alive,
            log_prob=tf.constant(self.log_prob),
            value=tf.constant(self.value),
        )
