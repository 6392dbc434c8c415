from __future__ import annotations

from collections import Counter

import numpy as np

from worldmodel.actions import unpack
from worldmodel.episodes import EpisodeBuffer
from worldmodel.neighbourhood import neighbour_slots, neighbour_table, switched_codes


def test_a_slot_means_the_same_relative_position_at_every_site(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    neighbours = neighbour_table(neighbour_slots(episodes, 12, 4), table)
    for rule in range(3):
        rows = np.flatnonzero(table.rules == rule)
        for slot in range(12):
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
