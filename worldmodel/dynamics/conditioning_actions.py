"""Conditioning actions: the one rewrite near an action whose legality explains most of the action's rewards.

How much a rewrite saves depends on what earlier rewrites made of the operators around it. Which rewrites are legal
there depends on the same. One of these bits often explains nearly all: merging the groups of a convolution costs four
times as much while three of them are still to be merged. A network learns this in many steps; a table of two means
holds it at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer

LEAST_STEPS = 3
"""The fewest steps with the bit on, and with the bit off. The rewards of fewer steps can differ by chance."""
LEAST_ODDS = 20.0
"""The least odds for a bit against none. A wrong bit does most harm in states that only good policies reach."""
RELATIVE_ROUNDING = 1e-6
"""Rewards count as equal if their variance is below this share of their mean square."""


class ConditionedRewards(NamedTuple):
    """The rewards of A actions and NO-OP, each split by one bit.

    Attributes:
      bit: int32 [A + 1], an index into the mask of legal actions; A (NO-OP, always legal) if no bit explains anything.
      counts: float64 [A + 1, 2], the numbers of steps with the bit off and on.
      totals: float64 [A + 1, 2], the sums of their rewards.
    """

    bit: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


def conditioned_rewards(buffer: EpisodeBuffer, table: ActionTable, neighbours: np.ndarray) -> ConditionedRewards:
    """Splits every action's rewards by the bit that explains most of them, if it does so beyond doubt.

    The odds are those of normal distributions with two means and with one, over √n of n steps for the second mean
    (Schwarz 1978) and over m for choosing among m bits.

    Args:
      buffer: episodes of one start graph.
      table: its A actions.
      neighbours: int32 [A + 1, P], the candidates, see `neighbourhood.neighbour_table`.
    """
    size = table.num_actions + 1
    steps, totals, squares = np.zeros(size), np.zeros(size), np.zeros(size)
    steps_on, totals_on = np.zeros(neighbours.shape), np.zeros(neighbours.shape)
    for episode in EpisodeData(buffer, table):
        actions, rewards = episode.action[:, 0], episode.reward[:, 0].astype(float)
        bits = np.take_along_axis(episode.legal[:-1, 0], neighbours[actions], axis=1)
        np.add.at(steps, actions, 1.0)
        np.add.at(totals, actions, rewards)
        np.add.at(squares, actions, rewards**2)
        np.add.at(steps_on, actions, bits)
        np.add.at(totals_on, actions, bits * rewards[:, np.newaxis])
    best, explained, choices = _most_explained(steps[:, np.newaxis], totals[:, np.newaxis], steps_on, totals_on)
    rounding = np.maximum(RELATIVE_ROUNDING * squares, np.finfo(float).tiny)
    deviations = np.maximum(squares - totals**2 / np.maximum(steps, 1.0), rounding)
    left = np.maximum(deviations - explained, rounding)
    chosen = choices > 0
    log_odds = 0.5 * (steps[chosen] - 2.0) * np.log(deviations[chosen] / left[chosen])
    chosen[chosen] = log_odds - 0.5 * np.log(steps[chosen]) - np.log(choices[chosen]) > np.log(LEAST_ODDS)
    best_bit = np.arange(size), best
    on = np.where(chosen, steps_on[best_bit], steps), np.where(chosen, totals_on[best_bit], totals)
    return ConditionedRewards(
        np.where(chosen, neighbours[best_bit], table.num_actions).astype(np.int32),
        np.stack([steps - on[0], on[0]], axis=1),
        np.stack([totals - on[1], on[1]], axis=1),
    )


def _most_explained(
    steps: np.ndarray, totals: np.ndarray, steps_on: np.ndarray, totals_on: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the slot of the best bit, the sum of squares that it explains, and the number of choices: [A + 1] each.

    Args:
      steps, totals: [A + 1, 1], how often an action was taken, and the sum of its rewards.
      steps_on, totals_on: [A + 1, P], the same for the steps with a bit on.
    """
    steps_off, totals_off = steps - steps_on, totals - totals_on
    explained = (
        totals_on**2 / np.maximum(steps_on, 1.0)
        + totals_off**2 / np.maximum(steps_off, 1.0)
        - totals**2 / np.maximum(steps, 1.0)
    )
    choices = np.minimum(steps_on, steps_off) >= LEAST_STEPS
    explained = np.where(choices, explained, 0.0)
    best = explained.argmax(axis=1)
    return best, explained[np.arange(len(best)), best], choices.sum(axis=1)
