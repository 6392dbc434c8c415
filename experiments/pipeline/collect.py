"""Collects episodes of the random agent in the real environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from controller.records import EpisodeRecord, best_record
from environment.policies.random import RandomAgent
from experiments.config.run import RunConfig
from experiments.pipeline.load import Loaded
from experiments.runs.interruption import raise_if_received
from experiments.runs.run import Run
from experiments.runs.seeds import seed_for
from worldmodel.data.collection import Collection, collect_shards
from worldmodel.data.episodes import Episode, EpisodeBuffer
from worldmodel.errors import IncompatibleEpisodes

STAGE = "collect"


def collect_episodes(run: Run, loaded: Loaded) -> EpisodeBuffer:
    """The episodes that the world model is trained on; continues where an interrupted collection stopped."""
    settings = run.config.collect
    collection = Collection(
        loaded.env_source,
        RandomAgent(run.seed("random agent"), settings.noop_probability),
        settings.episodes,
        run.seed(STAGE),
        run.directory.checkpoint("episodes"),
    )
    if run.directory.finished(STAGE):
        return collect_shards(collection)
    with run.stage(STAGE, "collect random episodes", settings.episodes) as bar:
        run.metrics.rewind(STAGE, 0)
        best = 0.0

        def note(shard: EpisodeBuffer, done: int) -> None:
            nonlocal best
            for episode in shard:
                figures = episode_figures(episode)
                best = max(best, figures["improvement_percent"])
                run.metrics.append(STAGE, episode.index, figures)
            bar.update(done, best_percent=best)

        return collect_shards(collection, processes=settings.processes, on_shard=note, poll=raise_if_received)


def read_episodes(directory: Path) -> EpisodeBuffer:
    """All episodes that shards in a folder hold, in order.

    Raises:
      IncompatibleEpisodes: there is none, or one that cannot be read.
    """
    shards = sorted(directory.glob("episodes-*.npz"))
    if not shards:
        raise IncompatibleEpisodes(f"{directory} holds no episodes (episodes-*.npz): it was not copied as a whole.")
    return joined([EpisodeBuffer.load(path) for path in shards])


def joined(parts: Sequence[EpisodeBuffer]) -> EpisodeBuffer:
    """The episodes of all parts, in order."""
    whole = EpisodeBuffer(parts[0].rule_names, parts[0].graphs, parts[0])
    for part in parts[1:]:
        whole.extend(part)
    return whole


def parted(config: RunConfig, buffer: EpisodeBuffer) -> tuple[EpisodeBuffer, EpisodeBuffer]:
    """Episodes to train the world model on, and those that it is measured on instead."""
    return buffer.split(config.collect.held_out, seed_for(config.seed, "held out"))


def episode_figures(episode: Episode) -> dict[str, float]:
    """What is logged of an episode."""
    return {
        "steps": episode.num_steps,
        "return": float(np.sum(episode.rewards)),
        "improvement_percent": 100 * float(1 - np.min(episode.cost_ms) / episode.cost_ms[0]),
    }


def best_collected(buffer: EpisodeBuffer, kind: str) -> EpisodeRecord:
    """The episode that visited the cheapest graph, as a record of some kind that can be replayed."""
    best = best_record(as_record(episode, buffer.rule_names, kind) for episode in buffer)
    assert best is not None  # a collection holds at least one episode
    return best


def as_record(episode: Episode, rule_names: tuple[str, ...], kind: str) -> EpisodeRecord:
    """A collected episode in the form of the evaluation's records."""
    names = (*rule_names, "NO-OP")
    return EpisodeRecord(
        kind=kind,
        seed=episode.index,
        actions=tuple((int(rule), int(location)) for rule, location in episode.actions),
        rule_names=tuple(names[rule] for rule, _ in episode.actions),
        rewards=tuple(float(reward) for reward in episode.rewards),
        costs_ms=tuple(float(cost) for cost in episode.cost_ms),
        terminated=episode.terminated,
        truncated=episode.truncated,
        graph_hash=episode.hashes[0],
    )
