"""`PpoLearner`: clipped proximal policy optimisation of a policy with exact, masked distributions.

Source: Schulman et al. 2017, eq. 9; details as in Huang et al. 2022, "The 37 implementation details of PPO".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from controller.policies.categorical import Distribution
from controller.policies.hierarchical import HierarchicalCategorical
from controller.ppo.config import PpoConfig
from controller.stored import assign, named
from worldmodel.data.trajectory import Trajectory
from worldmodel.networks.adam import Adam

ADAM_EPSILON = 1e-5
"""Adam's epsilon, as in the published code of PPO."""
SMALLEST_SPREAD = 1e-3
"""Added to the standard deviation by which advantages are divided. Once a policy is as good as it can be, the remaining
advantages are noise, which must not be scaled up to size 1."""


STEP_METRICS = (
    *("policy_loss", "value_loss", "rule_entropy", "location_entropy"),
    *("divergence", "clipped", "ratio_error", "gradient_norm"),
)


class TrainablePolicy(Protocol):
    """The part of a policy that the learner needs; `LatentPolicy` and `GraphPolicy` have it."""

    variables: tuple[tf.Variable, ...]
    trainable_variables: tuple[tf.Variable, ...]
    has_location_critic: bool  # whether its distributions have values of locations

    def distribution_and_value(self, observation: Any) -> tuple[Distribution, tf.Tensor]:
        """Returns the masked distribution and the value [B] of a batch of observations."""
        ...


class Schedule(NamedTuple):
    """The values that change from update to update: float32 scalars, and the seed int32 [2] of the minibatches."""

    num_updates: tf.Tensor
    learning_rate: tf.Tensor
    rule_entropy: tf.Tensor
    location_entropy: tf.Tensor
    seed: tf.Tensor


class Choices(NamedTuple):
    """The choices that n actions consist of, and what was expected before each.

    A policy with one critic makes C = 1 choice, of the action. One that has a critic of locations too makes C = 2: of
    the rule, expected to earn V(s), and of the location, expected to earn V(s, rule).

    Attributes:
      log_probs: float32 [n, C], log-probability of each choice.
      values: float32 [n, C], in the learner's unit.
    """

    log_probs: tf.Tensor
    values: tf.Tensor


class Targets(NamedTuple):
    """The data of the n steps that were taken in one rollout.

    Attributes:
      rows: int32 [n], the rows of their observations.
      actions: int32 [n].
      acted: float32 [n], the log-probabilities of the actions when the policy acted.
      choices: their choices before the update.
      advantages: float32 [n, C], normalised.
      returns: float32 [n], on which all critics are trained.
    """

    rows: tf.Tensor
    actions: tf.Tensor
    acted: tf.Tensor
    choices: Choices
    advantages: tf.Tensor
    returns: tf.Tensor


class PpoLearner:
    """A learner that improves a policy, one rollout at a time.

        learner = PpoLearner(policy, config, seed=0)
        metrics = learner.update(dream.rollout(policy, batch=64, horizon=50, seed=…))

    Everything that an update depends on, besides the trajectory, is in `state()`: training that is saved, loaded and
    continued gives the same weights, bit for bit, as training in one go.

    Attributes:
      num_updates: number of updates done.
    """

    def __init__(self, policy: TrainablePolicy, config: PpoConfig, *, seed: int = 0) -> None:
        self._policy, self._config, self._seed = policy, config, seed
        self._learning_rate = tf.Variable(config.learning_rate, trainable=False, name="learning_rate")
        self._optimizer = Adam(self._learning_rate, epsilon=ADAM_EPSILON)
        self._squared_return = tf.Variable(0.0, trainable=False, name="squared_return")
        self.num_updates = 0
        # Adam creates its moments at the first call, which is not possible inside a while loop. A step along zero
        # gradients changes nothing but the step count.
        weights = policy.trainable_variables
        self._optimizer.apply([tf.zeros_like(weight) for weight in weights], weights)
        self._optimizer.step.assign(0)
        self._update: Callable[..., dict[str, tf.Tensor]] | None = None

    def update(self, played: Trajectory) -> dict[str, float]:
        """Runs the configured epochs over one rollout, which must hold log-probabilities and values.

        Returns:
          Metrics: the parts of the loss, the entropies in nats, `divergence` (mean KL from the policy that acted),
          `clipped` (share of steps at the clip), `gradient_norm` before it was bounded, `first_ratio_error` (largest
          |ratio - 1| before the first gradient step; if it is not 0, the policy acted and learned under different masks
          or weights), `passes` over the rollout, `explained_variance` of the values, `return_scale` (divisor of the
          rewards) and `learning_rate`. Once a weight is NaN or infinite, so is one of them.
        """
        rule_entropy, location_entropy = self._config.entropy_weights_at(self.num_updates)
        schedule = Schedule(
            tf.constant(self.num_updates, tf.float32),
            tf.constant(self._config.learning_rate_at(self.num_updates), tf.float32),
            tf.constant(rule_entropy, tf.float32),
            tf.constant(location_entropy, tf.float32),
            tf.constant([self._seed, self.num_updates], tf.int32),
        )
        if self._update is None:
            specs = [signature(played), tf.nest.map_structure(tf.TensorSpec.from_tensor, schedule)]
            self._update = tf.function(self._learn, input_signature=specs)
        metrics = self._update(played, schedule)
        self.num_updates += 1
        return {name: float(value) for name, value in metrics.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Returns the weights, the optimiser's state and the counters, by name."""
        arrays = {name: variable.numpy() for name, variable in self._variables().items()}
        return {**arrays, "num_updates": np.array(self.num_updates)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from `state()`.

        Raises:
          StoredControllerError: the state belongs to a policy of another structure.
        """
        assign(self._variables(), {name: array for name, array in state.items() if name != "num_updates"})
        self.num_updates = int(state["num_updates"])

    def _variables(self) -> dict[str, tf.Variable]:
        parts = {
            "policy": self._policy.variables,
            "first_moment": self._optimizer.m,
            "second_moment": self._optimizer.v,
            "optimiser": [self._optimizer.step, self._squared_return],
        }
        return named(parts)

    def _learn(self, played: Trajectory, schedule: Schedule) -> dict[str, tf.Tensor]:
        """Runs one whole update as one TensorFlow graph and returns its metrics."""
        self._learning_rate.assign(schedule.learning_rate)
        observations = played.observations()
        targets = self._targets(played, schedule)
        if self._policy.has_location_critic:
            targets = self._by_choice(observations, targets)
        order = tf.range(tf.shape(targets.rows)[0])
        parts = self._parts(tf.size(order))
        latest = {name: tf.constant(0.0) for name in STEP_METRICS}
        first_ratio_error = tf.constant(0.0)
        passes = tf.constant(0)
        far = np.inf if self._config.target_divergence is None else self._config.target_divergence
        for epoch in tf.range(self._config.epochs):
            if latest["divergence"] <= far:
                order = tf.random.experimental.stateless_shuffle(order, tf.random.fold_in(schedule.seed, epoch))
                for part in tf.range(parts):
                    size = tf.size(order)
                    chosen = order[part * size // parts : (part + 1) * size // parts]
                    latest = self._step(observations, _take(targets, chosen), schedule)
                    if passes == 0 and part == 0:
                        first_ratio_error = latest["ratio_error"]
                passes += 1
        residual = targets.returns - targets.choices.values[:, 0]
        explained = 1.0 - _variance(residual) / tf.maximum(_variance(targets.returns), 1e-12)
        return {
            **{name: latest[name] for name in STEP_METRICS if name != "ratio_error"},
            "first_ratio_error": first_ratio_error,
            "passes": tf.cast(passes, tf.float32),
            "explained_variance": explained,
            "return_scale": tf.sqrt(self._squared_return),
            "learning_rate": schedule.learning_rate,
        }

    def _parts(self, size: tf.Tensor) -> tf.Tensor:
        """Returns the number of minibatches of `size` steps; none is empty, however short the rollouts are."""
        wanted = self._config.minibatches
        if self._config.minibatch is not None:
            wanted = -(-size // self._config.minibatch)
        return tf.minimum(wanted, size)

    @tf.autograph.experimental.do_not_convert  # only the loops of `_learn` need AutoGraph, which makes tracing slow
    def _targets(self, played: Trajectory, schedule: Schedule) -> Targets:
        """Returns the data of the steps that were really taken, with one choice each."""
        config = self._config
        earned = played.reward
        if config.goal == "best":
            earned = gains_of_the_best(earned) + config.reward_share * earned
        rewards = earned / self._scale_for(earned, played, schedule.num_updates)
        advantages = generalised_advantages(
            rewards,
            played.value,
            played.terminal,
            played.alive,
            discount=config.discount,
            trace_decay=config.trace_decay,
        )
        values = played.value[:-1]
        rows = tf.reshape(tf.range(tf.size(played.alive)), tf.shape(played.alive))
        fields = (rows, played.action, played.log_prob, values, advantages + values)
        rows, actions, acted, values, returns = (tf.boolean_mask(field, played.alive) for field in fields)
        choices = Choices(acted[:, tf.newaxis], values[:, tf.newaxis])
        return Targets(rows, actions, acted, choices, _normalised_advantages(returns, choices), returns)

    def _by_choice(self, observations: Any, targets: Targets) -> Targets:
        """Returns the data with two choices each.

        The return of a step is the same for both, because nothing happens between the rule and the location. So is the
        policy, which has not changed since it acted.
        """
        size = tf.size(targets.rows)
        parts = self._parts(size)
        log_probs = tf.TensorArray(tf.float32, parts, infer_shape=False, element_shape=[None, 2])
        values = tf.TensorArray(tf.float32, parts, infer_shape=False, element_shape=[None, 2])
        for part in tf.range(parts):
            chosen = tf.range(part * size // parts, (part + 1) * size // parts)
            found = self._choices(observations, tf.gather(targets.rows, chosen), tf.gather(targets.actions, chosen))
            log_probs = log_probs.write(part, found.log_probs)
            values = values.write(part, found.values)
        choices = Choices(log_probs.concat(), values.concat())
        return targets._replace(choices=choices, advantages=_normalised_advantages(targets.returns, choices))

    @tf.autograph.experimental.do_not_convert
    def _choices(self, observations: Any, rows: tf.Tensor, actions: tf.Tensor) -> Choices:
        batch = tf.nest.map_structure(lambda field: tf.gather(field, rows), observations)
        return _choices_of(*self._policy.distribution_and_value(batch), actions, self._policy.has_location_critic)

    def _scale_for(self, earned: tf.Tensor, played: Trajectory, num_updates: tf.Tensor) -> tf.Tensor:
        """Updates and returns the divisor of rewards: the root mean square of all discounted returns so far."""
        if not self._config.reward_scaling:
            return tf.constant(1.0)
        returns = generalised_advantages(
            earned,
            tf.zeros_like(played.value),
            played.terminal,
            played.alive,
            discount=self._config.discount,
            trace_decay=1.0,
        )
        latest = tf.reduce_mean(tf.square(tf.boolean_mask(returns, played.alive)))
        self._squared_return.assign_add((latest - self._squared_return) / (num_updates + 1.0))
        return tf.maximum(tf.sqrt(self._squared_return), 1e-8)  # rollouts without any reward stay without

    @tf.autograph.experimental.do_not_convert
    def _step(self, observations: Any, targets: Targets, schedule: Schedule) -> dict[str, tf.Tensor]:
        """Takes one gradient step on one minibatch and returns its metrics."""
        variables = self._policy.trainable_variables
        batch = tf.nest.map_structure(lambda field: tf.gather(field, targets.rows), observations)
        with tf.GradientTape() as tape:
            loss, metrics = self._loss(batch, targets, schedule)
        gradients = [
            tf.zeros_like(weight) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, weight in zip(tape.gradient(loss, variables), variables, strict=True)
        ]
        gradients, norm = tf.clip_by_global_norm(gradients, self._config.gradient_norm)
        self._optimizer.apply(gradients, variables)
        return {**metrics, "gradient_norm": norm}

    def _loss(self, batch: Any, targets: Targets, schedule: Schedule) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        config = self._config
        distribution, value = self._policy.distribution_and_value(batch)
        now = _choices_of(distribution, value, targets.actions, self._policy.has_location_critic)
        log_ratio = now.log_probs - targets.choices.log_probs
        ratio = tf.exp(tf.clip_by_value(log_ratio, -20.0, 20.0))  # e^20 is far beyond any clip, and finite
        clipped = tf.clip_by_value(ratio, 1.0 - config.clip, 1.0 + config.clip)
        policy_loss = -_mean_of_sums(tf.minimum(ratio * targets.advantages, clipped * targets.advantages))
        value_loss = 0.5 * _mean_of_sums(tf.square(now.values - targets.returns[:, tf.newaxis]))
        acted_ratio = tf.exp(tf.clip_by_value(tf.reduce_sum(now.log_probs, axis=1) - targets.acted, -20.0, 20.0))
        rule_entropy, location_entropy = (tf.reduce_mean(entropy) for entropy in distribution.entropies())
        bonus = schedule.rule_entropy * rule_entropy + schedule.location_entropy * location_entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "rule_entropy": rule_entropy,
            "location_entropy": location_entropy,
            "divergence": _mean_of_sums(ratio - 1.0 - log_ratio),  # Schulman 2020: unbiased, never negative
            "clipped": tf.reduce_mean(tf.cast(tf.abs(ratio - 1.0) > config.clip, tf.float32)),
            "ratio_error": tf.reduce_max(tf.abs(acted_ratio - 1.0)),
        }
        return policy_loss + config.value_weight * value_loss - bonus, metrics


def any_rows(observations: Any) -> Any:
    """Returns type specifications of such observations with any number of rows, and graphs of any size."""

    def specification(field: Any) -> tf.TypeSpec:
        if isinstance(field, tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, None, *field.shape[2:]], field.dtype, ragged_rank=1)
        return tf.TensorSpec([None, *field.shape[1:]], field.dtype)

    return tf.nest.map_structure(specification, observations)


def signature(played: Trajectory) -> Trajectory:
    """Returns type specifications with which one trace serves rollouts of one size, with graphs of any size."""
    specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, played._replace(state=()))
    state = tf.TensorSpec.from_tensor(played.state) if tf.is_tensor(played.state) else any_rows(played.state)
    return specs._replace(state=state)


def _take(targets: Targets, chosen: tf.Tensor) -> Targets:
    taken: Targets = tf.nest.map_structure(lambda field: tf.gather(field, chosen), targets)
    return taken


def _choices_of(distribution: Distribution, value: tf.Tensor, actions: tf.Tensor, by_choice: bool) -> Choices:
    """Returns the choices of actions int32 [n]: two if `by_choice`, else one."""
    if not by_choice:
        return Choices(distribution.log_prob(actions)[:, tf.newaxis], value[:, tf.newaxis])
    assert isinstance(distribution, HierarchicalCategorical), "no other distribution has values of locations"
    values = tf.stack([value, distribution.location_value(actions)], axis=1)
    return Choices(tf.stack(distribution.log_probs(actions), axis=1), values)


def _normalised_advantages(returns: tf.Tensor, choices: Choices) -> tf.Tensor:
    """Returns by how much the returns [n] exceed what was expected, centred and scaled for each choice: [n, C]."""
    advantages = returns[:, tf.newaxis] - choices.values
    spread = tf.math.reduce_std(advantages, axis=0)
    return (advantages - tf.reduce_mean(advantages, axis=0)) / (spread + SMALLEST_SPREAD)


def _mean_of_sums(per_choice: tf.Tensor) -> tf.Tensor:
    """Returns the mean over the steps of the sum over the choices: [n, C] -> []."""
    return tf.reduce_mean(tf.reduce_sum(per_choice, axis=1))


def _variance(values: tf.Tensor) -> tf.Tensor:
    return tf.math.reduce_variance(values)


def gains_of_the_best(rewards: tf.Tensor) -> tf.Tensor:
    """Returns by how much each step raises the largest sum of the rewards so far, which begins at 0.

    Args:
      rewards: [time, batch]; 0 behind the end of a row.
    Returns:
      float32 [time, batch], none negative; they add up to the largest sum.
    Source: Barrett et al. 2020, "Exploratory Combinatorial Optimization with Reinforcement Learning".
    """
    sums = tf.cumsum(rewards, axis=0)
    best = tf.scan(tf.maximum, sums, initializer=tf.zeros_like(sums[0]))
    return best - tf.concat([tf.zeros_like(best[:1]), best[:-1]], axis=0)


def generalised_advantages(
    rewards: tf.Tensor,
    values: tf.Tensor,
    terminals: tf.Tensor,
    alive: tf.Tensor,
    *,
    discount: float,
    trace_decay: float,
) -> tf.Tensor:
    """Returns the advantages (GAE) of finished and of truncated rollouts.

    A terminal step has no future, so that nothing is bootstrapped. A truncated row could have gone on, so that its last
    step is bootstrapped from the value of the state that it led to. Nothing flows back from the padding behind a row.

    Args:
      rewards: [time, batch], the reward of each step.
      values: [time + 1, batch], the values of the states before each step and of the last state.
      terminals: bool [time, batch], whether the step ended the episode.
      alive: bool [time, batch], whether the step was really taken; false after the end of a row.
      discount, trace_decay: γ and λ, in [0, 1].
    Returns:
      float32 [time, batch] advantages, not normalised; zero where not alive.
    Raises:
      ValueError: `values` is not one step longer than `rewards`.
    Source: Schulman et al. 2016, eq. 16; Pardo et al. 2018 for time limits.
    """
    time, steps = rewards.shape[0], values.shape[0]
    if time is not None and steps is not None and steps != time + 1:
        raise ValueError(f"values must have one step more than rewards: {time + 1} expected, {steps} came.")
    alive = tf.cast(alive, tf.float32)
    continues = 1.0 - tf.cast(terminals, tf.float32)
    errors = alive * (rewards + discount * continues * values[1:] - values[:-1])
    following = tf.concat([alive[1:], tf.zeros_like(alive[:1])], axis=0)  # is there a step after this one?
    decays = discount * trace_decay * continues * following

    def backwards(later: tf.Tensor, step: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        error, decay = step
        return error + decay * later

    return tf.scan(backwards, (errors, decays), initializer=tf.zeros_like(errors[0]), reverse=True)
