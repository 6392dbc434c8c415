"""The trivial predictors that every figure of a world model is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.reward_table import ActionRewards, mean_reward_per_rule

if TYPE_CHECKING:  # tables that only name predictors must not import TensorFlow
    from worldmodel.accuracy.open_loop import Windows
    from worldmodel.world_model import WorldModel

COPY_LAST, MEAN, ZERO, PER_RULE, PER_SITE = "copy_last", "mean", "zero", "per_rule", "per_site"
PREDICTORS: Mapping[str, str] = {
    COPY_LAST: "what was seen last: the state that the prediction starts from, the reward of the step before it",
    MEAN: "the mean of the training data: of rewards, latents and costs, and for each bit what it mostly is",
    ZERO: "nothing is earned",
    PER_RULE: "the mean reward of the action's rule in the training data",
    PER_SITE: "the mean reward of the action's (rule, site), drawn towards its rule's where it was seldom taken",
}


@dataclass(frozen=True, eq=False)
class Trivial:
    """The trivial predictors, made from the training data alone.

    Attributes:
      mean_reward: the mean reward of all steps.
      per_rule, per_site: float32 [A + 1], for each action of the table the mean reward of its rule (everywhere, for an
        everywhere-action) and of its (rule, site).
      usual_mask: bool [A], the bits that are set in more than half of the states.
      mean_latent: float32 [Z], the mean of all states, weighted by how often they are visited.
    """

    mean_reward: float
    per_rule: np.ndarray
    per_site: np.ndarray
    usual_mask: np.ndarray
    mean_latent: np.ndarray

    @classmethod
    def of(cls, training: EpisodeBuffer, model: WorldModel) -> Trivial:
        """Returns the predictors made from training episodes, for a model's actions and latents."""
        table = model.table
        rewards = np.concatenate([np.zeros(0), *(episode.rewards for episode in training)])
        codes = np.concatenate([np.zeros(0, np.int32), *(episode.legal_codes for episode in training)])
        known = table.find_codes(codes)
        states = sum(episode.num_steps + 1 for episode in training)
        return cls(
            mean_reward=float(rewards.mean()) if len(rewards) else 0.0,
            per_rule=mean_reward_per_rule(training)[table.kinds],
            per_site=ActionRewards.of(training, table).mean,
            usual_mask=2 * np.bincount(known[known >= 0], minlength=table.num_actions) > states,
            mean_latent=_mean_latent(training, model),
        )

    def rewards(self, windows: Windows) -> dict[str, np.ndarray]:
        """Returns the predicted rewards [K, W] by predictor."""
        real = windows.trajectory.reward
        return {
            COPY_LAST: np.broadcast_to(windows.last_reward, real.shape),
            MEAN: np.full_like(real, self.mean_reward),
            ZERO: np.zeros_like(real),
            PER_RULE: self.per_rule[windows.trajectory.action],
            PER_SITE: self.per_site[windows.trajectory.action],
        }

    def masks(self, windows: Windows) -> dict[str, np.ndarray]:
        """Returns the predicted bits [W, A + E] by predictor, equal after any number of steps; see `Windows.legal`."""
        before = windows.legal()[0]
        usual = np.pad(self.usual_mask, (0, len(windows.unknown_rules)))
        return {COPY_LAST: before, MEAN: np.broadcast_to(usual, before.shape)}

    def latents(self, windows: Windows) -> dict[str, np.ndarray]:
        """Returns the predicted latents [W, Z] by predictor."""
        return {
            COPY_LAST: windows.trajectory.state[0],
            MEAN: np.broadcast_to(self.mean_latent, windows.trajectory.state[0].shape),
        }


def _mean_latent(training: EpisodeBuffer, model: WorldModel) -> np.ndarray:
    """Returns the mean latent of all visits: float32 [Z]; 0 if there are none."""
    visits = Counter(state for episode in training for state in episode.hashes)
    latents = model.encode(training.used_graphs())
    if not visits:
        return np.zeros(model.latent_size, np.float32)
    states = list(visits)
    mean = np.average([latents[state] for state in states], axis=0, weights=[visits[state] for state in states])
    return np.asarray(mean, np.float32)
