from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.policies.directed import DirectedAgent
from environment.policies.random import RandomAgent
from tests.worldmodel.toy_world import ToyEnv, uniform_policy
from worldmodel.data import collection as collection_module
from worldmodel.data.collection import Collection, collect_shards
from worldmodel.data.episodes import BehaviourPolicy, EpisodeBuffer, RewriteEnv, collect
from worldmodel.errors import CollectionStopped


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collection:
    monkeypatch.setattr(collection_module, "EPISODES_PER_SHARD", 4)
    make_env = partial(ToyEnv, 8, max_steps=12)
    return Collection(make_env, lambda env: uniform_policy(0.02), episodes=10, seed=3, directory=tmp_path / "shards")


def assert_equal(left: EpisodeBuffer, right: EpisodeBuffer) -> None:
    for mine, theirs in zip(left, right, strict=True):
        assert (mine.index, mine.hashes) == (theirs.index, theirs.hashes)
        for name in ("actions", "rewards", "cost_ms", "legal_codes", "legal_offsets"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    assert set(left.graphs) == set(right.graphs)
    for graph_hash in left.graphs:
        for name in ("nodes", "edges", "edge_links"):
            mine, theirs = (getattr(each.graphs[graph_hash], name) for each in (left, right))
            np.testing.assert_array_equal(mine, theirs)


def test_shards_are_one_collection(collection: Collection) -> None:
    seen: list[int] = []
    episodes: list[int] = []
    buffer = collect_shards(
        collection,
        on_shard=lambda shard, done: seen.append(done),
        on_episode=lambda episode: episodes.append(episode.index),
    )
    assert_equal(buffer, collect(collection.make_env(), uniform_policy(0.02), 10, seed=3))
    assert seen == [4, 8, 10] and episodes == list(range(10))
    names = ["episodes-000000-000003.npz", "episodes-000004-000007.npz", "episodes-000008-000009.npz"]
    assert sorted(path.name for path in collection.directory.iterdir()) == names


def test_what_is_there_is_not_played_again_and_what_is_damaged_is(collection: Collection) -> None:
    whole = collect_shards(collection)
    collection.shard(0).write_bytes(collection.shard(0).read_bytes()[:100])
    collection.shard(2).unlink()
    kept = collection.shard(1).stat().st_mtime_ns
    assert_equal(collect_shards(collection), whole)
    assert collection.shard(1).stat().st_mtime_ns == kept


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_shard_that_is_damaged_anywhere_does_no_harm(collection: Collection, place: float) -> None:
    """One byte is changed. Either this is noticed, or the byte carries no data."""
    whole = collect_shards(collection)
    content = bytearray(collection.shard(1).read_bytes())
    content[int(place * len(content))] ^= 0xFF
    collection.shard(1).write_bytes(bytes(content))
    assert_equal(collect_shards(collection), whole)


def test_a_stopped_collection_leaves_whole_shards_and_goes_on(collection: Collection) -> None:
    def stop(shard: EpisodeBuffer, done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_shards(collection, on_shard=stop)
    assert len(list(collection.directory.iterdir())) == 2
    assert_equal(collect_shards(collection), collect(collection.make_env(), uniform_policy(0.02), 10, seed=3))


def random_agent(env: RewriteEnv) -> BehaviourPolicy:
    return RandomAgent()


def directed_agent(env: Any) -> BehaviourPolicy:
    return DirectedAgent(env, RandomAgent(), directed=0.5)


@pytest.mark.parametrize("make_policy", [random_agent, pytest.param(directed_agent, marks=pytest.mark.full)])
def test_any_number_of_processes_collects_the_same(
    tmp_path: Path, make_policy: Callable[[RewriteEnv], BehaviourPolicy]
) -> None:
    """Also with a policy that remembers: it begins every shard anew."""
    make_env = partial(GraphSubstitutionEnv, "squeezenet1.1-tiny", max_steps=4)
    one, two = (
        collect_shards(Collection(make_env, make_policy, 60, 7, tmp_path / str(count)), processes=count)
        for count in (1, 2)
    )
    assert_equal(one, two)


class Killed(ToyEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        os._exit(1)  # as the system ends a process that takes too much memory


def test_a_process_that_is_killed_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CollectionStopped, match=r"fewer processes \(collect.processes\) need less memory"):
        collect_shards(Collection(Killed, random_agent, 60, 7, tmp_path), processes=2)
