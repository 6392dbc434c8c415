"""Rewards that sum to zero around every loop, whatever a world model says.

Rewards that are differences of a cost telescope: a plan that returns to a state has earned nothing in between. A world
model's errors do not telescope, and a policy that trains in a dream exploits them: it repeats a loop whose predicted
rewards sum to a little more than zero. The rewards of a dream are therefore corrected so that they telescope too.
"""

from __future__ import annotations

import numpy as np


def first_visits(masks: np.ndarray) -> np.ndarray:
    """Returns when each state was first visited; states of a rollout with equal legal actions count as the same.

    A rewrite uses up its own match, so that a plan that restores the whole mask has undone its rewrites. Two orders of
    the same rewrites also give equal masks, and they do lead to the same graph.

    Args:
      masks: bool [time + 1, batch, actions], the legal actions of each state.
    Returns:
      int [time + 1, batch], the first time ≤ t with the mask of time t.
    """
    packed = np.packbits(masks, axis=2)
    rows = packed.view(np.dtype((np.void, packed.shape[2])))[..., 0]
    numbers = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)
    return (numbers[np.newaxis] == numbers[:, np.newaxis]).argmax(axis=1)


def telescoped(rewards: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """Returns the rewards, changed so that each return to an earlier state pays back what was earned since then.

    Args:
      rewards: float32 [time, batch].
      visits: int [time + 1, batch], from `first_visits`.
    Returns:
      float32 [time, batch]; equal to `rewards` where no state is visited twice.
    """
    earned = np.zeros((len(rewards) + 1, rewards.shape[1]), np.float64)
    rows = np.arange(rewards.shape[1])
    for t in range(len(rewards)):
        fresh = visits[t + 1] == t + 1
        earned[t + 1] = np.where(fresh, earned[t] + rewards[t], earned[visits[t + 1], rows])
    return np.diff(earned, axis=0).astype(np.float32)


def settled(rewards: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Returns the `telescoped` rewards of rollouts [time, batch] with masks [time + 1, batch, actions]."""
    return telescoped(rewards, first_visits(masks))
