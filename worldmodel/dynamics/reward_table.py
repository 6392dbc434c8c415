"""Mean rewards per action and per rule: where the reward head starts, and the predictors it has to beat."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.conditioning_actions import ConditionedRewards

MUCH_MORE_VARIED = 2.0
"""By this factor a rule's rewards vary more than was known: what was learned beside their mean was next to none."""


def scaled_to_start(buffer: EpisodeBuffer) -> EpisodeBuffer:
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
    """What training data say of the rewards of a table's A actions and NO-OP.

    Attributes:
      mean: float32 [A + 1, 2], of the action while its conditioning action is illegal, and legal.
      spread: float32 [A + 1], standard deviation, of its rule.
      bit: int32 [A + 1], the conditioning action, see `conditioned_rewards`; A where there is none.
      counts: float32 [A + 1, 2], how many of the steps that are learned from are in the mean; infinite where not all of
        them are.
    """

    mean: np.ndarray
    spread: np.ndarray
    bit: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(
        cls, buffer: EpisodeBuffer, table: ActionTable, found: ConditionedRewards, *, shrinkage: float = 1.0
    ) -> ActionRewards:
        """From episodes of one start graph.

        Args:
          table: holds their actions.
          found: their rewards, from `conditioned_rewards`.
          shrinkage: how many pseudo-observations of the action's mean are added to those with its bit off, and on.
        """
        prior = mean_reward_per_action(buffer, table)[:, np.newaxis]
        alone = (found.bit == table.num_actions)[:, np.newaxis]
        mean = np.where(alone, prior, (found.totals + shrinkage * prior) / (found.counts + shrinkage))
        counts = np.where(alone, found.counts.sum(axis=1, keepdims=True), found.counts)
        spread = reward_spread_per_rule(buffer)[table.rules]
        return cls(mean.astype(np.float32), spread, found.bit, counts.astype(np.float32))

    @classmethod
    def of_rules(cls, mean: np.ndarray, spread: np.ndarray, table: ActionTable) -> ActionRewards:
        """Of a graph that nothing was learned from: float32 [R + 1], the mean and spread of every rule."""
        means = np.repeat(mean[table.rules, np.newaxis], 2, axis=1)
        bit = np.full(table.num_actions + 1, table.num_actions, np.int32)
        return cls(means, spread[table.rules], bit, np.full_like(means, np.inf))

    def keeping(self, table: ActionTable, before: ActionRewards, known: ActionTable) -> ActionRewards:
        """These of more data, but known actions keep what weights were learned against: mean, bit and spread.

        Unless their rule's rewards now vary more than `MUCH_MORE_VARIED` times as much.

        Args:
          table: whose actions these are of.
          before: what was known, of the actions of `known`.
        """
        places = np.append(known.find_codes(table.codes), known.num_actions)
        bit = np.append(table.find_codes(known.codes), table.num_actions)[before.bit][places]
        kept = (places >= 0) & (bit >= 0) & (self.spread <= MUCH_MORE_VARIED * before.spread[places])
        return ActionRewards(
            np.where(kept[:, np.newaxis], before.mean[places], self.mean),
            np.where(kept, before.spread[places], self.spread),
            np.where(kept, bit, self.bit).astype(np.int32),
            np.where(kept[:, np.newaxis], np.float32(np.inf), self.counts),
        )


def _steps(buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.concatenate([np.zeros((0, 2), np.int32), *(episode.actions for episode in buffer)])
    rewards = np.concatenate([np.zeros(0), *(episode.rewards for episode in buffer)])
    return pairs, rewards


def _sums(keys: np.ndarray, rewards: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    known = keys >= 0
    return np.bincount(keys[known], rewards[known], size), np.bincount(keys[known], minlength=size)
