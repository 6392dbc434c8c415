"""Which mask bits an action reaches: the bits it was seen to switch, as relative positions shared by all sites.

A rewrite switches legal actions on and off near its own site, and in the same way wherever it is applied. So for each
rule the data gives a short list of slots (other rule, distance between the sites), and slot p of an action of that rule
is one particular bit, or no bit at all. What happens in a slot is learned once per rule instead of once per action.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from worldmodel.actions import ActionTable, pack, unpack
from worldmodel.episodes import Episode, EpisodeBuffer


def neighbour_table(buffer: EpisodeBuffer, table: ActionTable, num_slots: int) -> np.ndarray:
    """Index of the bit in every slot of every action.

    Args:
      buffer: the episodes that show which bits switch.
      table: the bits.
      num_slots: P, the most frequent slots that are kept of every rule.
    Returns:
      int32 [A + 1, P] in [0, A]; A means that there is no bit in this slot. NO-OP has none.
    """
    neighbours = np.full((table.num_actions + 1, num_slots), table.num_actions, np.int32)
    for rule, slots in _frequent_slots(buffer, num_slots).items():
        rows = np.flatnonzero(table.rules == rule)
        locations = table.locations[rows][:, np.newaxis] + slots[:, 1]
        rules = np.broadcast_to(slots[:, 0], locations.shape)
        neighbours[rows, : len(slots)] = _find(table, rules, locations)
    return neighbours


def _find(table: ActionTable, rules: np.ndarray, locations: np.ndarray) -> np.ndarray:
    inside = locations >= 0
    codes = pack(np.stack([rules, np.where(inside, locations, 0)], axis=-1).reshape(-1, 2)).reshape(rules.shape)
    found = table.find_codes(codes)
    return np.where(inside & (found >= 0), found, table.num_actions)


def _frequent_slots(buffer: EpisodeBuffer, num_slots: int) -> dict[int, np.ndarray]:
    """Per rule the up to `num_slots` most frequent (rule, distance) of switched bits: int [slots, 2] each."""
    counts: dict[int, Counter[tuple[int, int]]] = {}
    for episode in buffer:
        for t, (rule, location) in enumerate(episode.actions.tolist()):
            if rule < buffer.num_rules:
                switched = unpack(switched_codes(episode, t)) - np.array([0, location])
                counts.setdefault(rule, Counter()).update(map(tuple, switched.tolist()))
    # Ties are broken by the slot itself, so that the table does not depend on the order of the episodes.
    ranked = {rule: sorted(counter.items(), key=lambda item: (-item[1], item[0])) for rule, counter in counts.items()}
    return {rule: np.array([slot for slot, _ in items[:num_slots]]) for rule, items in ranked.items() if items}


def switched_codes(episode: Episode, t: int) -> np.ndarray:
    """Packed actions whose legality step `t` changed: int32 [switched]."""
    return np.setxor1d(episode.codes_at(t), episode.codes_at(t + 1), assume_unique=True)
