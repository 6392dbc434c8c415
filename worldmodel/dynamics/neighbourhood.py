"""Neighbourhoods: the mask bits that an action changes or depends on, as relative positions shared by all sites.

A rewrite switches legal actions on and off near its own site. What it switches and earns depends on the actions that
are legal around it, in the same way wherever it is applied. So the data gives each rule a list of slots (other rule,
distance between the sites), and slot p of an action of that rule is one particular mask bit, or no bit. How a slot
changes, and what it tells about the step, is learned once per rule instead of once per action.

Everywhere-actions have no site, so they have no neighbourhood and are in none.
"""

from __future__ import annotations

import numpy as np

from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.slot_evidence import Evidence, slots_of, telling_bits, varying_bits

NO_SLOT = -1
"""Stands in place of a rule if a slot is not used."""


def neighbour_slots(buffer: EpisodeBuffer, most: int, reach: int) -> np.ndarray:
    """Returns the slots of every rule, which are the same on all graphs.

    Args:
      buffer: the episodes that show which bits switch, and which bits tell what switches.
      most: the largest number of slots of a rule. The bits that the rule switches come first, in order of frequency.
        Then come bits that tell what it switches, in order of information, and then bits that vary when it is applied,
        in order of distance.
      reach: how many sites away a bit may be that does not switch.
    Returns:
      int32 [R, P, 2]: the other rule (`NO_SLOT` if the rule needs no more slots), and its site minus the action's. P is
      the number of slots of the rule that has the most, at least 1.
    """
    seen = Evidence.of(buffer, reach)
    switched, counts = np.unique(seen.switched.keys, return_counts=True)
    telling, information = telling_bits(seen)
    varying = varying_bits(seen)
    parts = [switched, telling, varying]
    keys = np.concatenate(parts)
    kind = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    preference = np.concatenate([-counts, -information, np.abs(slots_of(varying)[2])])
    first = np.sort(np.unique(keys, return_index=True)[1])  # a bit of several kinds is of the first
    keys, kind, preference = keys[first], kind[first], preference[first]
    rules, others, offsets = slots_of(keys)
    # Ties are broken by the slot, not by the order of the data.
    order = np.lexsort((offsets, others, preference, kind, rules))
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
