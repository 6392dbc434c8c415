"""Collects real episodes: of random play, and of a policy for the next round of its world model."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from controller.records import EpisodeRecord, best_record
from environment import GraphSubstitutionEnv
from environment.policies.directed import DirectedAgent
from environment.policies.random import RandomAgent
from experiments.config.run import RunConfig
from experiments.pipeline.loading.load import Loaded
from experiments.runs.progress import Bar
from experiments.runs.run import Run, in_round, of_round, seed_for
from experiments.runs.signals import raise_if_received
from worldmodel.data.collection import EPISODES_PER_SHARD, Collection, OnEpisode, OnShard, collect_shards
from worldmodel.data.episodes import BehaviourPolicy, Episode, EpisodeBuffer, indexed_by_rank
from worldmodel.errors import IncompatibleEpisodes

if TYPE_CHECKING:  # the stage imports TensorFlow when it runs
    from experiments.pipeline.learning.world_model import RoundModel
    from worldmodel.dream.players import Player

STAGE, RECOLLECT = "collect", "recollect"
EPISODES, RECOLLECTED = "episodes", "recollected"
"""Folders among the checkpoints: episodes of random play, and of the policy of a round."""
POLICY_EPISODES_PER_SHARD = 20
"""Number of episodes in each file of a policy's episodes; an interrupted command plays its last file again."""


def collect_episodes(run: Run, loaded: Loaded) -> EpisodeBuffer:
    """Returns the random episodes of a run; continues where an interrupted collection stopped."""
    settings = run.config.collect
    collection = Collection(
        loaded.env_source,
        functools.partial(behaviour, config=run.config, seed=run.seed("random agent")),
        settings.episodes,
        run.seed(STAGE),
        run.directory.checkpoint(EPISODES),
    )
    if run.directory.finished(STAGE):
        return random_play(run.config, _collected(collection, run.config))
    total = settings.episodes if settings.steps is None else settings.steps
    with run.stage(STAGE, "collect random episodes", total) as bar:
        run.metrics.rewind(STAGE, 0)
        best, logged, steps = 0.0, 0, 0

        def note(shard: EpisodeBuffer, done: int) -> None:
            nonlocal best, logged, steps
            # A longer collection begins with the same episodes, which are logged already.
            for episode in shard[max(0, logged - done + len(shard)) :]:
                figures = episode_figures(episode)
                best, steps = max(best, figures["improvement_percent"]), steps + episode.num_steps
                run.metrics.append(STAGE, episode.index, figures)
            logged = max(logged, done)
            run.directory.keep_counts(STAGE)  # shards stay
            bar.update(done if settings.steps is None else min(steps, total), best_percent=best)

        def show(episode: Episode) -> None:
            if settings.steps is None:
                bar.update(min(episode.index + 1, total), best_percent=best)

        return random_play(run.config, _collected(collection, run.config, note, show))


def behaviour(env: GraphSubstitutionEnv, *, config: RunConfig, seed: int) -> BehaviourPolicy:
    """Returns the policy that plays the random episodes; it is for one shard, because directed play remembers."""
    settings = config.collect
    agent = RandomAgent(seed, settings.noop_probability, config.everywhere_probability)
    return DirectedAgent(env, agent, settings.directed) if settings.directed else agent


def _collected(
    collection: Collection, config: RunConfig, on_shard: OnShard | None = None, on_episode: OnEpisode | None = None
) -> EpisodeBuffer:
    """Returns whole shards with at least as many episodes as the settings ask for; plays those that are missing."""
    settings = config.collect

    def episodes(count: int) -> EpisodeBuffer:
        asked = dataclasses.replace(collection, episodes=count)
        return collect_shards(
            asked, processes=settings.processes, on_shard=on_shard, on_episode=on_episode, poll=raise_if_received
        )

    if settings.steps is None:
        return episodes(settings.episodes)
    whole = episodes(EPISODES_PER_SHARD)
    while whole.num_transitions < settings.steps:
        expected = settings.steps / whole.num_transitions * len(whole)
        whole = episodes(EPISODES_PER_SHARD * (int(expected) // EPISODES_PER_SHARD + 1))
    return whole


def random_play(config: RunConfig, collected: EpisodeBuffer) -> EpisodeBuffer:
    """Returns as many of the collected episodes as the settings ask for, with actions named as the settings say."""
    settings = config.collect
    if settings.steps is not None:
        steps = np.cumsum([episode.num_steps for episode in collected])
        count = max(2, 1 + int(np.searchsorted(steps, settings.steps)))  # one to train on, one held out
        collected = EpisodeBuffer(collected.rule_names, collected.graphs, collected[:count])
    return named(config, collected)


def named(config: RunConfig, buffer: EpisodeBuffer) -> EpisodeBuffer:
    """Returns the episodes with actions named as the world model names them."""
    return indexed_by_rank(buffer) if config.collect.actions == "rank" else buffer


def parted(config: RunConfig, buffer: EpisodeBuffer) -> tuple[EpisodeBuffer, EpisodeBuffer]:
    """Splits random episodes into those that train the world model and those that are held out to measure it."""
    return buffer.split(config.collect.held_out, seed_for(config.seed, "held out"))


def recollect_episodes(run: Run, loaded: Loaded, model: RoundModel, player: Player, *, omits: bool) -> EpisodeBuffer:
    """Returns real episodes of a round's controller, from which the next round learns.

    It sees states through the world model of its round. Continues where an interrupted command stopped.

    Args:
      omits: whether the dream of this round offers too few of the rewrites that pay.
    """
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.dream.recollection import recollect

    number = model.number + 1
    stage, count = of_round(RECOLLECT, number), run.config.recollect.episodes
    directory = run.directory.checkpoint(of_round(RECOLLECTED, number))
    if run.directory.finished(stage):
        return read_episodes(directory)
    directory.mkdir(exist_ok=True)
    with run.stage(stage, in_round("recollect episodes", number), count) as bar:
        run.metrics.rewind(stage, 0)
        seen_through = model.fresh()
        settings = run.config.dream
        dream = DreamEnv.of_root(seen_through, loaded.env, settings)
        searched = run.config.recollect.searched
        to_search = DreamEnv.of_root(seen_through, loaded.env, settings.certain()) if searched else None
        for first in range(0, count, POLICY_EPISODES_PER_SHARD):
            last = min(first + POLICY_EPISODES_PER_SHARD, count) - 1
            path = directory / f"episodes-{first:06d}-{last:06d}.npz"
            if not path.is_file():
                recollect(
                    seen_through,
                    loaded.env,
                    player,
                    episodes=last - first + 1,
                    seed=run.seed(f"{stage} {first}"),
                    dream=dream,
                    dreamed=run.config.recollect.dreamed,
                    certain=to_search,
                    searched=searched,
                    omitted=run.config.recollect.omitted if omits else 0.0,
                    uncertain=run.config.recollect.uncertain,
                    legal_from=run.config.dream.legal_from,
                    on_episode=_reporting(bar, first),
                ).save(path)
                run.directory.keep_counts(stage)
            for episode in EpisodeBuffer.load(path):
                run.metrics.append(stage, first + episode.index, episode_figures(episode))
    return read_episodes(directory)


def _reporting(bar: Bar, first: int) -> Callable[[Episode], None]:
    """Returns a callback that reports the episodes of the shard which begins with episode `first`."""

    def report(episode: Episode) -> None:
        bar.update(first + episode.index + 1, improvement_percent=episode_figures(episode)["improvement_percent"])

    return report


def read_episodes(directory: Path) -> EpisodeBuffer:
    """Reads all episodes from the shards in a folder, in order.

    Raises:
      IncompatibleEpisodes: there is no shard, or a shard cannot be read.
    """
    shards = sorted(directory.glob("episodes-*.npz"))
    if not shards:
        raise IncompatibleEpisodes(f"{directory} holds no episodes (episodes-*.npz): it was not copied as a whole.")
    return joined([EpisodeBuffer.load(path) for path in shards])


def joined(parts: Sequence[EpisodeBuffer]) -> EpisodeBuffer:
    """Returns the episodes of all parts, in order."""
    whole = EpisodeBuffer(parts[0].rule_names, parts[0].graphs, parts[0])
    for part in parts[1:]:
        whole.extend(part)
    return whole


def episode_figures(episode: Episode) -> dict[str, float]:
    """Returns the figures to log of an episode: steps, return, and best improvement in percent of the start's cost."""
    return {
        "steps": episode.num_steps,
        "return": float(np.sum(episode.rewards)),
        "improvement_percent": 100 * float(1 - np.min(episode.cost_ms) / episode.cost_ms[0]),
    }


def best_collected(buffer: EpisodeBuffer, kind: str) -> EpisodeRecord:
    """Returns the episode that improved most on its start graph, as a record of this kind, which can be replayed."""
    best = best_record(as_record(episode, buffer.rule_names, kind) for episode in buffer)
    assert best is not None  # a collection holds at least one episode
    return best


def best_plans(buffer: EpisodeBuffer) -> list[tuple[tuple[int, int], ...]]:
    """Returns the rewrites to the best graph of each episode that has improved on its start graph."""
    plans = (as_record(episode, buffer.rule_names, "collection").best_actions for episode in buffer)
    return [plan for plan in plans if plan]


def as_record(episode: Episode, rule_names: tuple[str, ...], kind: str) -> EpisodeRecord:
    """Returns a collected episode in the form of the evaluation's records."""
    names = (*rule_names, "NO-OP")
    carried_out = episode.rewrites_of_steps()
    actions = [
        rewrites or [(int(rule), int(location))]
        for rewrites, (rule, location) in zip(carried_out, episode.actions, strict=True)
    ]
    return EpisodeRecord(
        kind=kind,
        seed=episode.index,
        actions=tuple(itertools.chain(*actions)),
        everywhere=tuple(map(len, carried_out)) if any(carried_out) else (),
        rule_names=tuple(names[rule] for rule, _ in episode.actions),
        rewards=tuple(float(reward) for reward in episode.rewards),
        costs_ms=tuple(float(cost) for cost in episode.cost_ms),
        terminated=episode.terminated,
        truncated=episode.truncated,
        graph_hash=episode.hashes[0],
    )
