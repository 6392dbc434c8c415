"""Mean rewards per action and per rule. The reward head starts from them, and baselines predict by them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer

MUCH_MORE_VARIED = 2.0
"""If a rule's rewards vary by this factor more than was known, little was learned of them beyond their mean."""


def scaled_to_start(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with rewards in percent of the start graph's cost instead of the rewritten graph's.

    A rewrite saves much the same time wherever it is done, but not the same percentage.
    """
    episodes = [replace(each, rewards=each.rewards * (each.cost_ms[:-1] / each.cost_ms[0])) for each in buffer]
    return EpisodeBuffer(buffer.rule_names, buffer.graphs, episodes)


def mean_reward_per_rule(buffer: EpisodeBuffer) -> np.ndarray:
    """Returns the mean reward of every rule and of NO-OP: float32 [R + 1].

    A rule that was never taken gets the overall mean, and NO-OP gets 0.
    """
    pairs, rewards = _steps(buffer)
    rules = pairs[:, 0]
    totals, counts = _sums(rules, rewards, buffer.num_rules + 1)
    overall = rewards.mean() if rewards.size else 0.0
    fallback = np.append(np.full(buffer.num_rules, overall), 0.0)
    return np.where(counts > 0, totals / np.maximum(counts, 1), fallback).astype(np.float32)


def reward_spread_per_rule(buffer: EpisodeBuffer, *, shrinkage: float = 0.01) -> np.ndarray:
    """Returns the standard deviation of every rule's rewards: float32 [R + 1]; 0 for NO-OP if it was never taken.

    Args:
      shrinkage: number of pseudo-observations of the overall variance that are added, for rules that are rare.
    """
    pairs, rewards = _steps(buffer)
    deviations = rewards - mean_reward_per_rule(buffer)[pairs[:, 0]]
    totals, counts = _sums(pairs[:, 0], deviations**2, buffer.num_rules + 1)
    prior = np.append(np.full(buffer.num_rules, rewards.var()), 0.0)
    return np.sqrt((totals + shrinkage * prior) / (counts + shrinkage)).astype(np.float32)


def reward_deviation(buffer: EpisodeBuffer) -> float:
    """Returns the standard deviation of all rewards, or 1 if they are all the same."""
    return float(_steps(buffer)[1].std()) or 1.0


class ActionRewards(NamedTuple):
    """Statistics of the rewards of a table's A actions and NO-OP in the training data.

    Attributes:
      mean: float32 [A + 1], the mean reward of the action, shrunk towards the mean of its rule.
      spread: float32 [A + 1], the standard deviation of the rewards of the action's rule.
      counts: float32 [A + 1], the number of training steps in the mean; infinite if the mean was kept from earlier
        data (`keeping`) or is that of a rule (`of_rules`).
    """

    mean: np.ndarray
    spread: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, buffer: EpisodeBuffer, table: ActionTable, *, shrinkage: float = 1.0) -> ActionRewards:
        """Computes them from episodes.

        Args:
          buffer: episodes of one start graph, because locations in different graphs have nothing in common.
          table: the actions of the episodes.
          shrinkage: number of pseudo-observations of the rule's mean that are added to those of the action.
        """
        pairs, rewards = _steps(buffer)
        totals, counts = _sums(table.encode(pairs), rewards, table.num_actions + 1)
        prior = mean_reward_per_rule(buffer)[table.rules]
        mean = (totals + shrinkage * prior) / (counts + shrinkage)
        spread = reward_spread_per_rule(buffer)[table.rules]
        return cls(mean.astype(np.float32), spread, counts.astype(np.float32))

    @classmethod
    def of_rules(cls, mean: np.ndarray, spread: np.ndarray, table: ActionTable) -> ActionRewards:
        """Makes them for a graph without training data, from the mean and spread float32 [R + 1] of every rule."""
        means = mean[table.rules]
        return cls(means, spread[table.rules], np.full_like(means, np.inf))

    def keeping(self, table: ActionTable, before: ActionRewards, known: ActionTable) -> ActionRewards:
        """Returns them with the mean and spread that the weights of known actions were trained with.

        A known action whose rule's rewards now vary more than `MUCH_MORE_VARIED` times as much gets the new ones.

        Args:
          table: the actions of `self`.
          before: the statistics that the weights were trained with.
          known: the actions of `before`.
        """
        places = np.append(known.find_codes(table.codes), known.num_actions)
        kept = (places >= 0) & (self.spread <= MUCH_MORE_VARIED * before.spread[places])
        return ActionRewards(
            np.where(kept, before.mean[places], self.mean),
            np.where(kept, before.spread[places], self.spread),
            np.where(kept, np.float32(np.inf), self.counts),
        )


def _steps(buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.concatenate([np.zeros((0, 2), np.int32), *(episode.actions for episode in buffer)])
    rewards = np.concatenate([np.zeros(0), *(episode.rewards for episode in buffer)])
    return pairs, rewards


def _sums(keys: np.ndarray, rewards: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    known = keys >= 0
    return np.bincount(keys[known], rewards[known], size), np.bincount(keys[known], minlength=size)
