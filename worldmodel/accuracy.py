"""Open-loop accuracy of a world model on held-out episodes: it is told the actions and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from environment.correlation import spearman
from worldmodel import metrics
from worldmodel.dream import DreamEnv, DreamState
from worldmodel.episodes import EpisodeBuffer
from worldmodel.reward_table import mean_reward_per_action, mean_reward_per_rule
from worldmodel.rollout import StartStates
from worldmodel.sequences import SequenceBatch
from worldmodel.world_model import WorldModel

_EPISODES_AT_ONCE = 32


class OpenLoop(NamedTuple):
    """Predictions beside reality, for W windows of K steps that start at real states.

    Attributes:
      z, real_z: float32 [K + 1, W, latent]; equal in row 0.
      mask, real_mask: bool [K + 1, W, A], NO-OP left out; equal in row 0.
      reward, real_reward: float32 [K, W], percent.
      actions: int32 [K, W], as really taken.
    """

    z: np.ndarray
    real_z: np.ndarray
    mask: np.ndarray
    real_mask: np.ndarray
    reward: np.ndarray
    real_reward: np.ndarray
    actions: np.ndarray


@dataclass(frozen=True)
class AccuracyAtStep:
    """Accuracy `step` steps after a real state; see `metrics` for each figure.

    Attributes:
      windows: how many windows the figures are taken from.
      latent_error, mask_error: relative to copying the state that the window starts from.
      mask, change: all legal actions; those that were switched since the start.
      return_r2, return_mae: of the summed reward up to this step.
    """

    step: int
    windows: int
    latent_error: float
    mask_error: float
    mask: metrics.BitAccuracy
    change: metrics.BitAccuracy
    return_r2: float
    return_mae: float


@dataclass(frozen=True)
class RewardAccuracy:
    """One-step rewards: the model beside the tables of the training data."""

    spearman: float
    mae: float
    per_action_spearman: float
    per_action_mae: float
    per_rule_spearman: float
    per_rule_mae: float


def open_loop(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    steps: int,
    first: int = 0,
    stride: int = 10,
    temperature: float = 0.0,
    seed: int = 0,
) -> OpenLoop:
    """Plays real action sequences in the model, from real states with their recurrent state.

    Args:
      buffer: held-out episodes; what follows NO-OP or an action outside the model's table cannot be used.
      steps: K.
      first, stride: windows start at these depths of every episode: first, first + stride, …
      temperature, seed: τ of the latents and what is drawn; 0 follows the most likely mean.
    Raises:
      ValueError: if no episode has K usable steps from depth `first`.
    """
    data = world_model.sequences(buffer)
    batches = (data.batch(rows) for rows in np.array_split(np.arange(len(data)), len(data) // _EPISODES_AT_ONCE + 1))
    windows = [window for batch in batches for window in _cut_windows(world_model, batch, steps, first, stride)]
    if not windows:
        raise ValueError(f"no held-out episode has {steps} usable steps from depth {first}; ask for fewer or go deeper")
    z, masks, rewards, actions, hidden, cell = (np.stack(parts, axis=1) for parts in zip(*windows, strict=True))
    played = _play(world_model, z[0], masks[0], hidden[0], cell[0], actions, temperature, seed)
    return OpenLoop(played[0], z, played[1], masks[:, :, :-1], played[2], rewards, actions)


def _cut_windows(
    world_model: WorldModel, batch: SequenceBatch, steps: int, first: int, stride: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """(z, masks, rewards, actions, hidden, cell) of every window; the last two only of its first state."""
    hidden, cell = (part.numpy() for part in world_model.teacher_forced(batch))
    rewrites = batch.valid & (batch.actions < world_model.num_actions)
    for column in range(rewrites.shape[1]):
        for t in range(first, int(rewrites[:, column].sum()) - steps + 1, stride):
            states, taken = (slice(t, t + steps + 1), column), (slice(t, t + steps), column)
            recurrent = (hidden[t : t + 1, column], cell[t : t + 1, column])
            yield batch.z[states], batch.masks[states], batch.rewards[taken], batch.actions[taken], *recurrent


def _play(
    world_model: WorldModel,
    z: np.ndarray,
    mask: np.ndarray,
    hidden: np.ndarray,
    cell: np.ndarray,
    actions: np.ndarray,
    temperature: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents [K + 1, W, Z], masks [K + 1, W, A] and rewards [K, W] of dreamed steps."""
    states = StartStates(z, hidden, cell, mask, np.zeros(len(z), np.int32))
    dream = DreamEnv(world_model, StartStates(*map(tf.constant, states)), temperature=temperature)
    state = DreamState(*map(tf.constant, states[:4]))
    latents, masks, rewards = [z], [mask[:, :-1]], []
    for t, action in enumerate(actions):
        state, reward, _ = dream.step(state, tf.constant(action), tf.constant([seed, t]))
        latents.append(state.z.numpy())
        masks.append(state.action_mask.numpy()[:, :-1])
        rewards.append(reward.numpy())
    return np.stack(latents), np.stack(masks), np.stack(rewards)


def accuracy_at(played: OpenLoop, step: int) -> AccuracyAtStep:
    """The figures after `step` of the K steps."""
    before, predicted, real = played.real_mask[0], played.mask[step], played.real_mask[step]
    totals = played.reward[:step].sum(axis=0), played.real_reward[:step].sum(axis=0)
    return AccuracyAtStep(
        step=step,
        windows=before.shape[0],
        latent_error=metrics.relative_latent_error(played.z[step], played.real_z[step], played.real_z[0]),
        mask_error=metrics.relative_mask_error(predicted, real, before),
        mask=metrics.bit_accuracy(predicted, real),
        change=metrics.change_accuracy(predicted, real, before),
        return_r2=metrics.determination(*totals),
        return_mae=metrics.mean_absolute_error(*totals),
    )


def reward_accuracy(
    world_model: WorldModel, training: EpisodeBuffer, held_out: EpisodeBuffer, *, first: int = 0
) -> RewardAccuracy:
    """One-step rewards from real states at depth `first` or more, beside the tables of the training data."""
    played = open_loop(world_model, held_out, steps=1, first=first, stride=1)
    actions, real = played.actions[0], played.real_reward[0]
    per_action = mean_reward_per_action(training, world_model.table)[actions]
    per_rule = mean_reward_per_rule(training)[world_model.table.rules[actions]]
    return RewardAccuracy(
        spearman=spearman(played.reward[0], real),
        mae=metrics.mean_absolute_error(played.reward[0], real),
        per_action_spearman=spearman(per_action, real),
        per_action_mae=metrics.mean_absolute_error(per_action, real),
        per_rule_spearman=spearman(per_rule, real),
        per_rule_mae=metrics.mean_absolute_error(per_rule, real),
    )
