"""Collects episodes of the random agent in the real environment."""

from __future__ import annotations

import numpy as np

from controller.records import EpisodeRecord, best_record
from environment.random_agent import RandomAgent
from experiments.run import Run
from worldmodel.episodes import Episode, EpisodeBuffer, RewriteEnv, collect

STAGE = "collect"
EPISODES_PER_CHECKPOINT = 50


def collect_episodes(run: Run, env: RewriteEnv) -> EpisodeBuffer:
    """The episodes that the world model is trained on; continues where an interrupted collection stopped."""
    path = run.directory.checkpoint("episodes.npz")
    buffer = EpisodeBuffer.load(path) if path.is_file() else None
    total = run.config.collect.episodes
    if buffer is not None and run.directory.finished(STAGE):
        return buffer
    agent = RandomAgent(run.seed("random agent"), run.config.collect.noop_probability)
    with run.stage(STAGE, "collect random episodes", total) as bar:
        run.metrics.rewind(STAGE, 0 if buffer is None else len(buffer))
        best = 0.0

        def note(episode: Episode) -> None:
            nonlocal best
            figures = episode_figures(episode)
            best = max(best, figures["improvement_percent"])
            run.metrics.append(STAGE, episode.index, figures)
            bar.update(episode.index + 1, best_percent=best)

        while buffer is None or len(buffer) < total:
            wanted = min(total, EPISODES_PER_CHECKPOINT + (0 if buffer is None else len(buffer)))
            buffer = collect(env, agent, wanted, run.seed(STAGE), buffer=buffer, on_episode=note)
            buffer.save(path)
    return buffer


def episode_figures(episode: Episode) -> dict[str, float]:
    """What is logged of an episode."""
    return {
        "steps": episode.num_steps,
        "return": float(np.sum(episode.rewards)),
        "improvement_percent": 100 * float(1 - np.min(episode.cost_ms) / episode.cost_ms[0]),
    }


def best_collected(buffer: EpisodeBuffer) -> EpisodeRecord:
    """The episode that visited the cheapest graph, as a record that can be replayed."""
    best = best_record(as_record(episode, buffer.rule_names) for episode in buffer)
    assert best is not None  # a collection holds at least one episode
    return best


def as_record(episode: Episode, rule_names: tuple[str, ...]) -> EpisodeRecord:
    """A collected episode in the form of the evaluation's records."""
    names = (*rule_names, "NO-OP")
    return EpisodeRecord(
        kind="collection",
        seed=episode.index,
        actions=tuple((int(rule), int(location)) for rule, location in episode.actions),
        rule_names=tuple(names[rule] for rule, _ in episode.actions),
        rewards=tuple(float(reward) for reward in episode.rewards),
        costs_ms=tuple(float(cost) for cost in episode.cost_ms),
        terminated=episode.terminated,
        truncated=episode.truncated,
    )
