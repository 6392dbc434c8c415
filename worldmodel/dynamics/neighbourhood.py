"""Neighbourhoods: the mask bits that an action changes or depends on, as relative positions shared by all sites.

A rewrite switches legal actions on and off near its own site. What it switches and earns depends on the actions that
are legal around it, in the same way wherever it is applied. So the data gives each rule a list of slots (other rule,
distance between the sites), and slot p of an action of that rule is one particular mask bit, or no bit. How a slot
changes, and what it tells about the step, is learned once per rule instead of once per action.

Everywhere-actions have no site, so they have no neighbourhood and are in none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import LOCATION_BITS, MAX_LOCATIONS, ActionTable, pack, unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer

NO_SLOT = -1
"""Stands in place of a rule if a slot is not used."""


def neighbour_slots(buffer: EpisodeBuffer, most: int, reach: int) -> np.ndarray:
    """Returns the slots of every rule, which are the same on all graphs.

    Args:
      buffer: the episodes that show which bits switch and which vary.
      most: the largest number of slots of a rule. The bits that the rule switches come first, in order of frequency.
        The remaining slots go to bits that vary when the rule is applied, in order of distance.
      reach: how many sites away a bit may be that does not switch.
    Returns:
      int32 [R, P, 2]: the other rule (`NO_SLOT` if the rule needs no more slots), and its site minus the action's. P is
      the number of slots of the rule that has the most, at least 1.
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


def rows_of_actions(slots: np.ndarray, table: ActionTable) -> np.ndarray:
    """Returns the row of every action's rule, see `neighbourhood_rows`: int32 [A + 1]; 0 for everywhere-actions."""
    return np.where(table.is_everywhere, 0, neighbourhood_rows(slots)[table.rules]).astype(np.int32)


def neighbourhood_rows(slots: np.ndarray) -> np.ndarray:
    """Returns the row of every rule among the rules that have slots, from 1: int32 [R + 1].

    The row of all other rules and of NO-OP is 0.
    """
    there = np.append(np.any(slots[:, :, 0] != NO_SLOT, axis=1), False)
    return np.where(there, np.cumsum(there), 0).astype(np.int32)


def neighbour_table(slots: np.ndarray, table: ActionTable) -> np.ndarray:
    """Returns the index of the bit in every slot of every action.

    Args:
      slots: from `neighbour_slots`.
      table: the actions, each of which has one bit.
    Returns:
      int32 [A + 1, P] in [0, A]; A means that there is no bit in this slot. NO-OP has no bits.
    """
    neighbours = np.full((table.num_actions + 1, slots.shape[1]), table.num_actions, np.int32)
    rules, offsets = np.moveaxis(slots[table.rules[:-1]], -1, 0)
    locations = table.locations[:-1, np.newaxis] + offsets
    there = (rules != NO_SLOT) & (locations >= 0)
    codes = pack(np.stack([np.where(there, rules, 0), np.where(there, locations, 0)], axis=-1)).reshape(rules.shape)
    found = table.find_codes(codes)
    at_sites = ~table.is_everywhere[:-1, np.newaxis] & ~table.is_everywhere[found]
    neighbours[:-1] = np.where(there & (found >= 0) & at_sites, found, table.num_actions)
    return neighbours


class _Counted(NamedTuple):
    """Counts of slots: ascending keys (see `_keys`) and how often each was seen, int64 [n] each."""

    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def none(cls) -> _Counted:
        return cls(np.zeros(0, int), np.zeros(0, int))

    @classmethod
    def of(cls, parts: list[_Counted]) -> _Counted:
        """Adds up the counts of all parts."""
        keys, counts = (np.concatenate(columns) for columns in zip(cls.none(), *parts, strict=True))
        distinct, places = np.unique(keys, return_inverse=True)
        return cls(distinct, np.bincount(places, counts, len(distinct)).astype(int))

    def where_below(self, applications: np.ndarray) -> np.ndarray:
        """Returns the keys of the slots that were seen less often than their rule was applied."""
        rules, _, _ = _slots(self.keys)
        return self.keys[self.counts < applications[rules]]


def _evidence(buffer: EpisodeBuffer, reach: int) -> tuple[_Counted, _Counted, np.ndarray]:
    """Returns the slots that rules switched, the slots that were legal when rules were applied, and applications [R].

    Args:
      reach: how far a legal slot may be from the rule's site; a switched slot may be at any distance.
    """
    switched: list[_Counted] = []
    legal: list[_Counted] = []
    applications = np.zeros(buffer.num_rules, int)
    for episode in buffer:
        times = np.flatnonzero(episode.kinds(buffer.num_rules) < buffer.num_rules)
        applications += np.bincount(episode.actions[times, 0], minlength=buffer.num_rules)
        before, after = _states(episode, times), _states(episode, times + 1)
        switched.append(_seen(episode, times, np.setxor1d(before, after, assume_unique=True)))
        legal.append(_seen(episode, times, before, reach))
    return _Counted.of(switched), _Counted.of(legal), applications


def _states(episode: Episode, times: np.ndarray) -> np.ndarray:
    """Returns the legal actions of the states at `times`, without everywhere-actions: int64 [n].

    The lower 32 bits are the packed code of the action, the upper bits are the place of its state in `times`.
    """
    lengths = np.diff(episode.legal_offsets)[times]
    first = np.repeat(episode.legal_offsets[times] - (np.cumsum(lengths) - lengths), lengths)
    codes = episode.legal_codes[first + np.arange(lengths.sum())]
    states = (np.repeat(np.arange(len(times)), lengths) << 32) | codes
    return states if episode.everywhere is None else states[unpack(codes)[:, 1] != episode.everywhere]


def _seen(episode: Episode, times: np.ndarray, states: np.ndarray, reach: int = MAX_LOCATIONS) -> _Counted:
    """Counts the actions of `_states` that are within reach, as slots of the rewrites that were taken at `times`."""
    taken = episode.actions[times[states >> 32]].astype(int)
    others, locations = unpack(states & 0x7FFFFFFF).astype(int).T
    offsets = locations - taken[:, 1]
    near = np.abs(offsets) <= reach
    return _Counted(*np.unique(_keys(taken[:, 0], others, offsets)[near], return_counts=True))


_OFFSET_BITS = LOCATION_BITS + 1
_RULE_BITS = 31 - LOCATION_BITS


def _keys(rules: np.ndarray, others: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Packs slots (rule, other rule, offset) into numbers: int64 [n]."""
    keys: np.ndarray = (((rules << _RULE_BITS) | others) << _OFFSET_BITS) | (offsets + MAX_LOCATIONS)
    return keys


def _slots(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inverts `_keys`: returns rules, other rules and offsets."""
    pairs, offsets = keys >> _OFFSET_BITS, (keys & ((1 << _OFFSET_BITS) - 1)) - MAX_LOCATIONS
    return pairs >> _RULE_BITS, pairs & ((1 << _RULE_BITS) - 1), offsets
