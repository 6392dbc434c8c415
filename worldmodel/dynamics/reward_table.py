"""Mean rewards per action and per rule. The reward head starts from them, and baselines predict by them.

"Per rule" is per kind of action (`data.actions.kinds_of`). K is the number of kinds, R + 1 if there are no
everywhere-actions. What an everywhere-action earns is first of all what its single rewrites earn, of which it carries
out more or fewer; so the reward head predicts these, and beside them what is left (`beside_single_rewrites`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from environment.costs.interface import LEAST_PART
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import Episode, EpisodeBuffer

MUCH_MORE_VARIED = 2.0
"""If a rule's rewards vary by this factor more than was known, little was learned of them beyond their mean."""


def without_noise(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with the rewards that the costs of states make of which their nodes show the times.

    They are those of the episodes if no costs are drawn.
    """

    def of_costs(each: Episode) -> Episode:
        if each.drawn_ms is None:
            return each
        counted = np.maximum(each.cost_ms, LEAST_PART * each.cost_ms[0])
        rewards = -100.0 * np.diff(np.log(counted))
        return replace(each, rewards=rewards.astype(np.float32), drawn_ms=None)

    return EpisodeBuffer(buffer.rule_names, buffer.graphs, [of_costs(each) for each in buffer])


def scaled_to_start(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with rewards 100 · ln(cost before / cost after) as savings in percent of the start's cost.

    A rewrite saves much the same time wherever it is done, but not the same percentage; and what several rewrites save
    adds up.
    """

    def savings(each: Episode) -> np.ndarray:
        savings: np.ndarray = 100.0 * -np.expm1(each.rewards / -100.0) * (each.seen_ms[:-1] / each.seen_ms[0])
        return savings

    return _with_rewards(buffer, savings)


def beside_single_rewrites(buffer: EpisodeBuffer, mean: np.ndarray, table: ActionTable | None = None) -> EpisodeBuffer:
    """Returns the episodes with the rewards of everywhere-actions less the mean rewards of their single rewrites.

    Args:
      mean: the mean reward of every action of `table`, or of every rule.
    """

    def beside(each: Episode) -> np.ndarray:
        steps, rules, _ = each.rewrites.T
        known = rules if table is None else table.encode(each.rewrites[:, 1:])
        earned = np.where(known >= 0, mean[known], 0.0)
        rewards: np.ndarray = each.rewards - np.bincount(steps, earned, each.num_steps)
        return rewards

    return _with_rewards(buffer, beside)


def _with_rewards(buffer: EpisodeBuffer, rewards: Callable[[Episode], np.ndarray]) -> EpisodeBuffer:
    episodes = [replace(each, rewards=rewards(each)) for each in buffer]
    return EpisodeBuffer(buffer.rule_names, buffer.graphs, episodes)


def mean_reward_per_rule(buffer: EpisodeBuffer) -> np.ndarray:
    """Returns the mean reward of every kind of action: float32 [K].

    A rule that was never taken at a single site gets its mean reward for each single rewrite when it was taken
    everywhere. Any other kind that was never taken gets the overall mean, and NO-OP gets 0.
    """
    kinds, rewards = _kinds(buffer), _steps(buffer)[1]
    totals, counts = _sums(kinds, rewards, buffer.num_kinds)
    fallback = np.full(buffer.num_kinds, rewards.mean() if rewards.size else 0.0)
    single = np.concatenate([np.zeros((0, 3), int), *(episode.rewrites for episode in buffer)])
    of_rule = np.bincount(single[:, 1], minlength=buffer.num_rules)
    if buffer.num_kinds > buffer.num_rules + 1:
        shares = totals[buffer.num_rules + 1 :] / np.maximum(of_rule, 1)
        fallback[: buffer.num_rules] = np.where(of_rule > 0, shares, fallback[: buffer.num_rules])
    fallback[buffer.num_rules] = 0.0
    return np.where(counts > 0, totals / np.maximum(counts, 1), fallback).astype(np.float32)


def reward_spread_per_rule(buffer: EpisodeBuffer, *, shrinkage: float = 0.01, around_zero: bool = False) -> np.ndarray:
    """Returns the standard deviation of the rewards of every kind: float32 [K]; 0 for NO-OP if it was never taken.

    Args:
      around_zero: whether they are root mean squares instead, deviations from 0.
      shrinkage: number of pseudo-observations of the overall variance that are added, for kinds that are rare.
    """
    kinds, rewards = _kinds(buffer), _steps(buffer)[1]
    deviations = rewards if around_zero else rewards - mean_reward_per_rule(buffer)[kinds]
    totals, counts = _sums(kinds, deviations**2, buffer.num_kinds)
    prior = np.full(buffer.num_kinds, rewards.var())
    prior[buffer.num_rules] = 0.0
    return np.sqrt((totals + shrinkage * prior) / (counts + shrinkage)).astype(np.float32)


def reward_deviation(buffer: EpisodeBuffer) -> float:
    """Returns the standard deviation of all rewards, or 1 if they are all the same."""
    return float(_steps(buffer)[1].std()) or 1.0


def rewards_of_rules(buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean rewards of every kind and their standard deviations: float32 [K] each.

    For everywhere-actions they are 0 and the root mean square of what is left beside their single rewrites.
    """
    mean = mean_reward_per_rule(buffer)
    spread = reward_spread_per_rule(beside_single_rewrites(buffer, mean), around_zero=True)
    everywhere = np.arange(buffer.num_kinds) > buffer.num_rules
    return np.where(everywhere, np.float32(0.0), mean), np.where(everywhere, spread, reward_spread_per_rule(buffer))


class ActionRewards(NamedTuple):
    """Statistics of the rewards of a table's A actions and NO-OP in the training data.

    If a reward head starts from them, everywhere-actions have those of what they earn beside their single rewrites: a
    mean of 0, a root mean square as spread, and an infinite count.

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
        prior = mean_reward_per_rule(buffer)[table.kinds]
        mean = (totals + shrinkage * prior) / (counts + shrinkage)
        spread = reward_spread_per_rule(buffer)[table.kinds]
        return cls(mean.astype(np.float32), spread, counts.astype(np.float32))

    @classmethod
    def of_single_rewrites(cls, buffer: EpisodeBuffer, table: ActionTable) -> ActionRewards:
        """Computes them from episodes, for a reward head that adds up the single rewrites of everywhere-actions."""
        single = cls.of(buffer, table)
        beside = beside_single_rewrites(buffer, single.mean, table)
        spread = reward_spread_per_rule(beside, around_zero=True)[table.kinds]
        left = cls(np.zeros_like(single.mean), spread, np.full_like(single.counts, np.inf))
        return cls(*(np.where(table.is_everywhere, *both) for both in zip(left, single, strict=True)))

    @classmethod
    def of_rules(cls, mean: np.ndarray, spread: np.ndarray, table: ActionTable) -> ActionRewards:
        """Makes them for a graph without training data, from the mean and spread float32 [K] of every kind."""
        means = mean[table.kinds]
        return cls(means, spread[table.kinds], np.full_like(means, np.inf))

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


def _kinds(buffer: EpisodeBuffer) -> np.ndarray:
    """Returns the kinds of the actions of all steps, in the order of `_steps`."""
    return np.concatenate([np.zeros(0, np.int32), *(episode.kinds(buffer.num_rules) for episode in buffer)])


def _sums(keys: np.ndarray, rewards: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    known = keys >= 0
    return np.bincount(keys[known], rewards[known], size), np.bincount(keys[known], minlength=size)
