from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.reward_table import (
    ActionRewards,
    mean_reward_per_rule,
    reward_deviation,
    reward_spread_per_rule,
    scaled_to_start,
)


def all_steps(buffer: EpisodeBuffer) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([e.actions for e in buffer]), np.concatenate([e.rewards for e in buffer])


def test_rules_get_the_mean_and_spread_of_their_rewards(episodes: EpisodeBuffer) -> None:
    pairs, rewards = all_steps(episodes)
    for rule in range(3):
        mine = rewards[pairs[:, 0] == rule]
        assert mean_reward_per_rule(episodes)[rule] == pytest.approx(mine.mean(), abs=1e-4)
        assert reward_spread_per_rule(episodes, shrinkage=0.0)[rule] == pytest.approx(mine.std(), abs=1e-4)


def test_actions_without_shrinkage_get_their_own_mean(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    pairs, rewards = all_steps(episodes)
    indices = table.encode(pairs)
    found = ActionRewards.of(episodes, table, shrinkage=1e-9)
    np.testing.assert_array_equal(found.counts, np.bincount(indices, minlength=table.num_actions + 1))
    for action in np.unique(indices):
        assert found.mean[action] == pytest.approx(rewards[indices == action].mean(), abs=1e-4)


def test_thin_data_falls_back_to_the_rule(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:3])
    untaken = np.setdiff1d(np.arange(table.num_actions), table.encode(all_steps(few)[0]))
    assert len(untaken)
    means = ActionRewards.of(few, table).mean
    np.testing.assert_allclose(means[untaken], mean_reward_per_rule(few)[table.rules[untaken]], atol=1e-5)


def test_noop_that_was_never_taken_earns_nothing(episodes: EpisodeBuffer) -> None:
    without = [e for e in episodes if e.actions[-1, 0] != 3]
    buffer = EpisodeBuffer(episodes.rule_names, episodes.graphs, without)
    assert mean_reward_per_rule(buffer)[-1] == 0.0
    assert reward_spread_per_rule(buffer)[-1] == 0.0
    assert ActionRewards.of(buffer, buffer.action_table()).mean[-1] == 0.0


def test_what_was_known_is_kept_unless_rewards_vary_much_more(episodes: EpisodeBuffer) -> None:
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:3])
    old, table = few.action_table(), episodes.action_table()
    before, after = ActionRewards.of(few, old), ActionRewards.of(episodes, table)
    calm = np.where(np.arange(len(old.rules)) == 0, 0.0, before.spread).astype(np.float32)
    kept = after.keeping(table, before._replace(spread=calm), old)
    known = np.append(table.find_codes(old.codes), table.num_actions)
    np.testing.assert_array_equal(kept.mean[known[1:]], before.mean[1:])
    np.testing.assert_array_equal(kept.spread[known[1:]], before.spread[1:])
    assert np.isinf(kept.counts[known[1:]]).all()
    new = np.setdiff1d(np.arange(len(table.rules)), known[1:])
    assert len(new) > 1 and known[0] in new, "the first action's rule was thought to be constant"
    for mine, theirs in zip(kept, after, strict=True):
        np.testing.assert_array_equal(mine[new], theirs[new])


def test_a_graph_that_nothing_was_learned_from_has_its_rules_means(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    mean, spread = np.array([1.0, 2.0, 3.0, 0.0], np.float32), np.array([0.1, 0.2, 0.3, 0.0], np.float32)
    rewards = ActionRewards.of_rules(mean, spread, table)
    np.testing.assert_array_equal(rewards.mean, mean[table.rules])
    assert np.isinf(rewards.counts).all()


def test_what_a_saving_is_of_the_start_graph_does_not_change_with_what_else_is_there(episodes: EpisodeBuffer) -> None:
    """Every step saves a hundredth of the start's cost; in percent of the present one that is more and more."""
    steady = []
    for episode in episodes:
        cost_ms = 5.0 * (1.0 - 0.01 * np.arange(episode.num_steps + 1))
        rewards = (100.0 * -np.diff(np.log(cost_ms))).astype(np.float32)
        steady.append(dataclasses.replace(episode, cost_ms=cost_ms, rewards=rewards))
    buffer = EpisodeBuffer(episodes.rule_names, episodes.graphs, steady)
    table = buffer.action_table()
    pairs, rewards = all_steps(buffer)
    assert reward_deviation(scaled_to_start(buffer)) < 1e-5 < 0.01 < reward_deviation(buffer)
    assert reward_deviation(buffer) == pytest.approx(rewards.std(), rel=1e-5)
    taken = np.unique(table.encode(pairs))
    of_start = ActionRewards.of(scaled_to_start(buffer), table)
    np.testing.assert_allclose(of_start.mean[taken], 1.0, rtol=1e-5)
    assert of_start.spread[taken].max() < 1e-5
    assert ActionRewards.of(buffer, table).spread[taken].max() > 0.01
