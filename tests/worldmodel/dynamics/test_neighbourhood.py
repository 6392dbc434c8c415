from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from worldmodel.data.actions import unpack
from worldmodel.data.episodes import Episode, EpisodeBuffer
from worldmodel.dynamics.neighbourhood import NO_SLOT, neighbour_slots, neighbour_table, neighbourhood_rows

Slots = Counter[tuple[int, int]]


def switched_codes(episode: Episode, t: int) -> np.ndarray:
    """Packed actions whose legality step `t` changed."""
    return np.setxor1d(episode.codes_at(t), episode.codes_at(t + 1), assume_unique=True)


def slots_by_hand(buffer: EpisodeBuffer, most: int, reach: int) -> dict[int, list[tuple[int, int]]]:
    """The definition, one rewrite after another: rule -> its slots."""
    applications: Counter[int] = Counter()
    switched: dict[int, Slots] = {}
    legal: dict[int, Slots] = {}
    for episode in buffer:
        for t, (rule, location) in enumerate(episode.actions.tolist()):
            if rule == buffer.num_rules:
                continue
            applications[rule] += 1
            for counts, codes in ((switched, switched_codes(episode, t)), (legal, episode.codes_at(t))):
                places = [(other, at - location) for other, at in unpack(codes).tolist()]
                counts.setdefault(rule, Counter()).update(places)
    found = {}
    for rule, count in applications.items():
        first = sorted(switched[rule], key=lambda slot: (-switched[rule][slot], slot))
        varying = [
            slot
            for slot, seen in legal[rule].items()
            if seen < count and slot not in switched[rule] and abs(slot[1]) <= reach
        ]
        found[rule] = (first + sorted(varying, key=lambda slot: (abs(slot[1]), slot)))[:most]
    return found


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
