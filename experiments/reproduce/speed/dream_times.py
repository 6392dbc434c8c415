"""How long encoding a state and dreaming a step take, in a world model that is as large as a trained one."""

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
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.fitting import fit
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

HORIZON = 50
_NAMES = map(str, count())
"""Of graphs, never twice the same: a model does not encode again what it has encoded once."""


class FixedOrder:
    """Takes the legal action that comes first in a random order that stays: a policy that costs next to nothing."""

    def __init__(self, num_actions: int, seed: int = 0) -> None:
        """`num_actions`: A; NO-OP is taken only where nothing else is legal."""
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
    """A world model of `episodes` random episodes after one gradient step, and the episodes.

    It predicts nothing, but takes as long over it as one that was trained on them: actions, sites and weights are as
    many.
    """
    buffer = collect(env, RandomAgent(seed), episodes, seed)
    config = replace(
        sizes,
        encoder_training=replace(sizes.encoder_training, steps=1),
        mdn_rnn_training=replace(sizes.mdn_rnn_training, steps=1),
    )
    return fit(buffer, Signature.of(env), config, seed=seed), buffer


def encode_ms(model: WorldModel, graph: GraphLike, *, batch: int, repeats: int, clock: Clock = PROCESS_CPU) -> float:
    """Time per state of encoding `batch` states like `graph` in one call: a median."""

    def encode() -> None:
        model.encode({next(_NAMES): graph for _ in range(batch)})

    return statistics.median(_times_ms(encode, repeats, clock)) / batch


def dream_env(model: WorldModel, buffer: EpisodeBuffer, *, xla: bool = False) -> DreamEnv:
    """The dream of a model, from the start graph: rows that start deeper are truncated sooner, and idle."""
    first = EpisodeBuffer(buffer.rule_names, buffer.graphs, buffer[:1])
    return DreamEnv(model, start_states(model, first, max_states=1), DreamConfig(root_fraction=1.0), xla=xla)


def dream_ms(dream: DreamEnv, policy: Policy, *, batch: int, repeats: int, clock: Clock = PROCESS_CPU) -> float:
    """Time per dreamed step, counted over rows that have not ended: a median over rollouts."""
    seeds = count()

    def play() -> int:
        return int(dream.rollout(policy, batch=batch, horizon=HORIZON, seed=next(seeds)).lengths().sum())

    steps: list[int] = []
    times = list(_times_ms(lambda: steps.append(play()), repeats, clock))
    return statistics.median(ms / taken for ms, taken in zip(times, steps[-repeats:], strict=True))


def _times_ms(work: Callable[[], object], repeats: int, clock: Clock) -> Iterator[float]:
    """Of `repeats` calls, after one that may compile."""
    work()
    for _ in range(repeats):
        start = clock.now()
        work()
        yield 1e3 * (clock.now() - start)
