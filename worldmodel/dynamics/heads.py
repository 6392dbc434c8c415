"""What a head of the MDN-RNN is: one thing that a step brings, with its prediction, target, loss and weight.

A new head is a class with these four methods in a file of its own, and an entry in `mdn_rnn.HEADS`. The heads of the
reward and of the terminal are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.reward_table import ActionRewards
from worldmodel.dynamics.start_graphs import ActionCodes, ModelSizes, StartGraphInputs

LEAST_REWARD = 1e-6
"""Percent. A smaller reward is rounding: the step earned nothing."""
REWARD_PRECISION = 0.03
"""Units of the reward loss below which it is quadratic. A policy adds up small errors that are all to its liking: for
100 plans of 28 steps on SqueezeNet a model that had learned by squared error promised 6.6 percent too much, with ten
times the weight 5.8, and one by this loss 3.6; for plans that all were trained on, 1.3, 0.5 and -0.2."""


class Seen(NamedTuple):
    """What heads read of n steps before they happen.

    Attributes:
      z: float32 [n, Z]; action: int32 [n]; legal: float32 [n, A + 1], before the step.
      shared: float32 [n, head_hidden], features that mask, reward and terminal share.
      local: float32 [n, neighbour_hidden], features of the legal actions near the action.
      outcome: float32 [n, head_hidden], features of both.
      everything: float32 [n, any], inputs for heads with features of their own; they do not train `local`.
      reward_scale: float32 [n], cost of the start graph over that of z, see `CostInLatent`.
      mask_keys: float32 [A, mask_rank], of this member.
      codes: of all actions.
    """

    z: tf.Tensor
    action: tf.Tensor
    legal: tf.Tensor
    shared: tf.Tensor
    local: tf.Tensor
    outcome: tf.Tensor
    everything: tf.Tensor
    reward_scale: tf.Tensor
    mask_keys: tf.Tensor
    codes: ActionCodes


class RealSteps(NamedTuple):
    """n steps of a real trajectory.

    Attributes:
      action: int32 [n]; legal: bool [n, A + 1], before the step.
      reward: float32 [n], percent; terminal: float32 [n].
      next_z: float32 [n, Z]; next_legal: float32 [n, A + 1].
      reward_scale: float32 [n], see `Seen`.
      inputs: of the start graph.
    """

    action: tf.Tensor
    legal: tf.Tensor
    reward: tf.Tensor
    terminal: tf.Tensor
    next_z: tf.Tensor
    next_legal: tf.Tensor
    reward_scale: tf.Tensor
    inputs: StartGraphInputs


class Head(Protocol):
    """One thing that a step brings; a `snt.Module`.

    Attributes:
      learns_noop: whether steps by NO-OP count; it ends the episode by definition.
    """

    learns_noop: ClassVar[bool]

    def predict(self, seen: Seen) -> Any:
        """The prediction for n steps: a nest of tensors [n, ...]."""

    def target(self, real: RealSteps) -> Any:
        """What `loss` compares predictions with."""

    def loss(self, prediction: Any, target: Any, seen: Seen, real: RealSteps) -> Mapping[str, tf.Tensor]:
        """Loss terms by name, [n] each."""

    def weight(self, config: MdnRnnTrainingConfig) -> Mapping[str, float]:
        """Weights of the loss terms by name."""


class RewardPrediction(NamedTuple):
    """The reward of n steps.

    Attributes:
      earned: float32 [n], percent, of a rewrite that changes the cost.
      idle_logit: float32 [n], logit of its earning nothing at all, as many rewrites do.
    """

    earned: tf.Tensor
    idle_logit: tf.Tensor

    @property
    def likely(self) -> tf.Tensor:
        """The reward, exactly 0 where that is likelier than not: a policy adds up what is predicted for nothing."""
        return tf.where(self.idle_logit > 0.0, 0.0, self.earned)


class RewardHead(snt.Module):
    """The mean reward of the action in the training data, and what is learned beyond it.

    The learned part is in units of the spread of the rule's rewards: an action that always earns the same keeps exactly
    that. Training predicts rewards in percent of the start graph's cost where z tells the present one, and in the
    environment's unit otherwise; predictions and targets are in the environment's unit.
    """

    learns_noop = True

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.change = tf.Variable(tf.zeros([sizes.num_actions]), name="reward_change")
        self._least_unit = 0.1 * sizes.reward_deviation
        self._outputs = snt.Linear(2, w_init=snt.initializers.Zeros())
        self._network: snt.Module | None = None
        if config.reward_head == "separate":
            self._network = snt.nets.MLP([config.reward_hidden] * 2, activate_final=True)

    def predict(self, seen: Seen) -> RewardPrediction:
        features = seen.outcome if self._network is None else self._network(seen.everything)
        change, idle_logit = tf.unstack(self._outputs(features), axis=-1)
        inputs = seen.codes.inputs
        change += tf.gather(self.change, tf.gather(inputs.actions.rows, seen.action))
        mean, _ = _known(inputs.rewards, seen.action, seen.legal > 0.5)
        earned = mean + tf.gather(inputs.rewards.spread, seen.action) * change
        return RewardPrediction(earned * seen.reward_scale, idle_logit)

    def target(self, real: RealSteps) -> RewardPrediction:
        """The reward, as far from its action's mean as it is from the mean of all the action's other steps.

        A step that is in the mean which its reward is predicted from would be predicted half by itself where the action
        was taken once (the rule's mean counts as one step). What is learned is what the other steps leave unknown.
        """
        mean, count = _known(real.inputs.rewards, real.action, real.legal)
        moved = real.reward + (real.reward - real.reward_scale * mean) / tf.maximum(count, 1.0)
        return RewardPrediction(moved, tf.cast(tf.abs(real.reward) < LEAST_REWARD, tf.float32))

    def loss(
        self, prediction: RewardPrediction, target: RewardPrediction, seen: Seen, real: RealSteps
    ) -> dict[str, tf.Tensor]:
        """`reward` in units of the action's spread, but at least a tenth of that of all rewards; `idle` in nats."""
        spread = tf.gather(seen.codes.inputs.rewards.spread, seen.action)
        unit = tf.sqrt(tf.square(spread) + self._least_unit**2) * seen.reward_scale
        idle = tf.nn.sigmoid_cross_entropy_with_logits(target.idle_logit, prediction.idle_logit)
        return {"reward": smooth_absolute((prediction.earned - target.earned) / unit), "idle": idle}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"reward": config.reward_weight, "idle": config.idle_weight}


class RewardNetwork(snt.Module):
    """The reward as the papers predict it: by a network, in units of the deviation of all rewards.

    Nothing is known of an action but its embedding in h, and no reward is held to be exactly 0.
    """

    learns_noop = True

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._unit = sizes.reward_deviation
        self._shares = config.reward_head == "shared"
        self._network = snt.nets.MLP([1] if self._shares else [config.reward_hidden, config.reward_hidden, 1])

    def predict(self, seen: Seen) -> RewardPrediction:
        features = seen.outcome if self._shares else seen.everything
        earned = self._unit * self._network(features)[:, 0] * seen.reward_scale
        return RewardPrediction(earned, tf.zeros_like(earned))

    def target(self, real: RealSteps) -> tf.Tensor:
        return real.reward

    def loss(
        self, prediction: RewardPrediction, target: tf.Tensor, seen: Seen, real: RealSteps
    ) -> dict[str, tf.Tensor]:
        """`reward`: half the squared error, in units of the deviation of all rewards."""
        return {"reward": 0.5 * tf.square((prediction.earned - target) / (self._unit * seen.reward_scale))}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"reward": config.reward_weight}


def reward_head(config: MdnRnnConfig, sizes: ModelSizes) -> RewardHead | RewardNetwork:
    """The head of the reward that the configuration asks for."""
    return (RewardHead if config.features == "step" else RewardNetwork)(config, sizes)


def _known(rewards: ActionRewards, action: tf.Tensor, legal: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean reward of actions int32 [n] under the legal actions bool [n, A + 1], and the steps that are in it: [n]."""
    is_on = tf.gather(legal, tf.gather(rewards.bit, action), batch_dims=1)
    (off, on), (count_off, count_on) = (
        tf.unstack(tf.gather(each, action), axis=-1) for each in (rewards.mean, rewards.counts)
    )
    return tf.where(is_on, on, off), tf.where(is_on, count_on, count_off)


def smooth_absolute(errors: tf.Tensor) -> tf.Tensor:
    """Pseudo-Huber loss: |error|, but smooth around 0. Rewards are deterministic, and can be learned exactly."""
    return tf.sqrt(tf.square(errors) + REWARD_PRECISION**2) - REWARD_PRECISION


class TerminalHead(snt.Module):
    """The logit of "nothing is left to rewrite", [n]."""

    learns_noop = False

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._logit = snt.Linear(1, w_init=snt.initializers.Zeros())

    def predict(self, seen: Seen) -> tf.Tensor:
        return self._logit(seen.outcome)[:, 0]

    def target(self, real: RealSteps) -> tf.Tensor:
        return real.terminal

    def loss(self, prediction: tf.Tensor, target: tf.Tensor, seen: Seen, real: RealSteps) -> dict[str, tf.Tensor]:
        """`terminal` in nats."""
        return {"terminal": tf.nn.sigmoid_cross_entropy_with_logits(target, prediction)}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"terminal": config.terminal_weight}
