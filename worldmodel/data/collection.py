"""Collection of episodes in shards, files of consecutive episodes, by any number of processes.

A shard depends only on the collection's seed and its own number; a behaviour policy that remembers what it has seen
begins every shard anew. So the episodes of a collection depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

import multiprocessing
import os
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from environment.counting import Counts, count, counting
from environment.processes import begin_worker, end_workers, starting_workers
from taso_ext.files import UNREADABLE_ARRAYS
from worldmodel.data.episodes import BehaviourPolicy, Episode, EpisodeBuffer, RewriteEnv, collect
from worldmodel.errors import CollectionStopped

EPISODES_PER_SHARD = 50
_POLL_S = 0.5


@dataclass(frozen=True)
class Collection:
    """The description of a collection.

    Attributes:
      make_env: makes the real environment. It is sent to other processes, so it has to be picklable, like a function
        of a module or a `functools.partial` of one.
      make_policy: makes the behaviour policy of a shard, for the environment that plays it; it has to be picklable too.
      episodes: how many episodes to collect.
      seed: the seed of all random draws.
      directory: the directory of the shards; existing shards are kept.
    """

    make_env: Callable[[], RewriteEnv]
    make_policy: Callable[[RewriteEnv], BehaviourPolicy]
    episodes: int
    seed: int
    directory: Path

    def shard(self, number: int) -> Path:
        """Returns the file of shard `number`."""
        first, count = self.range(number)
        return self.directory / f"episodes-{first:06d}-{first + count - 1:06d}.npz"

    def range(self, number: int) -> tuple[int, int]:
        """Returns the number of a shard's first episode, and how many episodes it has."""
        first = number * EPISODES_PER_SHARD
        return first, min(EPISODES_PER_SHARD, self.episodes - first)

    @property
    def num_shards(self) -> int:
        return -(-self.episodes // EPISODES_PER_SHARD)


OnShard = Callable[[EpisodeBuffer, int], None]
"""A callback that gets a shard and the number of episodes up to its end."""
OnEpisode = Callable[[Episode], None]
"""A callback that gets an episode as soon as it is over."""


def collect_shards(
    collection: Collection,
    *,
    processes: int = 1,
    on_shard: OnShard | None = None,
    on_episode: OnEpisode | None = None,
    poll: Callable[[], None] | None = None,
) -> EpisodeBuffer:
    """Returns all episodes of a collection, in order; plays those that do not exist yet.

    Args:
      processes: how many processes play; 1: this process plays itself.
      on_shard: called with each shard in order, as soon as it and all shards before it exist.
      on_episode: called after each episode that this process plays.
      poll: called at least twice a second while other processes play; it may raise to stop them.
    Raises:
      CollectionStopped: if one of the processes was killed.
    """
    collection.directory.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(collection.num_shards) if not _is_whole(collection.shard(number))]
    workers, waited_for = min(processes, len(missing)), set(missing)
    played = (
        _played(collection, missing, on_episode)
        if workers < 2
        else _played_by_others(collection, missing, workers, poll)
    )
    whole: EpisodeBuffer | None = None
    at_hand: dict[int, EpisodeBuffer | None] = {}
    for number in range(collection.num_shards):
        while number in waited_for:
            done, shard = next(played)
            waited_for.remove(done)
            at_hand[done] = shard
        shard = at_hand.pop(number, None)
        if shard is None:  # an earlier command or another process has played it
            shard = EpisodeBuffer.load(collection.shard(number))
        if on_shard is not None:
            on_shard(shard, sum(collection.range(number)))
        if whole is None:
            whole = shard
        else:
            whole.extend(shard)
    assert whole is not None
    return whole


def _is_whole(path: Path) -> bool:
    """Returns whether a shard exists and is intact.

    Shards are renamed into place, so a broken one was damaged later, and is made again. Every array in a shard has a
    hash (CRC-32), which is compared.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except UNREADABLE_ARRAYS:
        return False


def _played(
    collection: Collection, numbers: list[int], on_episode: OnEpisode | None
) -> Iterator[tuple[int, EpisodeBuffer | None]]:
    """Plays shards in this process; yields (number, shard)."""
    env = collection.make_env() if numbers else None
    for number in numbers:
        assert env is not None
        yield number, _play(collection, env, number, on_episode)


def _play(collection: Collection, env: RewriteEnv, number: int, on_episode: OnEpisode | None = None) -> EpisodeBuffer:
    first, count = collection.range(number)
    shard = collect(env, collection.make_policy(env), count, collection.seed, first=first, on_episode=on_episode)
    shard.save(collection.shard(number))
    return shard


def _played_by_others(
    collection: Collection, numbers: list[int], workers: int, poll: Callable[[], None] | None
) -> Iterator[tuple[int, EpisodeBuffer | None]]:
    """Lets other processes play shards; yields (number, None)."""
    # Processes start afresh, because threads of ONNX Runtime and TensorFlow do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(collection,))
    try:
        with starting_workers():
            running: dict[Future[Counts], int] = {pool.submit(_play_in_worker, number): number for number in numbers}
        waiting = set(running)
        while waiting:
            done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            if poll is not None:
                poll()
            for future in done:
                count(**future.result().to_json())
                yield running[future], None
    except BrokenProcessPool as error:
        raise CollectionStopped(
            "a process that plays episodes was ended from outside, perhaps for want of memory. What is finished is "
            f"kept in {collection.directory}, and the same command goes on from there; fewer processes "
            "(collect.processes) need less memory."
        ) from error
    finally:
        end_workers(pool)


_worker: tuple[Collection, RewriteEnv] | None = None


def _begin_worker(collection: Collection) -> None:
    global _worker
    begin_worker()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _worker = collection, collection.make_env()


def _play_in_worker(number: int) -> Counts:
    assert _worker is not None
    with counting() as counts:
        _play(*_worker, number)
    return counts
