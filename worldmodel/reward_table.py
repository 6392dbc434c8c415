"""Mean rewards per action and per rule: where the reward head starts, and the predictors it has to beat."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from worldmodel.actions import ActionTable
from worldmodel.episodes import EpisodeBuffer

MUCH_MORE_VARIED = 2.0
"""By this factor a rule's rewards vary more than was known: what was learned beside their mean was next to none."""


def in_percent_of_start(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """The same episodes with rewards in percent of the start graph's cost, and not of the graph that is rewritten.

    What a rewrite saves is much the same wherever it is done, and what it is worth in percent is not.
    """
    episodes = [replace(each, rewards=each.rewards * (each.cost_ms[:-1] / each.cost_ms[0])) for each in buffer]
    return EpisodeBuffer(buffer.rule_names, buffer.graphs, episodes)


def mean_reward_per_rule(buffer: EpisodeBuffer) -> np.ndarray:
    """Mean reward of every rule and of NO-OP: float32 [R + 1]; of one never taken, the overall mean (NO-OP: 0)."""
    pairs, rewards = _steps(buffer)
    rules = pairs[:, 0]
    totals, counts = _sums(rules, rewards, buffer.num_rules + 1)
    overall = rewards.mean() if rewards.size else 0.0
    fallback = np.append(np.full(buffer.num_rules, overall), 0.0)
    return np.where(counts > 0, totals / np.maximum(counts, 1), fallback).astype(np.float32)


def mean_reward_per_action(buffer: EpisodeBuffer, table: ActionTable, *, shrinkage: float = 1.0) -> np.ndarray:
    """Mean reward of every action of the table, drawn towards its rule's mean where data is thin: float32 [A + 1].

    Args:
      buffer: episodes of one start graph: locations of different ones have nothing to do with each other.
      shrinkage: how many pseudo-observations of the rule's mean are added to each action's own.
    """
    pairs, rewards = _steps(buffer)
    totals, counts = _sums(table.encode(pairs), rewards, table.num_actions + 1)
    prior = mean_reward_per_rule(buffer)[table.rules]
    return ((totals + shrinkage * prior) / (counts + shrinkage)).astype(np.float32)


def reward_spread_per_rule(buffer: EpisodeBuffer, *, shrinkage: float = 0.01) -> np.ndarray:
    """Standard deviation of every rule's rewards: float32 [R + 1]; 0 for NO-OP if it was never taken.

    Args:
      shrinkage: how many pseudo-observations of the overall variance are added, for rules that were taken rarely.
    """
    pairs, rewards = _steps(buffer)
    deviations = rewards - mean_reward_per_rule(buffer)[pairs[:, 0]]
    totals, counts = _sums(pairs[:, 0], deviations**2, buffer.num_rules + 1)
    prior = np.append(np.full(buffer.num_rules, rewards.var()), 0.0)
    return np.sqrt((totals + shrinkage * prior) / (counts + shrinkage)).astype(np.float32)


def reward_deviation(buffer: EpisodeBuffer) -> float:
    """Standard deviation of all rewards; 1 if they are all the same."""
    return float(_steps(buffer)[1].std()) or 1.0


class ActionRewards(NamedTuple):
    """What training data say of the rewards of a table's A actions and NO-OP: float32 [A + 1] each.

    Attributes:
      mean: of the action, see `mean_reward_per_action`.
      spread: standard deviation, of its rule.
      counts: how many of the steps that are learned from are in the mean; infinite where not all of them are.
    """

    mean: np.ndarray
    spread: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, buffer: EpisodeBuffer, table: ActionTable) -> ActionRewards:
        """From episodes of one start graph, whose actions the table holds."""
        taken = table.encode(_steps(buffer)[0])
        counts = np.bincount(taken, minlength=table.num_actions + 1).astype(np.float32)
        return cls(mean_reward_per_action(buffer, table), reward_spread_per_rule(buffer)[table.rules], counts)

    def keeping(self, table: ActionTable, before: ActionRewards, known: ActionTable) -> ActionRewards:
        """These of more data, but known actions keep the mean and spread that weights were learned against.

        Unless their rule's rewards now vary more than `MUCH_MORE_VARIED` times as much.

        Args:
          table: whose actions these are of.
          before: what was known, of the actions of `known`.
        """
        places = np.append(known.find_codes(table.codes), known.num_actions)
        kept = (places >= 0) & (self.spread <= MUCH_MORE_VARIED * before.spread[places])
        return ActionRewards(
            np.where(kept, before.mean[places], self.mean),
            np.where(kept, before.spread[places], self.spread),
            np.where(kept, np.float32(np.inf), self.counts),
        )

    def without_own(self, rewards: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Rewards as far from their action's mean as they are from the mean of all its other steps.

        A step that is in the mean which its reward is told from has been told half of it where the action was taken
        once, as the rule's mean counts as one step. What is learned should be what the other steps leave to be known.

        Args:
          rewards: float32 [...]; actions: int [...], of each.
        """
        mean, counts = self.mean[actions], self.counts[actions]
        moved: np.ndarray = rewards + (rewards - mean) / np.maximum(counts, 1.0)
        return moved.astype(np.float32)


def _steps(buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.concatenate([np.zeros((0, 2), np.int32), *(episode.actions for episode in buffer)])
    rewards = np.concatenate([np.zeros(0), *(episode.rewards for episode in buffer)])
    return pairs, rewards


def _sums(keys: np.ndarray, rewards: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    known = keys >= 0
    return np.bincount(keys[known], rewards[known], size), np.bincount(keys[known], minlength=size)
