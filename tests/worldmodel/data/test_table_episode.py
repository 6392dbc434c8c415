from __future__ import annotations

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.table_episode import TableEpisode


def test_of_its_own_table_an_episode_is_whole(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    known, masks = TableEpisode(episodes[0], table), TableEpisode(episodes[0], table).masks()
    assert known.num_steps == episodes[0].num_steps and not known.is_cut and (known.legal >= 0).all()
    np.testing.assert_array_equal(table.decode(known.actions), episodes[0].actions)
    for time, mask in enumerate(masks):
        np.testing.assert_array_equal(mask, table.mask(episodes[0].legal_actions(time)))
    assert len(masks) == known.num_steps + 1


def test_it_ends_before_what_the_table_does_not_hold(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    whole = TableEpisode(episodes[0], table)
    less = ActionTable(np.delete(table.codes, whole.actions[2]), table.num_rules)
    known = TableEpisode(episodes[0], less)
    assert known.is_cut and known.num_steps == int(np.argmax(whole.actions == whole.actions[2]))
    np.testing.assert_array_equal(known.rewards, episodes[0].rewards[: known.num_steps])
    without = np.delete(whole.masks()[: known.num_steps + 1], whole.actions[2], axis=1)
    np.testing.assert_array_equal(known.masks(), without)
