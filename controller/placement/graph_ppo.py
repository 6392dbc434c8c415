"""PPO with a graph encoder: one policy for any graph and any machine.

Groups exchange messages along the edges of their graph. A device of a group is scored by the state of the group, by
what the device is like, and by how much of the group's neighbourhood is there already. So the weights depend neither on
the number of groups nor on that of devices, and a policy that was trained on some problems places others without
training (zero-shot).

A placement is made in rounds. In each one all groups choose at once, and see the devices that all have chosen in the
round before. The first round breaks ties at random; later ones move groups to their neighbours or away from full
devices.

Sources: Schulman et al. 2017, eq. 7; Zhou et al. 2019, "GDP: Generalized Device Placement for Dataflow Graphs", for
placing all groups at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sonnet as snt
import tensorflow as tf

from controller.placement.interface import Objective, Report
from controller.stored import assign, named
from environment.placement.features import GROUP_FEATURES, group_edges, group_features, group_ms
from environment.placement.problem import Assignment, PlacementProblem
from taso_ext.files import write_arrays

DEVICE_FEATURES = 5
"""Speed against the host, memory, whether it is the host, the bandwidth from the host, and 1."""
_PLACED_FEATURES = 4
"""Of a group and a device: whether it is there, the share of its bytes that come from there, that go there, and the
share of all work that is there."""


@dataclasses.dataclass(frozen=True)
class GraphPpoConfig:
    """The settings of the policy and of its training.

    Attributes:
      hidden: size of all layers.
      rounds: message-passing rounds of the encoder.
      choices: rounds of choices.
      samples: placements in each update.
      epochs: gradient steps on them.
      clip: bound on the ratio of each choice's probability.
      learning_rate: of Adam.
      entropy: first and last weight of the mean entropy, linear in between.
    """

    hidden: int = 64
    rounds: int = 3
    choices: int = 3
    samples: int = 16
    epochs: int = 3
    clip: float = 0.2
    learning_rate: float = 2e-3
    entropy: tuple[float, float] = (0.02, 0.001)


class PlacementView:
    """A problem as the policy sees it, as tensors.

    Attributes:
      groups: float32 [G, F].
      into, out: float32 [G, G], the share of a group's read bytes that come from each group, and of its handed-over
        bytes that go to each.
      work: float32 [G, D], shares of all work on each device.
      ratio: float32 [G, D], ln of a group's time on a device over that on the host.
      devices: float32 [D, DEVICE_FEATURES].
    """

    def __init__(self, problem: PlacementProblem) -> None:
        count, ms = problem.num_groups, group_ms(problem)
        weights = np.zeros((count, count))
        for (producer, reader), nbytes in group_edges(problem).items():
            weights[reader, producer] = nbytes + 1.0
        self.problem = problem
        self.groups = tf.constant(group_features(problem)[:, : len(GROUP_FEATURES)] / 10.0, tf.float32)
        self.into = tf.constant(_shares(weights), tf.float32)
        self.out = tf.constant(_shares(weights.T), tf.float32)
        self.work = tf.constant(ms / np.maximum(ms.sum(axis=0), 1e-12), tf.float32)
        self.ratio = tf.constant(np.log((ms + 1e-6) / (ms[:, :1] + 1e-6)), tf.float32)
        rows = []
        for number, device in enumerate(problem.machine.devices):
            route = problem.machine.route(0, number)
            rates = [problem.machine.links[channel // 2].bytes_per_ms for channel in route.channels]
            speed = math.log((ms[:, 0].sum() + 1e-9) / (ms[:, number].sum() + 1e-9))
            width = math.log10(min(rates)) / 10 if rates else 1.0
            rows.append([speed, math.log10(device.memory_bytes + 1) / 10, float(number == 0), width, 1.0])
        self.devices = tf.constant(rows, tf.float32)


def _shares(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns rows that sum to 1, or to 0 if they are empty."""
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)


class GraphPolicy(snt.Module):
    """The network: logits [B, G, D] for the devices that were chosen before."""

    def __init__(self, config: GraphPpoConfig) -> None:
        super().__init__(name="placement_policy")
        size = config.hidden
        self._embed = snt.nets.MLP([size, size], activate_final=True, name="embed")
        self._messages = [snt.nets.MLP([size, size], name=f"message_{each}") for each in range(config.rounds)]
        self._norms = [snt.LayerNorm(-1, True, True, name=f"norm_{each}") for each in range(config.rounds)]
        # On rows: TensorFlow 2.21 writes beyond its buffers when it multiplies [n, 1, r, k] by [k, m] on a CPU.
        self._score = snt.BatchApply(snt.nets.MLP([size, size, 1], name="score"), num_dims=3)

    def encode(self, view: PlacementView) -> tf.Tensor:
        """Returns the state of each group, [G, H]."""
        state = self._embed(view.groups)
        for message, norm in zip(self._messages, self._norms, strict=True):
            state = norm(state + message(tf.concat([state, view.into @ state, view.out @ state], axis=1)))
        return state

    def logits(self, view: PlacementView, state: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
        """Returns logits [B, G, D].

        Args:
          state: [G, H].
          before: float32 [B, G, D], one-hot the devices of the round before; zeros in the first round.
        """
        load = tf.einsum("bgd,gd->bd", before, view.work)[:, tf.newaxis] * tf.ones_like(before)
        near = (tf.einsum("gh,bhd->bgd", view.into, before), tf.einsum("gh,bhd->bgd", view.out, before))
        placed = tf.stack([before, *near, load], axis=-1)
        batch, groups, devices = before.shape
        of_pair = tf.concat(
            [
                tf.broadcast_to(state[tf.newaxis, :, tf.newaxis], [batch, groups, devices, state.shape[-1]]),
                tf.broadcast_to(view.devices[tf.newaxis, tf.newaxis], [batch, groups, devices, DEVICE_FEATURES]),
                tf.broadcast_to(view.ratio[tf.newaxis, :, :, tf.newaxis], [batch, groups, devices, 1]),
                placed,
            ],
            axis=-1,
        )
        return self._score(of_pair)[..., 0]


class GraphPpo:
    """A policy with its training.

        agent = GraphPpo(seed=0)
        agent.train([problem_a, problem_b], updates=100)
        assignment = agent.place(problem_c)          # zero-shot

    Attributes:
      policy: see `GraphPolicy`.
    """

    def __init__(self, config: GraphPpoConfig | None = None, *, seed: int = 0) -> None:
        tf.random.set_seed(seed)  # the initial weights
        self._config, self._seed, self._draws = config or GraphPpoConfig(), seed, 0
        self.policy = GraphPolicy(self._config)
        self._optimizer = snt.optimizers.Adam(self._config.learning_rate)
        self._steps: dict[int, Callable[..., tf.Tensor]] = {}

    def sample(self, view: PlacementView, batch: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the choices int32 [rounds, B, G], the last of which are the placements, and log-probabilities."""
        chosen, log_probs = [], []
        state = self.policy.encode(view)
        before = tf.zeros([batch, *view.work.shape])
        for _ in range(self._config.choices):
            logits = tf.nn.log_softmax(self.policy.logits(view, state, before))
            self._draws += 1
            noise = tf.random.stateless_uniform(logits.shape, [self._seed, self._draws], 1e-12, 1.0)
            choice = tf.argmax(logits - tf.math.log(-tf.math.log(noise)), axis=-1, output_type=tf.int32)
            chosen.append(choice)
            log_probs.append(tf.gather(logits, choice, batch_dims=2))
            before = tf.one_hot(choice, view.work.shape[1])
        return tf.stack(chosen), tf.stack(log_probs)

    def place(self, problem: PlacementProblem) -> Assignment:
        """Returns the likeliest placement: the best choice of each group in each round."""
        view = PlacementView(problem)
        state, before = self.policy.encode(view), tf.zeros([1, *view.work.shape])
        for _ in range(self._config.choices):
            choice = tf.argmax(self.policy.logits(view, state, before), axis=-1, output_type=tf.int32)
            before = tf.one_hot(choice, view.work.shape[1])
        found: Assignment = choice[0].numpy()
        return found

    def train(
        self,
        problems: Sequence[PlacementProblem],
        updates: int,
        on_update: Callable[[int, float], object] = lambda update, ms: None,
        objectives: Sequence[Objective] | None = None,
    ) -> None:
        """Trains on problems in turn.

        Args:
          updates: updates in all; each samples one problem.
          on_update: called with (updates done, median time of the samples in ms).
          objectives: of the problems, if the caller wants to know the best placements; else they are made here.
        """
        views = [PlacementView(problem) for problem in problems]
        judged = objectives or [Objective(problem, lambda count, ms: None) for problem in problems]
        for update in range(updates):
            at = update % len(views)
            chosen, log_probs = self.sample(views[at], self._config.samples)
            ms = np.array([judged[at](each) for each in chosen[-1].numpy()])
            rewards = -np.sqrt(ms)
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-9)
            first, last = self._config.entropy
            entropy = first + (last - first) * update / max(1, updates - 1)
            learn = self._steps.setdefault(id(views[at]), tf.function(self._learner_of(views[at])))
            for _ in range(self._config.epochs):
                learn(chosen, log_probs, tf.constant(advantages, tf.float32), tf.constant(entropy, tf.float32))
            on_update(update + 1, float(np.median(ms)))
        self._steps.clear()  # they belong to the views

    def _learner_of(self, view: PlacementView) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
        def learn(chosen: tf.Tensor, acted: tf.Tensor, advantages: tf.Tensor, entropy_weight: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                state, before = self.policy.encode(view), tf.zeros([chosen.shape[1], *view.work.shape])
                gain, entropy = tf.constant(0.0), tf.constant(0.0)
                for each in range(self._config.choices):
                    logits = tf.nn.log_softmax(self.policy.logits(view, state, before))
                    ratio = tf.exp(tf.gather(logits, chosen[each], batch_dims=2) - acted[each])
                    clipped = tf.clip_by_value(ratio, 1 - self._config.clip, 1 + self._config.clip)
                    signed = advantages[:, tf.newaxis]
                    gain += tf.reduce_mean(tf.reduce_sum(tf.minimum(ratio * signed, clipped * signed), axis=1))
                    entropy -= tf.reduce_mean(tf.reduce_sum(tf.exp(logits) * logits, axis=-1))
                    before = tf.one_hot(chosen[each], view.work.shape[1])
                groups = tf.cast(view.work.shape[0], tf.float32)
                loss = -gain / tf.sqrt(groups) - entropy_weight * entropy * tf.sqrt(groups)
            weights = self.policy.trainable_variables
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), 1.0)
            self._optimizer.apply(gradients, weights)
            return loss

        return learn

    def save(self, path: Path) -> None:
        """Writes the weights."""
        write_arrays(path, {name: each.numpy() for name, each in self._named().items()})

    def load(self, path: Path) -> None:
        """Reads weights that `save` has written; a policy of the same settings has to have placed something before.

        Raises:
          StoredControllerError: they belong to a policy of another structure.
        """
        with np.load(path) as arrays:
            assign(self._named(), {name: arrays[name] for name in arrays.files})

    def _named(self) -> dict[str, tf.Variable]:
        return named({"policy": self.policy.variables})


def graph_ppo(
    problem: PlacementProblem, *, budget: int, seed: int, report: Report, config: GraphPpoConfig | None = None
) -> Assignment:
    """Returns the best placement that a policy, trained on this problem alone, has sampled; see `Placer`."""
    settings = config or GraphPpoConfig()
    objective = Objective(problem, report)
    agent = GraphPpo(settings, seed=seed)
    agent.train([problem], max(1, (budget - 1) // settings.samples), objectives=[objective])
    objective(agent.place(problem))
    return objective.best
