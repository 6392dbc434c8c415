"""Run times of encoding a state and of a dreamed step, in a world model that is as large as a trained one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.measurement.effort import PROCESS_CPU, Clock
from environment.policies.random import RandomAgent
from worldmodel.config import DreamConfig, WorldModelConfig
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.data.graph_store import GraphLike
from worldmodel.data.trajectory import LatentObservation, Policy
from worldmodel.dream.dream_env import DreamEnv, start_states, structure_of
from worldmodel.fitting import fit
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

HORIZON = 50
_NAMES = map(str, count())
"""Names for graphs, each used once: a model does not encode a graph again whose name it has encoded before."""


class FixedOrder:
    """A policy that costs almost no time: it takes the legal action that comes first in a fixed random order."""

    def __init__(self, num_actions: int, seed: int = 0) -> None:
        """
        Args:
          num_actions: the number A of actions without NO-OP, which is taken only if nothing else is legal.
          seed: the seed of the order.
        """
        order = np.random.default_rng(seed).random(num_actions)
        self._priorities = tf.constant(np.append(order, 0.0), tf.float32)

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `Policy`."""
        priorities = tf.where(observation.action_mask, self._priorities, -1.0)
        action = tf.argmax(priorities, axis=-1, output_type=tf.int32)
        nothing = tf.zeros(tf.shape(action))
        return action, nothing, nothing


def barely_trained(
    env: GraphSubstitutionEnv, episodes: int, sizes: WorldModelConfig, seed: int = 0
) -> tuple[WorldModel, EpisodeBuffer]:
    """Returns a world model of `episodes` random episodes after one gradient step, and the episodes.

    Its predictions mean nothing, but they take as long as those of a model that was trained on the episodes: the
    numbers of actions, sites and weights are the same.
    """
    buffer = collect(env, RandomAgent(seed), episodes, seed)
    config = replace(
        sizes,
        encoder_training=replace(sizes.encoder_training, steps=1),
        mdn_rnn_training=replace(sizes.mdn_rnn_training, steps=1),
    )
    return fit(buffer, Signature.of(env), config, seed=seed), buffer


def encode_ms(model: WorldModel, graph: GraphLike, *, batch: int, repeats: int, clock: Clock = PROCESS_CPU) -> float:
    """Returns the median time per state, in ms, of encoding `batch` states like `graph` in one call."""

    def encode() -> None:
        model.encode({next(_NAMES): graph for _ in range(batch)})

    return statistics.median(_times_ms(encode, repeats, clock)) / batch


def dream_env(
    model: WorldModel, buffer: EpisodeBuffer, *, xla: bool = False, engine: GraphSubstitutionEnv | None = None
) -> DreamEnv:
    """Returns the dream of a model from the start graph; rows that start deeper would be truncated sooner, and idle.

    Args:
      engine: the environment whose engine says what is legal; None: the model predicts it.
    """
    first = EpisodeBuffer(buffer.rule_names, buffer.graphs, buffer[:1])
    config = DreamConfig(root_fraction=1.0, legality="predicted" if engine is None else "exact")
    structure = structure_of(model, engine, config)
    starts = start_states(model, first, max_states=1, structure=structure)
    return DreamEnv(model, starts, config, xla=xla, structure=structure)


def dream_ms(dream: DreamEnv, policy: Policy, *, batch: int, repeats: int, clock: Clock = PROCESS_CPU) -> float:
    """Returns the time per dreamed step in ms, a median over rollouts; steps of rows that have ended do not count."""
    seeds = count()

    def play() -> int:
        return int(dream.rollout(policy, batch=batch, horizon=HORIZON, seed=next(seeds)).lengths().sum())

    steps: list[int] = []
    times = list(_times_ms(lambda: steps.append(play()), repeats, clock))
    return statistics.median(ms / taken for ms, taken in zip(times, steps[-repeats:], strict=True))


def _times_ms(work: Callable[[], object], repeats: int, clock: Clock) -> Iterator[float]:
    """Yields the time in ms of each of `repeats` calls, after one untimed call that may compile."""
    work()
    for _ in range(repeats):
        start = clock.now()
        work()
        yield 1e3 * (clock.now() - start)
