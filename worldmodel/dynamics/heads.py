"""The interface of a head of the MDN-RNN, and the heads of the reward and of the terminal.

A head predicts one thing that a step brings. A new head is a class with the methods `predict`, `target`, `loss` and
`weight` in a file of its own, and an entry in `mdn_rnn.HEADS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.single_rewrites import CarriedOut
from worldmodel.dynamics.start_graphs import ActionCodes, ModelSizes, is_everywhere

LEAST_REWARD = 1e-6
"""Percent. A smaller reward is a rounding error of 0."""
MOST_SAVED = 95.0
"""Percent of the present cost that a step can save: about as much as `mdn_rnn.MOST_LOG_COST` allows."""
REWARD_PRECISION = 0.03
"""Units of the reward loss below which it is quadratic. A policy adds up small errors that are all to its liking: for
100 plans of 28 steps on SqueezeNet a model that had learned by squared error promised 6.6 percent too much, with ten
times the weight 5.8, and one by this loss 3.6; for plans that all were trained on, 1.3, 0.5 and -0.2."""


class Seen(NamedTuple):
    """The inputs of the heads for n steps: all that is known before the steps happen.

    Attributes:
      z: float32 [n, Z]; action: int32 [n]; legal: float32 [n, A + 1], before the step.
      shared: float32 [n, head_hidden], features that the mask, the reward and the terminal share.
      local: float32 [n, neighbour_hidden], features of the legal actions near the sites that are rewritten.
      outcome: float32 [n, head_hidden], features made of `shared` and `local`.
      everything: float32 [n, any], inputs of heads that have features of their own; they do not train `local`.
      reward_scale: float32 [n], the cost of the start graph over the cost that z holds, see `CostInLatent`.
      mask_keys: float32 [A, mask_rank], the keys of this member's mask head.
      codes: the codes of all actions.
      carried_out: what the single rewrites of the steps do; None if heads read z and h alone.
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
    carried_out: CarriedOut | None = None

    @property
    def taken(self) -> tf.Tensor:
        """float32 [n, A + 1], 1 at the single rewrites that the steps carry out."""
        width = tf.shape(self.legal)[1]
        return tf.one_hot(self.action, width) if self.carried_out is None else self.carried_out.taken


class RealSteps(NamedTuple):
    """The outcome of n real steps.

    Attributes:
      reward: float32 [n], percent; terminal: float32 [n].
      next_z: float32 [n, Z]; next_legal: float32 [n, A + 1].
    """

    reward: tf.Tensor
    terminal: tf.Tensor
    next_z: tf.Tensor
    next_legal: tf.Tensor


class Head(Protocol):
    """A `snt.Module` that predicts one thing that a step brings.

    Attributes:
      learns_noop: whether the head learns from steps by NO-OP, which end the episode by definition.
    """

    learns_noop: ClassVar[bool]

    def predict(self, seen: Seen) -> Any:
        """Returns the prediction for n steps: a nest of tensors [n, ...]."""

    def target(self, seen: Seen, real: RealSteps) -> Any:
        """Returns the target that `loss` compares the prediction with."""

    def loss(self, prediction: Any, target: Any, seen: Seen) -> Mapping[str, tf.Tensor]:
        """Returns the loss terms by name, [n] each."""

    def weight(self, config: MdnRnnTrainingConfig) -> Mapping[str, float]:
        """Returns the weights of the loss terms by name."""


class RewardPrediction(NamedTuple):
    """A prediction of the rewards of n steps.

    Attributes:
      earned: float32 [n], the reward in percent if the rewrite changes the cost.
      idle_logit: float32 [n], the logit that the rewrite earns exactly nothing, as many rewrites do.
    """

    earned: tf.Tensor
    idle_logit: tf.Tensor

    @property
    def likely(self) -> tf.Tensor:
        """The likely reward: exactly 0 if that is likelier than not, because a policy would add up small errors."""
        return tf.where(self.idle_logit > 0.0, 0.0, self.earned)


class RewardHead(snt.Module):
    """Predicts the mean reward of the action in the training data plus a learned part.

    The learned part is in units of the spread of the rule's rewards, so that an action that always earns the same keeps
    exactly that. An everywhere-action earns what its single rewrites earn, each predicted like a step of its own, and a
    learned part beside. Inside, rewards are savings in percent of the start graph's cost if z holds the present cost;
    predictions and targets are in the environment's unit.
    """

    learns_noop = True

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.change = tf.Variable(tf.zeros([sizes.num_actions]), name="reward_change")
        self._least_unit = 0.1 * sizes.reward_deviation
        self._of_log_cost, self._everywhere = sizes.cost_in_latent, sizes.everywhere
        self._outputs = snt.Linear(2, w_init=snt.initializers.Zeros())
        self._network: snt.Module | None = None
        if config.reward_head == "separate":
            self._network = snt.nets.MLP([config.reward_hidden] * 2, activate_final=True)

    def predict(self, seen: Seen) -> RewardPrediction:
        saving, idle_logit = self._saving(self.reads(seen.outcome, seen.everything), seen.action, seen.codes)
        if self._everywhere:
            saving += _of_matches(seen)
        return RewardPrediction(self._reward(saving * seen.reward_scale), idle_logit)

    def reads(self, outcome: tf.Tensor, everything: tf.Tensor) -> tf.Tensor:
        """Returns what the head reads of steps, of the two kinds of features in `Seen`."""
        return outcome if self._network is None else everything

    def of_match(self, features: tf.Tensor, match: tf.Tensor, codes: ActionCodes) -> tf.Tensor:
        """Returns the savings [m] of single rewrites int32 [m], as many as are not idle, from what the head `reads`."""
        saving, idle_logit = self._saving(features, match, codes)
        return saving * tf.sigmoid(-idle_logit)

    def _saving(self, features: tf.Tensor, action: tf.Tensor, codes: ActionCodes) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the savings [n] of actions if they are not idle, and the logits [n] that they are."""
        features = features if self._network is None else self._network(features)
        change, idle_logit = tf.unstack(self._outputs(features), axis=-1)
        change += tf.gather(self.change, tf.gather(codes.inputs.actions.rows, action))
        mean, spread = (tf.gather(each, action) for each in (codes.inputs.rewards.mean, codes.inputs.rewards.spread))
        return mean + spread * change, idle_logit

    def target(self, seen: Seen, real: RealSteps) -> RewardPrediction:
        """Returns the reward, moved as if its own step were not in the mean that its prediction starts from.

        An action that was taken once would otherwise be predicted half from its own reward, since the rule's mean
        counts as one step. The network learns what the other steps of the action leave unknown.
        """
        rewards = seen.codes.inputs.rewards
        mean, count = (tf.gather(each, seen.action) for each in (rewards.mean, rewards.counts))
        saving = 100.0 * -tf.math.expm1(real.reward / -100.0) if self._of_log_cost else real.reward
        moved = saving + (saving - seen.reward_scale * mean) / tf.maximum(count, 1.0)
        return RewardPrediction(self._reward(moved), tf.cast(tf.abs(real.reward) < LEAST_REWARD, tf.float32))

    def _reward(self, saving: tf.Tensor) -> tf.Tensor:
        """Returns the rewards of savings [n] in percent of the present cost, if z holds it; else these are rewards."""
        return -100.0 * tf.math.log1p(-tf.minimum(saving, MOST_SAVED) / 100.0) if self._of_log_cost else saving

    def loss(self, prediction: RewardPrediction, target: RewardPrediction, seen: Seen) -> dict[str, tf.Tensor]:
        """Returns `reward`, in units of the spread of the action's rewards, and `idle`, in nats."""
        spread = tf.gather(seen.codes.inputs.rewards.spread, seen.action)
        unit = tf.sqrt(tf.square(spread) + self._least_unit**2) * seen.reward_scale
        idle = tf.nn.sigmoid_cross_entropy_with_logits(target.idle_logit, prediction.idle_logit)
        return {"reward": smooth_absolute((prediction.earned - target.earned) / unit), "idle": idle}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"reward": config.reward_weight, "idle": config.idle_weight}


def _of_matches(seen: Seen) -> tf.Tensor:
    """Returns what the single rewrites of everywhere-actions earn [n]; 0 for all other steps."""
    assert seen.carried_out is not None, "RewardHead is for features of the step"
    of_many = tf.gather(is_everywhere(seen.codes.inputs.actions), seen.action)
    return tf.where(of_many, seen.carried_out.earned, 0.0)


class RewardNetwork(snt.Module):
    """Predicts the reward by a network, as the papers do, in units of the standard deviation of all rewards.

    It knows nothing of an action but its embedding in h, and predicts no reward to be exactly 0.
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

    def target(self, seen: Seen, real: RealSteps) -> tf.Tensor:
        return real.reward

    def loss(self, prediction: RewardPrediction, target: tf.Tensor, seen: Seen) -> dict[str, tf.Tensor]:
        """Returns `reward`: half the squared error, in units of the standard deviation of all rewards."""
        return {"reward": 0.5 * tf.square((prediction.earned - target) / (self._unit * seen.reward_scale))}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"reward": config.reward_weight}


def reward_head(config: MdnRnnConfig, sizes: ModelSizes) -> RewardHead | RewardNetwork:
    """Returns the head of the reward that the configuration asks for."""
    return (RewardHead if config.features == "step" else RewardNetwork)(config, sizes)


def smooth_absolute(errors: tf.Tensor) -> tf.Tensor:
    """Returns the pseudo-Huber loss: |error|, but smooth around 0.

    Rewards of frozen costs are deterministic, so they can be exact. Of noisy ones it learns the median.
    """
    return tf.sqrt(tf.square(errors) + REWARD_PRECISION**2) - REWARD_PRECISION


class TerminalHead(snt.Module):
    """Predicts the logit [n] that nothing is left to rewrite after the step."""

    learns_noop = False

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._logit = snt.Linear(1, w_init=snt.initializers.Zeros())

    def predict(self, seen: Seen) -> tf.Tensor:
        return self._logit(seen.outcome)[:, 0]

    def target(self, seen: Seen, real: RealSteps) -> tf.Tensor:
        return real.terminal

    def loss(self, prediction: tf.Tensor, target: tf.Tensor, seen: Seen) -> dict[str, tf.Tensor]:
        """Returns `terminal`, in nats."""
        return {"terminal": tf.nn.sigmoid_cross_entropy_with_logits(target, prediction)}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"terminal": config.terminal_weight}
