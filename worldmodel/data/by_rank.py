"""Actions named by rank instead of by site, as in the published implementations: for comparison.

There a rewrite is "match i of rule r", counted among the matches of the moment. What a name means then changes from
state to state, and a mask says no more than how many matches every rule has.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from worldmodel.data.actions import pack, unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer


def by_rank(buffer: EpisodeBuffer) -> EpisodeBuffer:
    """The same episodes, every rewrite (rule, location) as (rule, rank of its location among the rule's legal ones)."""
    ranked = [_ranked(episode, buffer.num_rules) for episode in buffer]
    return EpisodeBuffer(buffer.rule_names, buffer.graphs, ranked)


def _ranked(episode: Episode, num_rules: int) -> Episode:
    legal = np.concatenate([_ranks(episode.codes_at(t)) for t in range(episode.num_steps + 1)])
    actions = [
        _ranked_action(pair, episode.codes_at(t)) if pair[0] < num_rules else pair
        for t, pair in enumerate(episode.actions)
    ]
    return dataclasses.replace(episode, actions=np.stack(actions).astype(np.int32), legal_codes=legal, num_locations=0)


def _ranks(codes: np.ndarray) -> np.ndarray:
    """Sorted codes of (rule, location) to those of (rule, rank), sorted too."""
    rules = unpack(codes)[:, 0]
    first = np.searchsorted(rules, rules)
    return pack(np.stack([rules, np.arange(len(rules)) - first], axis=-1))


def _ranked_action(pair: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return unpack(_ranks(codes)[codes == pack(pair[np.newaxis])])[0]
