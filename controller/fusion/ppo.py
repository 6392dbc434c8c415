"""Proximal policy optimisation of fusion plans: the project's own learner, on the objective that all searches ask.

A state is a configuration, an action flips one decision, and the reward is 100 · ln(cost before / after), as in
`environment.fusion.FusionEnv`. Some rows play side by side from the start of the search. After every rollout the policy
learns, and the rows begin again. Every step of a row is a query.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.fusion.network import AdvantageNetwork
from controller.fusion.run import Run
from controller.policies.categorical import Categorical, sampled
from controller.ppo.config import PpoConfig
from controller.ppo.learner import PpoLearner
from environment.fusion import FusionGraph, Objective
from worldmodel.data.trajectory import LatentObservation, Trajectory

ROWS, HORIZON = 4, 32
SETTINGS = PpoConfig(
    batch=ROWS, horizon=HORIZON, epochs=3, minibatches=4, learning_rate=1e-3, rule_entropy=(0.01, 0.001)
)
HIDDEN, LAYERS = 32, 2


class FusionPolicy(snt.Module):
    """A policy over the n decisions of one graph, by the network that predicts advantages elsewhere.

    Its observation has the configuration as `z` [B, n] and no recurrent state; NO-OP, action n, is never legal.

    Args:
      graph: the graph whose decisions these are.
    """

    has_location_critic = False

    def __init__(self, graph: FusionGraph) -> None:
        super().__init__()
        self._nodes, self._links = tf.constant(graph.nodes), tf.constant(graph.links)
        self._configurable = tf.constant(graph.configurable)
        self._count = len(graph.nodes)
        self._network = AdvantageNetwork(HIDDEN, LAYERS)
        small = snt.initializers.RandomNormal(stddev=0.01)
        self._logit, self._value = snt.Linear(1, w_init=small), snt.Linear(1, w_init=small)
        self.distribution_and_value(first_observation(graph))  # makes the variables

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return sampled(self.distribution_and_value(observation), seed)

    def distribution_and_value(self, observation: LatentObservation) -> tuple[Categorical, tf.Tensor]:
        """Returns the distribution over n + 1 actions and the value [B] of B configurations."""
        rows = tf.shape(observation.z)[0]
        starts = tf.range(rows) * self._count
        bits = tf.transpose(
            tf.scatter_nd(self._configurable[:, tf.newaxis], tf.transpose(observation.z), [self._count, rows])
        )
        links = tf.reshape(self._links[tf.newaxis] + starts[:, tf.newaxis, tf.newaxis], [-1, 2])
        found = self._network.embeddings(tf.tile(self._nodes, [rows, 1]), links, tf.reshape(bits, [-1]))
        found = tf.reshape(found, [rows, self._count, HIDDEN])
        logits = self._logit(tf.gather(found, self._configurable, axis=1))[..., 0]
        value = self._value(tf.reduce_mean(found, axis=1))[:, 0]
        return Categorical(tf.pad(logits, [[0, 0], [0, 1]]), observation.action_mask), value


def first_observation(graph: FusionGraph) -> LatentObservation:
    """Returns the observation of the compiler's plan, one row."""
    return _observation(graph.start()[np.newaxis, graph.configurable])


def _observation(bits: np.ndarray) -> LatentObservation:
    legal = np.ones((len(bits), bits.shape[1] + 1), bool)
    legal[:, -1] = False
    return LatentObservation(tf.constant(bits, tf.float32), tf.zeros([len(bits), 1]), tf.constant(legal))


def ppo_search(run: Run) -> None:
    """Learns and plays until the budget of queries is spent; the last rollout may be cut and is not learned from.

    Up to ROWS queries are left over when they would not carry the rows beyond their start.
    """
    seed = int(run.rng.integers(1 << 30))
    tf.random.set_seed(seed)
    policy = FusionPolicy(run.graph)
    updates = max(1, run.left // (ROWS * (HORIZON + 1)))
    learner = PpoLearner(policy, dataclasses.replace(SETTINGS, updates=updates), seed=seed)
    act = tf.function(policy, autograph=False)
    start = run.objective.configuration
    while run.left > ROWS:
        played = _rollout(run, act, start, seed + learner.num_updates)
        if played is None:
            return
        learner.update(played)


def _rollout(
    run: Run, act: tf.types.experimental.PolymorphicFunction, start: np.ndarray, seed: int
) -> Trajectory | None:
    """Plays all rows for the horizon; None if the budget ends before."""
    decisions = run.graph.configurable
    rows = [Objective(run.graph, start) for _ in range(ROWS)]
    states = np.zeros((HORIZON + 1, ROWS, len(decisions)), np.float32)
    actions, rewards = np.zeros((HORIZON, ROWS), np.int32), np.zeros((HORIZON, ROWS), np.float32)
    log_probs, values = np.zeros((HORIZON, ROWS), np.float32), np.zeros((HORIZON + 1, ROWS), np.float32)
    for step in range(HORIZON + 1):
        states[step] = [row.configuration[decisions] for row in rows]
        chosen = [part.numpy() for part in act(_observation(states[step]), tf.constant([seed, step]))]
        values[step] = chosen[2]
        if step == HORIZON:
            break
        actions[step], log_probs[step] = chosen[:2]
        for number, row in enumerate(rows):
            if run.left <= 0:
                return None
            before = row.cost_ms
            rewards[step, number] = 100 * math.log(before / row.flipped([int(decisions[actions[step, number]])]))
            run.note(row)
    legal = np.ones((HORIZON + 1, ROWS, len(decisions) + 1), bool)
    legal[..., -1] = False
    alive = np.ones((HORIZON, ROWS), bool)
    fields = (
        states,
        legal,
        actions,
        rewards,
        ~alive,
        alive,
        np.zeros((HORIZON + 1, ROWS, 1), np.float32),
        log_probs,
        values,
    )
    return Trajectory(*(tf.constant(field) for field in fields))
