"""Which mask bits an action has to do with, as relative positions shared by all sites.

A rewrite switches legal actions on and off near its own site, and what it switches and earns depends on what is legal
around it, in the same way wherever it is applied. So for each rule the data gives a list of slots (other rule,
distance between the sites), and slot p of an action of that rule is one particular bit, or no bit at all. What happens
in a slot, and what a slot tells, is learned once per rule instead of once per action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from worldmodel.actions import ActionTable, pack, unpack
from worldmodel.episodes import Episode, EpisodeBuffer

Slot = tuple[int, int]  # (other rule, its site minus the action's)


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
    ranked = {rule: evidence.ranked()[:most] for rule, evidence in _gather(buffer, reach).items()}
    slots = np.full((buffer.num_rules, max([1, *map(len, ranked.values())]), 2), NO_SLOT, np.int32)
    for rule, places in ranked.items():
        slots[rule, : len(places)] = np.array(places, np.int32).reshape(-1, 2)
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


def switched_codes(episode: Episode, t: int) -> np.ndarray:
    """Packed actions whose legality step `t` changed: int32 [switched]."""
    return np.setxor1d(episode.codes_at(t), episode.codes_at(t + 1), assume_unique=True)


class _Evidence:
    """What was seen around the applications of one rule."""

    def __init__(self) -> None:
        self.applications = 0
        self.switched: Counter[Slot] = Counter()
        self.legal: Counter[Slot] = Counter()

    def ranked(self) -> list[Slot]:
        """Slots in the order in which they are kept; ties are broken by the slot, not by the order of the data."""
        switched = sorted(self.switched, key=lambda slot: (-self.switched[slot], slot))
        varying = [
            slot for slot, count in self.legal.items() if count < self.applications and slot not in self.switched
        ]
        return switched + sorted(varying, key=lambda slot: (abs(slot[1]), slot))


def _gather(buffer: EpisodeBuffer, reach: int) -> dict[int, _Evidence]:
    evidence: dict[int, _Evidence] = {}
    for episode, t, rule, location in _rewrites(buffer):
        seen = evidence.setdefault(rule, _Evidence())
        seen.applications += 1
        seen.switched.update(_relative(switched_codes(episode, t), location))
        seen.legal.update(slot for slot in _relative(episode.codes_at(t), location) if abs(slot[1]) <= reach)
    return evidence


def _rewrites(buffer: EpisodeBuffer) -> Iterator[tuple[Episode, int, int, int]]:
    for episode in buffer:
        for t, (rule, location) in enumerate(episode.actions.tolist()):
            if rule < buffer.num_rules:
                yield episode, t, rule, location


def _relative(codes: np.ndarray, location: int) -> Iterator[Slot]:
    return map(tuple, (unpack(codes) - np.array([0, location])).tolist())
