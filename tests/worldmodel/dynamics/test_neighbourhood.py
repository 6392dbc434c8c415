from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable

import numpy as np
import pytest

from worldmodel.data.actions import pack, unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer
from worldmodel.dynamics.neighbourhood import NO_SLOT, neighbour_slots, neighbour_table, neighbourhood_rows

Slot = tuple[int, int]
Slots = Counter[Slot]


def switched_codes(episode: Episode, t: int) -> np.ndarray:
    """Packed actions whose legality step `t` changed."""
    return np.setxor1d(episode.codes_at(t), episode.codes_at(t + 1), assume_unique=True)


def slots_by_hand(buffer: EpisodeBuffer, most: int, reach: int) -> dict[int, list[tuple[int, int]]]:
    """The definition, one rewrite after another: rule -> its slots."""
    applications: Counter[int] = Counter()
    switched: dict[int, Slots] = defaultdict(Counter)
    legal: dict[int, Slots] = defaultdict(Counter)
    at_sites: dict[tuple[int, int], list[tuple[frozenset[Slot], dict[Slot, str]]]] = defaultdict(list)
    for episode in buffer:
        past: set[int] = set()
        for t, (rule, location) in enumerate(episode.actions.tolist()):
            before, after = set(episode.codes_at(t).tolist()), set(episode.codes_at(t + 1).tolist())
            if rule < buffer.num_rules:
                applications[rule] += 1
                changes, offered, behind = (around(codes, location) for codes in (before ^ after, before, past))
                switched[rule].update(changes)
                legal[rule].update(offered)
                bits = dict.fromkeys(offered, "legal") | dict.fromkeys(behind, "past")
                at_sites[rule, location].append((frozenset(changes), bits))
            past = (past | set(pack(np.array([[rule, location]])).tolist())) - after
    nats: dict[int, Slots] = defaultdict(Counter)
    for (rule, _), seen in at_sites.items():
        for slot in {slot for _, bits in seen for slot in bits}:
            nats[rule][slot] += len(seen) * information([(changes, bits.get(slot, "no")) for changes, bits in seen])
    found = {}
    for rule, count in applications.items():
        first = sorted(switched[rule], key=lambda slot: (-switched[rule][slot], slot))
        near = [slot for slot in {*legal[rule], *nats[rule]} if abs(slot[1]) <= reach]
        telling = [slot for slot in near if nats[rule][slot] > 0]
        varying = [slot for slot in near if 0 < legal[rule][slot] < count]
        order = [
            *first,
            *sorted(telling, key=lambda slot: (-round(nats[rule][slot], 6), slot)),
            *sorted(varying, key=lambda slot: (abs(slot[1]), slot)),
        ]
        found[rule] = list(dict.fromkeys(order))[:most]
    return found


def around(codes: set[int], location: int) -> list[Slot]:
    return [(other, at - location) for other, at in unpack(np.array(sorted(codes), np.int32)).tolist()]


def information(pairs: list[tuple[Hashable, Hashable]]) -> float:
    """The mutual information of two things that were seen together, less what chance gives on average."""
    n, both = len(pairs), Counter(pairs)
    one, other = (Counter(column) for column in zip(*pairs, strict=True))
    nats = sum(count / n * math.log(count * n / (one[x] * other[y])) for (x, y), count in both.items())
    return nats - (len(one) - 1) * (len(other) - 1) / (2 * n)


@pytest.mark.parametrize(("most", "reach"), [(64, 4), (64, 0), (7, 20), (1, 1), (0, 5)])
@pytest.mark.parametrize("count", [1, 10, 150])
def test_slots_are_those_of_the_definition(episodes: EpisodeBuffer, count: int, most: int, reach: int) -> None:
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:count])
    slots, expected = neighbour_slots(few, most, reach), slots_by_hand(few, most, reach)
    assert slots.shape == (3, max([1, *map(len, expected.values())]), 2)
    for rule in range(3):
        there = slots[rule][slots[rule, :, 0] != NO_SLOT]
        assert [tuple(slot) for slot in there.tolist()] == expected.get(rule, [])
        assert (slots[rule, : len(there), 0] != NO_SLOT).all(), "empty slots come last"


def test_without_a_rewrite_there_is_no_slot(episodes: EpisodeBuffer) -> None:
    none = EpisodeBuffer(episodes.rule_names, episodes.graphs, [e for e in episodes if e.num_steps == 0])
    slots = neighbour_slots(none, 8, 4)
    assert slots.shape == (3, 1, 2) and (slots == NO_SLOT).all() and not neighbourhood_rows(slots).any()


def test_rules_with_slots_have_rows_of_their_own() -> None:
    slots = np.full((4, 2, 2), NO_SLOT)
    slots[1, 0], slots[3] = (2, -1), 0
    assert neighbourhood_rows(slots).tolist() == [0, 1, 0, 2, 0]


def test_a_slot_means_the_same_relative_position_at_every_site(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    neighbours = neighbour_table(neighbour_slots(episodes, 12, 4), table)
    for rule in range(3):
        rows = np.flatnonzero(table.rules == rule)
        for slot in range(neighbours.shape[1]):
            filled = rows[neighbours[rows, slot] < table.num_actions]
            bits = neighbours[filled, slot]
            distances = table.locations[bits] - table.locations[filled]
            assert len(set(zip(table.rules[bits].tolist(), distances.tolist(), strict=True))) <= 1


def test_with_slots_enough_every_switched_bit_is_reached(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    neighbours = neighbour_table(neighbour_slots(episodes, 64, 4), table)
    assert np.all(neighbours[-1] == table.num_actions), "NO-OP reaches nothing"
    for episode in episodes[:30]:
        for t, action in enumerate(table.encode(episode.actions)):
            switched = table.find_codes(switched_codes(episode, t))
            assert set(switched.tolist()) <= set(neighbours[action].tolist())


def test_no_action_reaches_a_bit_twice(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    for row in neighbour_table(neighbour_slots(episodes, 64, 4), table):
        bits = row[row < table.num_actions]
        assert len(set(bits.tolist())) == len(bits)


def test_few_slots_keep_the_most_frequent(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    neighbours = neighbour_table(neighbour_slots(episodes, 3, 4), table)
    counts: dict[int, Counter[tuple[int, int]]] = {rule: Counter() for rule in range(3)}
    for episode in episodes:
        for t, (rule, location) in enumerate(episode.actions.tolist()):
            for other, site in unpack(switched_codes(episode, t)).tolist() if rule < 3 else []:
                counts[rule][other, site - location] += 1
    for rule, counter in counts.items():
        kept = set()
        for row in np.flatnonzero(table.rules == rule):
            bits = neighbours[row][neighbours[row] < table.num_actions]
            distances = table.locations[bits] - table.locations[row]
            kept |= set(zip(table.rules[bits].tolist(), distances.tolist(), strict=True))
        assert len(kept) == 3
        assert min(counter[slot] for slot in kept) >= max(counter[slot] for slot in set(counter) - kept)


def test_what_is_only_read_varies_and_is_near(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    for reach in (0, 2):
        neighbours = neighbour_table(neighbour_slots(episodes, 64, reach), table)
        switched: dict[int, set[int]] = {}
        for episode in episodes:
            for t, action in enumerate(table.encode(episode.actions).tolist()):
                switched.setdefault(action, set()).update(table.find_codes(switched_codes(episode, t)).tolist())
        for action in range(table.num_actions):
            bits = [bit for bit in neighbours[action] if bit < table.num_actions and bit not in switched[action]]
            rule_mates = np.flatnonzero(table.rules == table.rules[action])
            for bit in bits:
                slot = (table.rules[bit], table.locations[bit] - table.locations[action])
                switched_elsewhere = any(
                    (table.rules[b], table.locations[b] - table.locations[mate]) == slot
                    for mate in rule_mates
                    for b in switched[int(mate)]
                )
                assert switched_elsewhere or abs(slot[1]) <= reach
