from __future__ import annotations

import math

import pytest

from tests.worldmodel.toy_world import ToyEnv, uniform_policy
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.data.splits import share_unseen, split_by_graph, start_graphs, states_of


def test_states_are_those_visited(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    training, held_out = split
    seen = states_of(training)
    assert seen == {graph_hash for episode in training for graph_hash in episode.hashes}
    assert share_unseen(training, seen) == 0.0 and share_unseen(training, frozenset()) == 1.0
    assert 0 < share_unseen(held_out, seen) < share_unseen(held_out, seen, first=4) < 1
    assert math.isnan(share_unseen(held_out, seen, first=1000))


def test_graphs_are_held_out_whole() -> None:
    both = collect(ToyEnv(5), uniform_policy(), 4, seed=0)
    longer = collect(ToyEnv(7), uniform_policy(), 3, seed=1)
    both.extend(longer)
    assert start_graphs(both) == (both[0].hashes[0], longer[0].hashes[0])
    training, held_out = split_by_graph(both, [longer[0].hashes[0]])
    assert list(training) == both[:4] and list(held_out) == both[4:]
    assert states_of(training).isdisjoint(states_of(held_out))
    with pytest.raises(ValueError, match="no episode starts from the graph nowhere"):
        split_by_graph(both, ["nowhere"])
