from __future__ import annotations

import numpy as np

from worldmodel.data.episodes import EpisodeBuffer, by_rank


def test_every_rule_has_as_many_legal_ranks_as_sites(episodes: EpisodeBuffer) -> None:
    """From 0 without gaps, in the order of the sites."""
    for episode, ranked in zip(episodes, by_rank(episodes), strict=True):
        for t in range(episode.num_steps + 1):
            rules = episode.legal_actions(t)[:, 0]
            expected = [(rule, rank) for rule in range(3) for rank in range(int((rules == rule).sum()))]
            assert [tuple(pair) for pair in ranked.legal_actions(t).tolist()] == expected


def test_an_action_names_the_rank_of_its_site(episodes: EpisodeBuffer) -> None:
    taken = 0
    for episode, ranked in zip(episodes, by_rank(episodes), strict=True):
        for t, (rule, rank) in enumerate(ranked.actions.tolist()):
            if rule == 3:
                np.testing.assert_array_equal(episode.actions[t], ranked.actions[t])
                continue
            legal = episode.legal_actions(t)
            assert legal[legal[:, 0] == rule][rank].tolist() == episode.actions[t].tolist()
            taken += 1
    assert taken > 100


def test_all_else_stays_as_it_is(episodes: EpisodeBuffer) -> None:
    ranked = by_rank(episodes)
    assert ranked.graphs is episodes.graphs and ranked.rule_names == episodes.rule_names
    for one, other in zip(episodes, ranked, strict=True):
        facts = [(each.hashes, each.index, each.terminated, each.truncated) for each in (one, other)]
        assert facts[0] == facts[1]
        for name in ("rewards", "cost_ms", "legal_offsets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_ranks_are_no_places(episodes: EpisodeBuffer) -> None:
    assert {episode.num_locations for episode in by_rank(episodes)} == {0}
    assert {episode.num_locations for episode in episodes} == {8}
