"""The published agent: a sequence-to-sequence LSTM with content attention, trained by REINFORCE.

An encoder reads the embeddings of the groups in their order. A decoder says for one group after another on which device
it goes. It attends to the encoder's states by their content, and the device that it has chosen, as an embedding, is its
next input.

Source: Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning", section 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import sonnet as snt
import tensorflow as tf

from controller.placement.interface import Objective, Report
from environment.placement.env import failing_ms
from environment.placement.features import group_adjacency
from environment.placement.problem import Assignment, PlacementProblem

SHAPES, DIMS = 4, 4
"""How many results of a group an agent sees, and how many dimensions of each; others are left out or zero."""


@dataclasses.dataclass(frozen=True)
class SequenceConfig:
    """The settings of the agent and of its training.

    Attributes:
      hidden: size of both LSTMs and of the attention.
      type_size: size of the embedding of an operator's type.
      samples: placements in each update.
      learning_rate: of Adam.
      gradient_norm: bound on the global norm of the gradient.
      baseline_decay: of the moving average of rewards, which starts at the failing signal: all placements that run then
        look good at first, which makes the agent explore.
      entropy: weight of the mean entropy of the decoder's choices; 0 as published.
      valid_only_from: share of the budget after which only placements that fit into memory are learned from; the paper
        does so after 5000 updates.
    """

    hidden: int = 128
    type_size: int = 16
    samples: int = 16
    learning_rate: float = 2e-3
    gradient_norm: float = 1.0
    baseline_decay: float = 0.9
    entropy: float = 0.0
    valid_only_from: float = 0.5


class GroupEmbeddings(NamedTuple):
    """What the encoder reads: type counts [G, K], shapes [G, SHAPES · DIMS] and adjacency [G, 2 G], all float32."""

    types: npt.NDArray[np.float32]
    shapes: npt.NDArray[np.float32]
    adjacency: npt.NDArray[np.float32]

    @classmethod
    def of(cls, problem: PlacementProblem) -> GroupEmbeddings:
        """Returns the embeddings of a problem's groups: types as shares of the operators, extents as ln(1 + x)."""
        kinds = {kind: at for at, kind in enumerate(sorted({each.op_type for each in problem.graph.operators}))}
        types = np.zeros((problem.num_groups, len(kinds)), np.float32)
        for operator, group in zip(problem.graph.operators, problem.groups, strict=True):
            types[group, kinds[operator.op_type]] += 1
        types /= np.maximum(types.sum(axis=1, keepdims=True), 1)
        shapes = np.zeros((problem.num_groups, SHAPES, DIMS), np.float32)
        filled = np.zeros(problem.num_groups, np.int64)
        for tensor in problem.graph.tensors:
            if tensor.producer < 0 or tensor.dims is None:
                continue
            group = problem.groups[tensor.producer]
            leaves = tensor.is_output or any(problem.groups[reader] != group for reader in tensor.readers)
            if leaves and filled[group] < SHAPES:
                dims = tensor.dims[:DIMS]
                shapes[group, filled[group], : len(dims)] = np.log1p(dims)
                filled[group] += 1
        adjacency = group_adjacency(problem).astype(np.float32)
        return cls(types, shapes.reshape(problem.num_groups, -1), np.concatenate([adjacency, adjacency.T], axis=1))


class SequencePolicy(snt.Module):
    """The network: distributions over devices, group after group.

    Args:
      embeddings: of the groups that it places; it is for these alone.
      devices: D.
    """

    def __init__(self, embeddings: GroupEmbeddings, devices: int, config: SequenceConfig) -> None:
        super().__init__(name="sequence_policy")
        self._given, self._devices = embeddings, devices
        self._type_embedding = snt.Linear(config.type_size, with_bias=False, name="types")
        self._encoder, self._decoder = snt.LSTM(config.hidden, name="encoder"), snt.LSTM(config.hidden, name="decoder")
        # The device D stands for the begin of a sequence.
        self._device_embedding = snt.Embed(devices + 1, config.hidden, name="devices")
        self._keys = snt.Linear(config.hidden, with_bias=False, name="keys")
        self._query = snt.Linear(config.hidden, with_bias=False, name="query")
        self._energy = snt.Linear(1, with_bias=False, name="energy")
        self._head = snt.Linear(devices, name="head")

    def encode(self) -> tuple[tf.Tensor, snt.LSTMState]:
        """Returns the encoder's states [G, H] and its last state, of one row."""
        types = self._type_embedding(tf.constant(self._given.types))
        inputs = tf.concat([types, self._given.shapes, self._given.adjacency], axis=1)[:, tf.newaxis]
        outputs, state = snt.dynamic_unroll(self._encoder, inputs, self._encoder.initial_state(1))
        return outputs[:, 0], state

    def step(
        self, previous: tf.Tensor, state: snt.LSTMState, states: tf.Tensor, keys: tf.Tensor
    ) -> tuple[tf.Tensor, snt.LSTMState]:
        """Returns the logits [B, D] of the next group's device, and the decoder's state.

        Args:
          previous: int32 [B], the device of the group before.
          states, keys: [G, H], what the decoder attends to.
        """
        hidden, state = self._decoder(self._device_embedding(previous), state)
        energies = self._energy(tf.tanh(keys[tf.newaxis] + self._query(hidden)[:, tf.newaxis]))
        context = tf.matmul(tf.nn.softmax(tf.squeeze(energies, axis=2)), states)
        return self._head(tf.concat([hidden, context], axis=1)), state

    def sample(self, batch: int, seed: tf.Tensor) -> tf.Tensor:
        """Returns placements int32 [B, G].

        Args:
          seed: int32 [2].
        """
        states, state = self.encode()
        keys = self._keys(states)

        def choose(before: tuple[tf.Tensor, snt.LSTMState], group: tf.Tensor) -> tuple[tf.Tensor, snt.LSTMState]:
            logits, after = self.step(*before, states, keys)
            noise = tf.random.stateless_uniform(tf.shape(logits), tf.random.fold_in(seed, group), 1e-12, 1.0)
            return tf.argmax(logits - tf.math.log(-tf.math.log(noise)), axis=1, output_type=tf.int32), after

        begin = (tf.fill([batch], self._devices), _repeated(state, batch))
        chosen, _ = tf.scan(choose, tf.range(len(self._given.types)), begin)
        return tf.transpose(chosen)

    def log_probs(self, placements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the log-probability of each placement [B], and the mean entropy of the choices on its way [B]."""
        states, state = self.encode()
        keys, batch = self._keys(states), placements.shape[0]

        def judge(before: _Judged, device: tf.Tensor) -> _Judged:
            logits, after = self.step(before.device, before.state, states, keys)
            log_probs = tf.nn.log_softmax(logits)
            entropy = -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=1)
            return _Judged(device, after, tf.gather(log_probs, device, batch_dims=1), entropy)

        nothing = tf.zeros([batch])
        begin = _Judged(tf.fill([batch], self._devices), _repeated(state, batch), nothing, nothing)
        found = tf.scan(judge, tf.transpose(placements), begin)
        return tf.reduce_sum(found.log_prob, axis=0), tf.reduce_mean(found.entropy, axis=0)


class _Judged(NamedTuple):
    """A device of each row [B], the decoder's state, and the log-probability and entropy of this choice [B]."""

    device: tf.Tensor
    state: snt.LSTMState
    log_prob: tf.Tensor
    entropy: tf.Tensor


def _repeated(state: snt.LSTMState, batch: int) -> snt.LSTMState:
    return tf.nest.map_structure(lambda each: tf.repeat(each, batch, axis=0), state)


class ReinforceLearner:
    """REINFORCE on −√seconds with a moving average as baseline.

    Attributes:
      policy: see `SequencePolicy`.
      baseline: the moving average of the rewards.
    """

    def __init__(self, problem: PlacementProblem, config: SequenceConfig, seed: int) -> None:
        tf.random.set_seed(seed)  # the initial weights
        self._config, self._seed = config, seed
        self.policy = SequencePolicy(GroupEmbeddings.of(problem), problem.machine.num_devices, config)
        self.baseline = -math.sqrt(failing_ms(problem) * 1e-3)
        self._optimizer = snt.optimizers.Adam(config.learning_rate)
        self._sample = tf.function(lambda seed: self.policy.sample(config.samples, seed))
        self._learn = tf.function(self._gradient_step)
        self._differentiate = tf.function(self._gradients)

    def sample(self, update: int) -> Assignment:
        """Returns placements [samples, G]."""
        found: Assignment = self._sample(tf.constant([self._seed, update], tf.int32)).numpy()
        return found

    def learn(self, placements: Assignment, rewards: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]) -> float:
        """Makes one gradient step and returns the mean entropy of the decoder's choices, in nats.

        Args:
          placements: [samples, G], as sampled.
          rewards: [samples].
          counted: [samples], which ones are learned from; the baseline follows these alone too.
        """
        if not counted.any():
            return float("nan")
        advantages = self._advantages(rewards, counted)
        return float(self._learn(tf.constant(placements), advantages))

    def gradient(
        self, placements: Assignment, rewards: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]
    ) -> list[npt.NDArray[np.float32]] | None:
        """Returns the gradient of one step, and leaves the weights as they are; the baseline moves as in `learn`.

        It is None if no placement counts.
        """
        if not counted.any():
            return None
        gradients, _ = self._differentiate(tf.constant(placements), self._advantages(rewards, counted))
        return [tf.convert_to_tensor(each).numpy() for each in gradients]  # those of gathered rows may be sparse

    def _advantages(self, rewards: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]) -> tf.Tensor:
        """Returns the weight of each placement's log-probability, and moves the baseline."""
        advantages = np.where(counted, rewards - self.baseline, 0.0) / counted.sum()
        decay = self._config.baseline_decay
        self.baseline = decay * self.baseline + (1 - decay) * float(rewards[counted].mean())
        return tf.constant(advantages, tf.float32)

    def _gradient_step(self, placements: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
        gradients, entropy = self._gradients(placements, advantages)
        self._optimizer.apply(gradients, self.policy.trainable_variables)
        return entropy

    def _gradients(self, placements: tf.Tensor, advantages: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        with tf.GradientTape() as tape:
            log_probs, entropy = self.policy.log_probs(placements)
            loss = -tf.reduce_sum(advantages * log_probs) - self._config.entropy * tf.reduce_mean(entropy)
        weights = self.policy.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), self._config.gradient_norm)
        return gradients, tf.reduce_mean(entropy)


def fitting_from(config: SequenceConfig, updates: int) -> int:
    """Returns the update from which on only placements that fit into memory are learned from."""
    return math.ceil(config.valid_only_from * updates)


def reinforce(
    problem: PlacementProblem, *, budget: int, seed: int, report: Report, config: SequenceConfig | None = None
) -> Assignment:
    """Returns the best placement that the agent has sampled within the budget; see `Placer`."""
    settings = config or SequenceConfig()
    objective = Objective(problem, report)
    learner, failing = ReinforceLearner(problem, settings, seed), failing_ms(problem)
    for update in range(max(1, budget // settings.samples)):
        placements = learner.sample(update)
        ms = np.array([objective(each) for each in placements[: max(1, budget - objective.evaluations)]])
        if len(ms) < settings.samples:
            break
        fits = ms < failing
        counted = fits if objective.evaluations >= settings.valid_only_from * budget else np.ones_like(fits)
        learner.learn(placements, -np.sqrt(np.minimum(ms, failing) * 1e-3), counted)
    return objective.best
