from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from worldmodel.data.actions import ActionTable
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.conditioning_actions import LEAST_STEPS, conditioned_rewards
from worldmodel.dynamics.neighbourhood import neighbour_slots, neighbour_table
from worldmodel.dynamics.reward_table import ActionRewards, mean_reward_per_action


def earning(episodes: EpisodeBuffer, table: ActionTable, rewards: np.ndarray, bit: int, more: float) -> EpisodeBuffer:
    """The same play, where every action earns what `rewards` say, and `more` where a bit is on."""
    changed = []
    for episode, known in zip(episodes, EpisodeData(episodes, table), strict=True):
        earned = rewards[known.action[:, 0]] + more * known.legal[:-1, 0, bit]
        changed.append(dataclasses.replace(episode, rewards=earned.astype(np.float32)))
    return EpisodeBuffer(episodes.rule_names, episodes.graphs, changed)


def all_of(buffer: EpisodeBuffer, table: ActionTable) -> tuple[np.ndarray, np.ndarray]:
    known = list(EpisodeData(buffer, table))
    return np.concatenate([one.action[:, 0] for one in known]), np.concatenate([one.legal[:-1, 0] for one in known])


@pytest.fixture(scope="module")
def neighbours(episodes: EpisodeBuffer) -> np.ndarray:
    return neighbour_table(neighbour_slots(episodes, most=16, reach=20), episodes.action_table())


def test_the_bit_that_decides_a_reward_is_found_and_tells_it(episodes: EpisodeBuffer, neighbours: np.ndarray) -> None:
    table = episodes.action_table()
    actions, masks = all_of(episodes, table)
    rewards = np.linspace(-2.0, 3.0, table.num_actions + 1)
    bit = int(neighbours[int(np.bincount(actions).argmax())][0])
    buffer = earning(episodes, table, rewards, bit, more=5.0)
    found = conditioned_rewards(buffer, table, neighbours)
    told = ActionRewards.of(buffer, table, found, shrinkage=1e-9)
    often = 0
    for action in np.unique(actions):
        is_on = masks[actions == action, bit]
        if bit in neighbours[action] and min(is_on.sum(), (~is_on).sum()) >= LEAST_STEPS:
            often += 1
            chosen = masks[actions == action, found.bit[action]]
            assert len(np.unique(chosen == is_on)) == 1, "that bit, or one that is always the same or its opposite"
            assert sorted(told.mean[action]) == pytest.approx([rewards[action], rewards[action] + 5.0], abs=1e-4)
            np.testing.assert_array_equal(told.counts[action], [(~chosen).sum(), chosen.sum()])
    assert often > 3


def test_no_bit_tells_what_is_always_the_same(episodes: EpisodeBuffer, neighbours: np.ndarray) -> None:
    table = episodes.action_table()
    rewards = np.linspace(-2.0, 3.0, table.num_actions + 1)
    buffer = earning(episodes, table, rewards, 0, more=0.0)
    found = conditioned_rewards(buffer, table, neighbours)
    assert (found.bit == table.num_actions).all()
    told = ActionRewards.of(buffer, table, found)
    for column in range(2):
        np.testing.assert_allclose(told.mean[:, column], mean_reward_per_action(buffer, table), rtol=1e-6)


def test_chance_tells_next_to_nothing(episodes: EpisodeBuffer, neighbours: np.ndarray) -> None:
    """Rewards drawn by lot: bits that seem to tell them are few, and what they say of other steps is wrong."""
    table, generator = episodes.action_table(), np.random.default_rng(0)
    noise = [
        dataclasses.replace(episode, rewards=generator.normal(size=episode.num_steps).astype(np.float32))
        for episode in episodes
    ]
    buffer = EpisodeBuffer(episodes.rule_names, episodes.graphs, noise)
    actions, masks = all_of(episodes, table)
    found = conditioned_rewards(buffer, table, neighbours)
    could = np.bincount(actions, minlength=len(found.bit)) >= 2 * LEAST_STEPS
    assert could.any() and (found.bit != table.num_actions).sum() < 0.1 * could.sum()
    told = ActionRewards.of(buffer, table, found)
    is_on = masks[np.arange(len(actions)), found.bit[actions]].astype(int)
    other = generator.normal(size=len(actions))
    assert np.mean((told.mean[actions, is_on] - other) ** 2) < 1.1


def test_a_graph_that_nothing_was_learned_from_has_its_rules_means(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    mean, spread = np.array([1.0, 2.0, 3.0, 0.0], np.float32), np.array([0.1, 0.2, 0.3, 0.0], np.float32)
    rewards = ActionRewards.of_rules(mean, spread, table)
    np.testing.assert_array_equal(rewards.mean, np.stack([mean[table.rules]] * 2, axis=1))
    assert (rewards.bit == table.num_actions).all() and np.isinf(rewards.counts).all()
