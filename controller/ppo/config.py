"""Hyperparameters of PPO and sizes of its policies, with their sources. This module imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

FORMAT_VERSION = 2
"""Version of stored controllers; it increases whenever the weights of a policy or the state of a learner change their
meaning."""
MOST_UNITS = 65536
"""The largest size of a layer."""


@dataclasses.dataclass(frozen=True)
class PpoConfig:
    """The settings of a training run of PPO: all that it depends on besides the world, the policy and the seed.

    Attributes:
      updates: number of iterations, each a rollout and then learning; the papers train for 1000 in the dream and 2000
        model-free.
      batch, horizon: rows and steps of each rollout; no horizon: until the longest episodes of its world end.
      epochs, minibatches: passes over a rollout, and gradient steps in each pass. The papers took one step in total.
      minibatch: number of the rollout's steps in each gradient step; none: `minibatches` decides.
      discount: γ; 0.99 in the papers. Truncated rollouts are bootstrapped, and a policy does not see how many steps are
        left. Only γ < 1 therefore makes it act now rather than later: with γ = 1, policies trained in a dream postponed
        the rewrites that pay until the episode was over.
      trace_decay: λ of GAE; 0.95 in Schulman et al. 2016, "0.95–1" in the papers.
      clip: bound on the probability ratio; 0.2 in the papers and in Schulman et al. 2017.
      target_divergence: the remaining passes over a rollout are skipped once the policy has moved this far from the
        one that acted (mean KL, nats); None never skips. 0.02–0.05 are usual (Andrychowicz et al. 2021).
      value_weight: weight of the squared value error in the loss; 0.5 in Schulman et al. 2017's published code. Values
        are not clipped, because clipping only hurt in Andrychowicz et al. 2021.
      rule_entropy, location_entropy: first and last weight of the bonus for each exact entropy, linear in between. They
        are separate, because a location among hundreds has far more entropy than a rule among tens.
      learning_rate, last_learning_rate, decay_power: first and last learning rate of Adam, and the power of the
        polynomial between them. The papers decay quadratically from 8e-3 to 2e-4.
      gradient_norm: bound on the global norm of the gradient; 0.5 in the published code of PPO.
      reward_scaling: whether rewards are divided by the running root mean square of the discounted returns, so that one
        learning rate fits graphs whose improvements differ a hundredfold (Engstrom et al. 2020).
      goal: which graph of an episode counts; `last` in the papers, whose returns are sums of rewards. A run keeps the
        `best` one: then a step earns what the sum of rewards rises above its largest value so far (as in Barrett et al.
        2020, "Exploratory Combinatorial Optimization with Reinforcement Learning"), and a dear rewrite costs nothing.
        Where nearly all rewrites cost, a policy that is paid for its last graph learns to end at once.
      reward_share: if `best` counts, the share of its reward that a step earns as well. Then steps also count where no
        graph is better than the best one, but a policy that may end is paid for ending early again.
    """

    updates: int = 80
    batch: int = 64
    horizon: int | None = None
    epochs: int = 4
    minibatches: int = 4
    minibatch: int | None = None
    discount: float = 0.97
    trace_decay: float = 0.95
    clip: float = 0.2
    target_divergence: float | None = 0.05
    value_weight: float = 0.5
    rule_entropy: tuple[float, float] = (0.02, 0.002)
    location_entropy: tuple[float, float] = (0.005, 0.0005)
    learning_rate: float = 3e-3
    last_learning_rate: float = 2e-4
    decay_power: float = 1.0
    gradient_norm: float = 0.5
    reward_scaling: bool = True
    goal: Literal["last", "best"] = "last"
    reward_share: float = 0.0

    def __post_init__(self) -> None:
        for name in ("updates", "batch", "horizon", "epochs", "minibatches", "minibatch"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it counts something and must be at least 1.")
        for name in ("discount", "trace_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, outside [0, 1].")
        for name in ("learning_rate", "last_learning_rate", "decay_power", "value_weight", "reward_share"):
            require_finite(name, getattr(self, name), 0.0)
        for name in ("rule_entropy", "location_entropy"):
            for weight in getattr(self, name):
                require_finite(name, weight, 0.0)
        for name in ("gradient_norm", "target_divergence"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not 0 < self.clip < 1:
            raise ValueError(f"clip is {self.clip}; the ratio's bound must lie strictly between 0 and 1.")

    @property
    def episodes(self) -> int:
        """The number of rows of all rollouts."""
        return self.updates * self.batch

    def progress(self, update: int) -> float:
        """Returns the share of the training that is done before update number `update`, in [0, 1]."""
        return min(1.0, update / max(1, self.updates - 1))

    def learning_rate_at(self, update: int) -> float:
        """Returns the learning rate of update number `update`."""
        left = (1 - self.progress(update)) ** self.decay_power
        return self.last_learning_rate + (self.learning_rate - self.last_learning_rate) * left

    def entropy_weights_at(self, update: int) -> tuple[float, float]:
        """Returns the weights of the rule's and of the location's entropy at update number `update`."""
        done = self.progress(update)
        return _between(self.rule_entropy, done), _between(self.location_entropy, done)


def _between(ends: tuple[float, float], done: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * done


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Kind, sizes and starting point of a policy.

    Attributes:
      head: `hierarchical`: rule and location from one shared trunk; `four-networks`: the published actor and critic of
        rules, and actor and critic of locations; `pointer`: scores of rewrites from the embeddings of the nodes that
        they replace, in the real environment only, whose weights fit every graph. See `controller.policies.head`.
      torso: hidden sizes of the policy and of the value network; with four networks of each of them.
      width: size of the embeddings of sites, and of the query that is compared with them; of the pointer's embeddings
        of rules and of the state.
      mask_width: size of the learned summary of the legal actions that both networks of `hierarchical` read.
      noop_logit: initial logit of NO-OP; that of a rule is 0. NO-OP is rare at first, because an episode that it ends
        early does not show what longer plans are worth.
      everywhere: whether the policy carries rules out everywhere at once, if the environment has such actions.
        `by-turns`: the policies of every other round of recollection do not, the first one does. Such an action can
        pay most at once and spoil a better plan, which only policies without it find, and other plans are too long
        without it. The round whose plans save most plays.
    """

    head: Literal["hierarchical", "four-networks", "pointer"] = "hierarchical"
    torso: tuple[int, ...] = (128, 128)
    width: int = 32
    mask_width: int = 32
    noop_logit: float = -4.0
    everywhere: Literal["always", "never", "by-turns"] = "always"

    def of_round(self, number: int) -> PolicyConfig:
        """Returns the settings of the policy of a round of recollection, counted from 0."""
        if self.everywhere != "by-turns":
            return self
        return dataclasses.replace(self, everywhere="never" if number % 2 else "always")

    def __post_init__(self) -> None:
        require_sizes("torso", *self.torso)
        require_sizes("width", self.width)
        require_sizes("mask_width", self.mask_width)
        require_finite("noop_logit", self.noop_logit, -math.inf)


def require_finite(name: str, value: float, least: float) -> None:
    """Checks a setting that is a finite number of at least `least`.

    Raises:
      ValueError: it is not.
    """
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} is {value}; it must be a number{f' of at least {least:g}' * math.isfinite(least)}.")


def require_sizes(name: str, *sizes: int) -> None:
    """Checks the sizes of layers.

    Raises:
      ValueError: one of them is no size, or so large that it must be an error.
    """
    for size in sizes:
        if not 1 <= size <= MOST_UNITS:
            raise ValueError(f"{name} is {size}; it must be at least 1 and at most {MOST_UNITS:,}.")
