from __future__ import annotations

import numpy as np
import pytest

from tests.worldmodel.toy_world import ToyEnv, uniform_policy
from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.batches import EpisodeData, Schedule, bootstrap_counts
from worldmodel.data.episodes import EpisodeBuffer, collect


def number_latents(buffer: EpisodeBuffer) -> dict[str, np.ndarray]:
    return {h: np.array([i + 1.0, -i], np.float32) for i, h in enumerate(buffer.graphs)}


def test_a_batch_holds_its_episodes_and_padding(episodes: EpisodeBuffer) -> None:
    latents, table = number_latents(episodes), episodes.action_table()
    rows = [5, 0, 17]
    batch = EpisodeData(episodes, table, latents).trajectory(rows)
    assert len(batch.action) == max(episodes[row].num_steps for row in rows)
    for column, row in enumerate(rows):
        episode, steps = episodes[row], episodes[row].num_steps
        np.testing.assert_array_equal(batch.state[: steps + 1, column], [latents[h] for h in episode.hashes])
        np.testing.assert_array_equal(table.decode(batch.action[:steps, column])[:, 0], episode.actions[:, 0])
        np.testing.assert_array_equal(batch.reward[:steps, column], episode.rewards)
        for t in range(steps + 1):
            np.testing.assert_array_equal(batch.legal[t, column], table.mask(episode.legal_actions(t)))
        assert batch.alive[:steps, column].all() and not batch.alive[steps:, column].any()
        assert not batch.state[steps + 1 :, column].any()
        assert np.all(batch.action[steps:, column] == table.num_actions)


def test_only_running_out_of_rewrites_is_a_terminal(episodes: EpisodeBuffer) -> None:
    data = EpisodeData(episodes, episodes.action_table(), number_latents(episodes))
    for row, episode in enumerate(episodes):
        terminals = data.trajectory([row]).terminal[:, 0]
        nothing_left = not len(episode.legal_actions(episode.num_steps))
        assert not terminals[:-1].any()
        assert terminals[-1] == nothing_left
    assert any(episode.truncated for episode in episodes)
    assert any(episode.actions[-1, 0] == 3 for episode in episodes)


def test_truncation_is_never_a_terminal() -> None:
    buffer = collect(ToyEnv(8, max_steps=3), uniform_policy(), 5, seed=0)
    assert all(episode.truncated for episode in buffer)
    batch = EpisodeData(buffer, buffer.action_table(), number_latents(buffer)).trajectory(range(5))
    assert not batch.terminal.any()


def test_an_episode_is_cut_before_an_action_the_table_does_not_hold(episodes: EpisodeBuffer) -> None:
    episode = episodes[0]
    taken = episode.actions[3]
    codes = episodes.action_table().codes
    smaller = ActionTable(codes[codes != pack(taken[np.newaxis])[0]], 3)
    data = EpisodeData(episodes, smaller, number_latents(episodes))
    batch = data.trajectory([0])
    first = int(np.flatnonzero(np.all(episode.actions == taken, axis=1))[0])
    assert batch.alive.sum() == first
    assert not batch.terminal.any()
    cut = [np.all(each.actions == taken, axis=1).any() for each in episodes]
    assert data.cut_share == np.mean(cut) > 0


def test_what_the_table_does_not_hold_is_counted(episodes: EpisodeBuffer) -> None:
    codes = episodes.action_table().codes
    left_out, smaller = codes[1::5], ActionTable(np.delete(codes, slice(1, None, 5)), 3)
    data = EpisodeData(episodes, smaller, number_latents(episodes))
    np.testing.assert_array_equal(data.unknown.codes, left_out)
    everything = np.concatenate([episode.legal_codes for episode in episodes])
    assert data.unknown_share == np.isin(everything, left_out).mean() > 0.05
    for row in (0, 4, 9):
        bits = data.unknown_bits(row)
        for t, state in enumerate(bits):
            expected = np.intersect1d(episodes[row].codes_at(t), left_out)
            np.testing.assert_array_equal(left_out[state], expected)
    whole = EpisodeData(episodes, episodes.action_table(), number_latents(episodes))
    assert (whole.unknown_share, whole.cut_share, whole.unknown.num_actions) == (0, 0, 0)
    assert whole.unknown_bits(0).shape == (episodes[0].num_steps + 1, 0)


def test_open_states_are_those_before_a_step_that_leave_something(episodes: EpisodeBuffer) -> None:
    codes = episodes.action_table().codes
    few = ActionTable(codes[:4], 3)
    data = EpisodeData(episodes, few, number_latents(episodes))
    expected = [
        [row, t]
        for row, episode in enumerate(episodes)
        for t in range(int(data.trajectory([row]).alive.sum()))
        if np.isin(episode.codes_at(t), few.codes).any()
    ]
    assert data.open_states().tolist() == expected


def test_a_pass_shows_every_episode_of_every_start_graph_and_no_step_mixes_them() -> None:
    sizes, batch = [7, 3, 12], 4
    schedule = Schedule(sizes, batch, seed=1)
    steps = 2 + 1 + 3
    for number in range(2):
        seen: list[set[int]] = [set(), set(), set()]
        for step in range(number * steps, (number + 1) * steps):
            scene, rows = schedule.batch(step)
            assert len(rows) == len(set(rows.tolist())) == min(batch, sizes[scene])
            seen[scene] |= set(rows.tolist())
        assert seen == [set(range(size)) for size in sizes]
    again = Schedule(sizes, batch, seed=1)
    assert again.batch(9)[0] == schedule.batch(9)[0] and (again.batch(9)[1] == schedule.batch(9)[1]).all()


def test_members_of_an_ensemble_see_different_episodes_and_one_alone_sees_all() -> None:
    rows = np.arange(400)
    assert (bootstrap_counts(1, 0, rows, seed=0) == 1).all()
    counts = bootstrap_counts(3, 0, rows, seed=0)
    assert counts.mean() == pytest.approx(1, abs=0.1)
    assert 0.3 < (counts == 0).mean() < 0.44  # 1 / e of the episodes are left out
    assert abs(np.corrcoef(counts.T) - np.eye(3)).max() < 0.2
    assert (bootstrap_counts(3, 0, rows[5:6], seed=0) == counts[5]).all()  # whichever batch an episode is in
