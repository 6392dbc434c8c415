"""`MctsLearner`: the policy learns what the search improved it to, the value what games earned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from controller.mcts.config import MctsConfig
from controller.mcts.games import Game
from controller.ppo.learner import TrainablePolicy, any_rows
from controller.stored import assign, named
from worldmodel.config import OptimiserConfig
from worldmodel.training import Optimiser

SMALLEST_SCALE = 1e-3
"""Lowest return scale, in percent: where nothing is earned, the errors of the values must not be scaled up."""


class _Batch(NamedTuple):
    """n states: observations of the policy, targets float32 [n, columns], values float32 [n]."""

    observation: Any
    targets: tf.Tensor
    values: tf.Tensor


class MctsLearner:
    """A learner that improves a policy, one iteration of games at a time.

    The cross-entropy between the improved policy and the prior is minimised, and the squared error of the value, which
    is in units of the return scale: the root mean square of the values of all states so far.

    Attributes:
      num_iterations: number of iterations done.
    """

    def __init__(self, policy: TrainablePolicy, config: MctsConfig, *, seed: int = 0) -> None:
        self._policy, self._config, self._seed = policy, config, seed
        rates = OptimiserConfig(config.learning_rate, config.last_learning_rate, config.gradient_norm)
        self._optimiser = Optimiser(rates, list(policy.trainable_variables))
        self._squared_return = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="squared_return")
        self.num_iterations = 0
        self._program: Callable[[_Batch], dict[str, tf.Tensor]] | None = None

    @property
    def unit(self) -> float:
        """The return scale, in the unit of the rewards; 1 before there are any."""
        if not self.num_iterations:
            return 1.0
        return max(SMALLEST_SCALE, float(np.sqrt(self._squared_return.numpy())))

    def update(
        self, latest: Sequence[Game], window: Sequence[Game], make_batch: Callable[[Sequence[Any]], Any]
    ) -> dict[str, float]:
        """Takes the gradient steps of one iteration.

        Args:
          latest: the games of this iteration, from which the return scale is updated.
          window: all games to learn from.
          make_batch: see `Simulator.batch`.
        Returns:
          Means over the gradient steps: `policy_loss` (divergence of the prior from the improved policy, in nats),
          `value_loss`, `gradient_norm` before it was bounded; and `return_scale` and `learning_rate`.
        """
        mean_square = float(np.mean(np.concatenate([game.values for game in latest]) ** 2))
        self._squared_return.assign_add((mean_square - self._squared_return) / (self.num_iterations + 1))
        self._optimiser.set_rate(self.num_iterations, self._config.iterations)
        generator = np.random.default_rng([self._seed, self.num_iterations])
        self.num_iterations += 1
        moves = [(game, move) for game in window for move in range(len(game))]
        found = []
        for _ in range(self._config.gradient_steps):
            chosen = generator.choice(len(moves), size=min(self._config.batch, len(moves)), replace=False)
            batch = self._batch([moves[index] for index in chosen], make_batch)
            if self._program is None:
                specs = any_rows(batch)._replace(targets=tf.TensorSpec([None, None]))
                self._program = tf.function(self._step, input_signature=[specs], autograph=False)
            found.append({name: float(value) for name, value in self._program(batch).items()})
        means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        return {**means, "return_scale": self.unit, "learning_rate": self._optimiser.rate}

    def _batch(self, moves: Sequence[tuple[Game, int]], make_batch: Callable[[Sequence[Any]], Any]) -> _Batch:
        targets = np.zeros((len(moves), 1 + max(int(game.columns[move][-1]) for game, move in moves)), np.float32)
        for row, (game, move) in zip(targets, moves, strict=True):
            row[game.columns[move]] = game.targets[move]
        values = np.array([game.values[move] for game, move in moves]) / self.unit
        seen = make_batch([game.observations[move] for game, move in moves])
        return _Batch(seen, tf.constant(targets), tf.constant(values, tf.float32))

    def _step(self, batch: _Batch) -> dict[str, tf.Tensor]:
        """Takes one gradient step and returns its metrics."""
        with tf.GradientTape() as tape:
            distribution, values = self._policy.distribution_and_value(batch.observation)
            targets = batch.targets
            surprise = tf.math.xlogy(targets, targets) - targets * distribution.all_log_probs()
            policy_loss = tf.reduce_mean(tf.reduce_sum(surprise, axis=1))
            value_loss = 0.5 * tf.reduce_mean(tf.square(values - batch.values))
            loss = policy_loss + self._config.value_weight * value_loss
        norm = self._optimiser.minimise(loss, tape)
        return {"policy_loss": policy_loss, "value_loss": value_loss, "gradient_norm": norm}

    def state(self) -> dict[str, np.ndarray]:
        """Returns the weights, the optimiser's state and the counter, by name."""
        arrays = {name: variable.numpy() for name, variable in self._variables().items()}
        return {**arrays, "num_iterations": np.array(self.num_iterations)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from `state()`.

        Raises:
          StoredControllerError: the state belongs to a policy of another structure.
        """
        assign(self._variables(), {name: array for name, array in state.items() if name != "num_iterations"})
        self.num_iterations = int(state["num_iterations"])

    def _variables(self) -> dict[str, tf.Variable]:
        optimiser = [self._squared_return, *self._optimiser.state]
        return named({"policy": self._policy.variables, "optimiser": optimiser})
