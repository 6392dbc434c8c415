"""Which mask bits an action has to do with, as relative positions shared by all sites.

A rewrite switches legal actions on and off near its own site, and what it switches and earns depends on what is legal
around it, in the same way wherever it is applied. So for each rule the data gives a list of slots (other rule,
distance between the sites), and slot p of an action of that rule is one particular bit, or no bit at all. What happens
in a slot, and what a slot tells, is learned once per rule instead of once per action.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import LOCATION_BITS, MAX_LOCATIONS, ActionTable, pack, unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer

NO_SLOT = -1
"""In place of a rule: the slot is not used."""


def neighbour_slots(buffer: EpisodeBuffer, most: int, reach: int) -> np.ndarray:
    """The slots of every rule, the same on all graphs.

    Args:
      buffer: the episodes that show which bits switch and which vary.
      most: slots of a rule. Those that it switches come first, the most frequent ahead; what is left is filled with
        bits that vary when the rule is applied, the nearest ahead.
      reach: how many sites away a bit may be that does not switch.
    Returns:
      int32 [R, P, 2]: other rule (`NO_SLOT` where a rule needs no more slots), its site minus the action's. P is the
      number that the rule with the most slots has, at least 1.
    """
    switched, legal, applications = _evidence(buffer, reach)
    known = np.isin(legal.keys, switched.keys)
    varying = _Counted(legal.keys[~known], legal.counts[~known]).where_below(applications)
    rules, others, offsets = _slots(np.concatenate([switched.keys, varying]))
    preference = np.concatenate([-switched.counts, np.abs(offsets[len(switched.keys) :])])
    is_read = np.arange(len(rules)) >= len(switched.keys)
    # Ties are broken by the slot, not by the order of the data.
    order = np.lexsort((offsets, others, preference, is_read, rules))
    rank = np.arange(len(order)) - np.searchsorted(rules[order], rules[order])
    kept, rank = order[rank < most], rank[rank < most]
    slots = np.full((buffer.num_rules, max(1, 1 + rank.max(initial=0)), 2), NO_SLOT, np.int32)
    slots[rules[kept], rank] = np.stack([others[kept], offsets[kept]], axis=-1)
    return slots


def neighbourhood_rows(slots: np.ndarray) -> np.ndarray:
    """Row of every rule among those that have slots at all, from 1; 0 for the others and for NO-OP: int32 [R + 1]."""
    there = np.append(np.any(slots[:, :, 0] != NO_SLOT, axis=1), False)
    return np.where(there, np.cumsum(there), 0).astype(np.int32)


def neighbour_table(slots: np.ndarray, table: ActionTable) -> np.ndarray:
    """Index of the bit in every slot of every action.

    Args:
      slots: from `neighbour_slots`.
      table: the bits.
    Returns:
      int32 [A + 1, P] in [0, A]; A means that there is no bit in this slot. NO-OP has none.
    """
    neighbours = np.full((table.num_actions + 1, slots.shape[1]), table.num_actions, np.int32)
    rules, offsets = np.moveaxis(slots[table.rules[:-1]], -1, 0)
    locations = table.locations[:-1, np.newaxis] + offsets
    there = (rules != NO_SLOT) & (locations >= 0)
    codes = pack(np.stack([np.where(there, rules, 0), np.where(there, locations, 0)], axis=-1)).reshape(rules.shape)
    found = table.find_codes(codes)
    neighbours[:-1] = np.where(there & (found >= 0), found, table.num_actions)
    return neighbours


class _Counted(NamedTuple):
    """How often each of some slots was seen: keys (see `_keys`), ascending, and counts, int64 [n] each."""

    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def none(cls) -> _Counted:
        return cls(np.zeros(0, int), np.zeros(0, int))

    @classmethod
    def of(cls, parts: list[_Counted]) -> _Counted:
        """All together."""
        keys, counts = (np.concatenate(columns) for columns in zip(cls.none(), *parts, strict=True))
        distinct, places = np.unique(keys, return_inverse=True)
        return cls(distinct, np.bincount(places, counts, len(distinct)).astype(int))

    def where_below(self, applications: np.ndarray) -> np.ndarray:
        """Keys of slots that were seen less often than their rule was applied."""
        rules, _, _ = _slots(self.keys)
        return self.keys[self.counts < applications[rules]]


def _evidence(buffer: EpisodeBuffer, reach: int) -> tuple[_Counted, _Counted, np.ndarray]:
    """Slots that rules switched, slots within reach that were legal when they were applied, and applications [R]."""
    switched: list[_Counted] = []
    legal: list[_Counted] = []
    applications = np.zeros(buffer.num_rules, int)
    for episode in buffer:
        times = np.flatnonzero(episode.actions[:, 0] < buffer.num_rules)
        applications += np.bincount(episode.actions[times, 0], minlength=buffer.num_rules)
        before, after = _states(episode, times), _states(episode, times + 1)
        switched.append(_seen(episode, times, np.setxor1d(before, after, assume_unique=True)))
        legal.append(_seen(episode, times, before, reach))
    return _Counted.of(switched), _Counted.of(legal), applications


def _states(episode: Episode, times: np.ndarray) -> np.ndarray:
    """Legal actions of the states at `times`, each with its place in `times` above its packed code: int64 [n]."""
    lengths = np.diff(episode.legal_offsets)[times]
    first = np.repeat(episode.legal_offsets[times] - (np.cumsum(lengths) - lengths), lengths)
    codes = episode.legal_codes[first + np.arange(lengths.sum())]
    return (np.repeat(np.arange(len(times)), lengths) << 32) | codes


def _seen(episode: Episode, times: np.ndarray, states: np.ndarray, reach: int = MAX_LOCATIONS) -> _Counted:
    """Actions of `_states` as slots of the rewrites that were taken at `times`, those within reach."""
    taken = episode.actions[times[states >> 32]].astype(int)
    others, locations = unpack(states & 0x7FFFFFFF).astype(int).T
    offsets = locations - taken[:, 1]
    near = np.abs(offsets) <= reach
    return _Counted(*np.unique(_keys(taken[:, 0], others, offsets)[near], return_counts=True))


_OFFSET_BITS = LOCATION_BITS + 1
_RULE_BITS = 31 - LOCATION_BITS


def _keys(rules: np.ndarray, others: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Slots (rule, other rule, offset) as numbers: int64 [n]."""
    keys: np.ndarray = (((rules << _RULE_BITS) | others) << _OFFSET_BITS) | (offsets + MAX_LOCATIONS)
    return keys


def _slots(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inverse of `_keys`: rules, other rules, offsets."""
    pairs, offsets = keys >> _OFFSET_BITS, (keys & ((1 << _OFFSET_BITS) - 1)) - MAX_LOCATIONS
    return pairs >> _RULE_BITS, pairs & ((1 << _RULE_BITS) - 1), offsets
