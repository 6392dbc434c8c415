"""What episodes show of the bits around rewrites: which switch, which tell what switches, and which vary."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import LOCATION_BITS, MAX_LOCATIONS, pack, unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer

MOST_EPISODES = 2000
"""Episodes that are looked at; more would tell little and take gigabytes."""


class _Bits(NamedTuple):
    """Bits that are set, or that switch, when rules are applied.

    Attributes:
      applications: the number of the application of each [n].
      keys: what `keys_of` returns for its slot [n].
    """

    applications: np.ndarray
    keys: np.ndarray

    @classmethod
    def joined(cls, parts: list[_Bits]) -> _Bits:
        none = cls(np.zeros(0, int), np.zeros(0, int))
        return cls(*(np.concatenate(columns) for columns in zip(none, *parts, strict=True)))


class Evidence(NamedTuple):
    """What was seen when rules were applied at single sites.

    Attributes:
      sites: the rule and the site of each application, packed [n].
      switched: the bits that switched.
      legal, past: the bits within reach that were legal before, and those that were past (`worldmodel.data.past`).
    """

    sites: np.ndarray
    switched: _Bits
    legal: _Bits
    past: _Bits

    @classmethod
    def of(cls, buffer: EpisodeBuffer, reach: int) -> Evidence:
        """Looks at the episodes of a buffer, or at `MOST_EPISODES` of them.

        Args:
          reach: how many sites away a bit may be that does not switch.
        """
        taken, parts = [np.zeros((0, 2), int)], list[list[_Bits]]()
        for episode in buffer[:: 1 + len(buffer) // MOST_EPISODES]:
            times = np.flatnonzero(episode.kinds(buffer.num_rules) < buffer.num_rules)
            before, after = _states(episode, times), _states(episode, times + 1)
            switched = np.setxor1d(before, after, assume_unique=True)
            first = sum(map(len, taken))
            kinds = (switched, MAX_LOCATIONS), (before, reach), (_past(episode, times), reach)
            parts.append([_around(episode, times, each, first, distance) for each, distance in kinds])
            taken.append(episode.actions[times].astype(int))
        return cls(pack(np.concatenate(taken)), *(_Bits.joined([part[kind] for part in parts]) for kind in range(3)))


def varying_bits(seen: Evidence) -> np.ndarray:
    """Returns the keys of bits that were legal in some applications of a rule, but not in all."""
    keys, counts = np.unique(seen.legal.keys, return_counts=True)
    rules, _, _ = slots_of(keys)
    applications = np.bincount(unpack(seen.sites)[:, 0], minlength=rules.max(initial=0) + 1)
    return keys[counts < applications[rules]]


def telling_bits(seen: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys of bits that tell which bits a rule switches, and how much, in nats: [n] each.

    A bit is legal, past or neither. Only applications at one site are compared with each other: between sites, bits
    differ that only tell which site it is. Information that is estimated from few applications is too large; the
    estimate is lowered by what chance gives on average, and bits that then tell nothing are left out.

    Source: Miller 1955, "Note on the bias of information estimates".
    """
    outcome = np.zeros(len(seen.sites), np.uint64)
    np.add.at(outcome, seen.switched.applications, _scrambled(seen.switched.keys))  # of the set of bits that switched
    bits = _Bits.joined([seen.legal, seen.past])
    states = np.repeat([0, 1], [len(seen.legal.keys), len(seen.past.keys)])
    of_sites = seen.sites[bits.applications]
    order = np.argsort(of_sites, kind="stable")
    sites, bounds = np.unique(of_sites[order], return_index=True)
    found = [(np.zeros(0, int), np.zeros(0))]
    for site, here in zip(sites.tolist(), np.split(order, bounds)[1:], strict=True):
        mine = np.flatnonzero(seen.sites == site)
        kinds, which = np.unique(outcome[mine], return_inverse=True)
        if len(kinds) < 2:
            continue
        keys, place = np.unique(bits.keys[here], return_inverse=True)
        counts = np.zeros((len(keys), len(kinds), 3))
        np.add.at(counts, (place, which[np.searchsorted(mine, bits.applications[here])], states[here]), 1)
        counts[:, :, 2] = np.bincount(which) - counts[:, :, :2].sum(axis=2)
        found.append((keys, len(mine) * _information(counts)))
    keys, nats = (np.concatenate(columns) for columns in zip(*found, strict=True))
    keys, place = np.unique(keys, return_inverse=True)
    nats = np.round(np.bincount(place, nats, len(keys)), 6)  # so that sums in another order are equal
    return keys[nats > 0], nats[nats > 0]


def _information(counts: np.ndarray) -> np.ndarray:
    """Returns the mutual information of the two things that each table [K, a, b] counts, in nats without bias: [K]."""
    total = counts.sum(axis=(1, 2), keepdims=True)
    rows, columns = counts.sum(axis=2, keepdims=True), counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = np.where(counts > 0, counts / total * np.log(counts * total / (rows * columns)), 0.0).sum(axis=(1, 2))
    free = ((rows > 0).sum(axis=(1, 2)) - 1) * ((columns > 0).sum(axis=(1, 2)) - 1)
    lowered: np.ndarray = nats - free / (2 * total[:, 0, 0])
    return lowered


def _scrambled(keys: np.ndarray) -> np.ndarray:
    """Returns numbers that look random, so that the sum over a set of keys tells sets apart: uint64 [n]."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


def _states(episode: Episode, times: np.ndarray) -> np.ndarray:
    """Returns the legal actions of the states at `times`, without everywhere-actions: int64 [n].

    The lower 32 bits are the packed code of the action, the upper bits are the place of its state in `times`.
    """
    lengths = np.diff(episode.legal_offsets)[times]
    first = np.repeat(episode.legal_offsets[times] - (np.cumsum(lengths) - lengths), lengths)
    codes = episode.legal_codes[first + np.arange(lengths.sum())]
    states = (np.repeat(np.arange(len(times)), lengths) << 32) | codes
    return states if episode.everywhere is None else states[unpack(codes)[:, 1] != episode.everywhere]


def _past(episode: Episode, times: np.ndarray) -> np.ndarray:
    """Returns what is past in the states at `times`, in the form of `_states`."""
    places = dict(zip(times.tolist(), range(len(times)), strict=True))
    past, found = np.zeros(0, np.int64), [np.zeros(0, np.int64)]
    for t, (action, several) in enumerate(zip(episode.actions.tolist(), episode.rewrites_of_steps(), strict=True)):
        if t in places:
            found.append((places[t] << 32) | past)
        singles = several or [action] * (action[1] != episode.everywhere)
        taken = pack(np.array(singles, np.int32).reshape(-1, 2)).astype(np.int64)
        past = np.setdiff1d(np.union1d(past, taken), episode.codes_at(t + 1))
    return np.concatenate(found)


def _around(episode: Episode, times: np.ndarray, states: np.ndarray, first: int, reach: int) -> _Bits:
    """Returns actions of `_states` as bits around the rewrites that were taken at `times`.

    Args:
      first: number of the first of these applications.
      reach: how many sites away the bits may be.
    """
    places = states >> 32
    taken = episode.actions[times[places]].astype(int)
    others, locations = unpack(states & 0x7FFFFFFF).astype(int).T
    offsets = locations - taken[:, 1]
    near = np.abs(offsets) <= reach
    return _Bits((first + places)[near], keys_of(taken[:, 0], others, offsets)[near])


_OFFSET_BITS = LOCATION_BITS + 1
_RULE_BITS = 31 - LOCATION_BITS


def keys_of(rules: np.ndarray, others: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Packs slots (rule, other rule, offset) into numbers: int64 [n]."""
    keys: np.ndarray = (((rules << _RULE_BITS) | others) << _OFFSET_BITS) | (offsets + MAX_LOCATIONS)
    return keys


def slots_of(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inverts `keys_of`: returns rules, other rules and offsets."""
    pairs, offsets = keys >> _OFFSET_BITS, (keys & ((1 << _OFFSET_BITS) - 1)) - MAX_LOCATIONS
    return pairs >> _RULE_BITS, pairs & ((1 << _RULE_BITS) - 1), offsets
