"""The sizes and budgets of the world model. The module does not import TensorFlow, so that settings are read fast."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

FORMAT_VERSION = 12
"""The format of stored world models. It goes up whenever their weights or tables change their meaning. It stands here
so that run directories can be compared without TensorFlow."""
PAYS_PERCENT = 0.1
"""Percent of logarithm by which a rewrite must lower the cost to count as one that pays."""


def _require(config: Any, low: float, *names: str) -> None:
    """Raises ValueError if one of these settings is less than `low`, NaN or infinite."""
    for name in names:
        value = getattr(config, name)
        if not low <= value < math.inf:
            finite = " and finite" * (value == math.inf)
            raise ValueError(f"'{name}' must be at least {low:g}{finite}, but {value!r} came")


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam with a learning rate that falls quadratically, and a bound on the gradient.

    Attributes:
      learning_rate, final_learning_rate: the rates of the first and the last step (the papers decay quadratically).
      max_gradient_norm: the global norm above which gradients are scaled down.
    """

    learning_rate: float = 2e-3
    final_learning_rate: float = 1e-4
    max_gradient_norm: float = 5.0

    def __post_init__(self) -> None:
        _require(self, 0, "learning_rate", "final_learning_rate", "max_gradient_norm")

    def rate_at(self, step: int, num_steps: int) -> float:
        """Returns the learning rate of step `step` of `num_steps`."""
        left = max(0.0, 1.0 - step / max(1, num_steps - 1))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * left**2


@dataclass(frozen=True)
class EncoderConfig:
    """Kind and sizes of the encoder.

    Attributes:
      kind: how nodes exchange information: by sums of messages (`graph_layers.MessagePassingRound`, as in the papers),
        by attention (`graph_layers.AttentionRound`, as in X-RLflow), or by sums of messages without globals
        (`graph_layers.InteractionRound`), so that a policy embeds nodes that see the same once for a whole batch.
      latent: Z, the width of z (32: Ha & Schmidhuber 2018).
      hidden: the width of node and global features; there are no globals in an interaction network.
      edge_hidden: the width of edge features. No round updates edges, so it can be small.
      rounds: the number of message-passing rounds or attention layers (5 in the papers).
      heads: the number of attention heads; it divides `hidden`.
      operator_embedding, dtype_embedding: the widths of the learned embeddings of the category columns.
      categories: the number of categories of each variable of a discrete latent, whose one-hot codes stand end to end.
        0 means that z is a vector of real numbers. Use it with `MdnRnnConfig.dynamics` "discrete".
      total_time: whether the last dimension of z is the logarithm of the time of all nodes together, standardised like
        the others: the graph's cost under a cost model that adds up nodes. It is computed and not learned, because a
        cost that a network pools over hundreds of nodes is right only near the training states. Discrete latents have
        no such dimension.
    """

    latent: int = 32
    hidden: int = 64
    edge_hidden: int = 16
    rounds: int = 5
    operator_embedding: int = 16
    dtype_embedding: int = 4
    kind: Literal["message_passing", "attention", "interaction"] = "message_passing"
    heads: int = 4
    categories: int = 0
    total_time: bool = False

    def __post_init__(self) -> None:
        sizes = ("latent", "hidden", "edge_hidden", "rounds", "operator_embedding", "dtype_embedding", "heads")
        _require(self, 1, *sizes)
        if self.kind == "attention" and self.hidden % self.heads:
            raise ValueError(
                f"attention divides 'hidden' among its 'heads', but {self.hidden} is no multiple of {self.heads}; "
                f"set hidden={self.heads * max(1, round(self.hidden / self.heads))}, or other heads"
            )
        if self.categories < 0 or (self.categories and self.latent % self.categories):
            raise ValueError(
                f"a latent of width {self.latent} cannot consist of variables with {self.categories} categories each; "
                f"use a divisor of the width, or 0 for real numbers"
            )
        if self.holds_time and self.latent < 2:
            raise ValueError(
                f"'total_time' takes one of the numbers of z, of which there is only {self.latent}; set "
                "total_time=false, or a latent of 2 or more"
            )

    @property
    def has_globals(self) -> bool:
        """Whether there are globals; without them, nodes that see the same over `rounds` edges have equal values."""
        return self.kind != "interaction"

    @property
    def holds_time(self) -> bool:
        """Whether z has a dimension for the total time; latents of categories have none."""
        return self.total_time and not self.categories


@dataclass(frozen=True)
class EncoderTrainingConfig:
    """How the encoder is trained.

    Attributes:
      steps: the number of gradient steps.
      batch: the number of transitions in a step; each has two graphs.
      most_states: the largest number of distinct states to train on, of all start graphs together. If there are more,
        this many are drawn once.
      calibration: the number of transitions that the heads' units and, at the end, the encoder's calibration are
        measured on.
      action_embedding: the width of the action embedding of the consistency head.
      consistency_hidden: the hidden width of the consistency head.
      consistency_weight, variance_weight: weights beside 1 for each auxiliary head. The variance term keeps every
        dimension of z at a standard deviation of at least 1, without which consistency is best served by a constant.
      optimiser: learning rates.
      checkpoint_every: steps between checkpoints.
    """

    steps: int = 300
    batch: int = 16
    most_states: int = 20_000
    calibration: int = 128
    action_embedding: int = 32
    consistency_hidden: int = 128
    consistency_weight: float = 1.0
    variance_weight: float = 1.0
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(3e-3, 2e-4))
    checkpoint_every: int = 50

    def __post_init__(self) -> None:
        _require(self, 0, "steps", "consistency_weight", "variance_weight")
        _require(self, 1, "batch", "calibration", "action_embedding", "consistency_hidden", "checkpoint_every")
        if self.most_states < 2:
            raise ValueError(f"a transition has 2 states, but only {self.most_states} may be trained on; use 2 or more")


@dataclass(frozen=True)
class MdnRnnConfig:
    """Sizes of the MDN-RNN.

    Attributes:
      hidden: the width of the LSTM (256: Ha & Schmidhuber 2018).
      mixtures: the number of Gaussians in the mixture (8 in the papers).
      log_sigma_range: the bounds of the log scales, for latents of unit variance.
      rule_embedding, site_embedding: the widths of the learned embeddings of an action's rule and site.
      action_embedding: the width of the layer that mixes the two.
      head_hidden: the width of the hidden layer of the reward, terminal and mask heads.
      latent_hidden: the width of the hidden layer of the mixture.
      mask_rank: the rank of the part of the mask head that can reach every bit.
      neighbours: the largest number of slots of an action's neighbourhood (see `neighbourhood`).
      neighbour_reach: the largest distance in sites of the bits that an action only reads.
      neighbour_hidden: the width of the summary that an action reads out of its neighbourhood.
      remembers: whether an action also reads which rewrites its neighbourhood has behind it (`data.past`).
      potential: whether a dream pays no more than what its states save by a potential that is fitted to the costs of
        all states (`worldmodel.dream.bounds`); for rewards that are differences of a cost.
      hold_changes: whether predictions keep the mean change of every dimension of z within the range that the action's
        rule showed in the training data (`Statistics.rule_changes`). Training itself is never held.
      inertia: the logit by which a bit keeps its value at the start of training.
      features: what heads read of a step. "step": z, h, the action, and the legal actions near it. "state": z and h
        alone, as in the papers; masks then come from these and not from the mask before, rewards from a network and
        not from means of the training data, actions are learned embeddings that know nothing of the start graph, and
        networks read z as it is.
      dynamics: what is predicted of the next latent, see `latent_heads`; "discrete" needs an encoder with categories.
      reward_head: whether the reward shares the features of the mask and the terminal, or has a network to itself.
      reward_hidden: the width of the two hidden layers of a separate reward network.
      ensemble: the number of members. Each has heads of its own, trained on episodes drawn with replacement.
    """

    hidden: int = 256
    mixtures: int = 8
    log_sigma_range: tuple[float, float] = (-3.0, 1.0)
    rule_embedding: int = 16
    site_embedding: int = 32
    action_embedding: int = 64
    head_hidden: int = 128
    latent_hidden: int = 256
    mask_rank: int = 32
    neighbours: int = 96
    neighbour_reach: int = 20
    neighbour_hidden: int = 64
    remembers: bool = True
    potential: bool = True
    hold_changes: bool = True
    inertia: float = 7.0
    features: Literal["step", "state"] = "step"
    dynamics: Literal["mdn", "discrete", "deterministic"] = "mdn"
    reward_head: Literal["shared", "separate"] = "shared"
    reward_hidden: int = 128
    ensemble: int = 1

    def __post_init__(self) -> None:
        widths = ("hidden", "action_embedding", "head_hidden", "latent_hidden", "neighbour_hidden", "reward_hidden")
        _require(self, 1, *widths, "mixtures", "rule_embedding", "site_embedding", "mask_rank")
        _require(self, 0, "neighbours", "neighbour_reach")
        low, high = self.log_sigma_range
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"'log_sigma_range' needs a finite lower bound and a higher one, but {low} to {high} came")
        if self.ensemble < 1:
            raise ValueError(f"an ensemble of {self.ensemble} members predicts nothing; use 1 or more")


@dataclass(frozen=True)
class MdnRnnTrainingConfig:
    """How the MDN-RNN is trained.

    Attributes:
      steps: the number of gradient steps.
      batch: the number of episodes in a step.
      latent_weight, mean_weight, reward_weight, idle_weight, terminal_weight, mask_weight: of the loss terms (nats per
        latent dimension; squared error of the mixture's mean; error in units of the spread of an action's rewards;
        nats; nats; nats over all bits of a state). The likelihood alone is content to call hard transitions noise and
        learns their means slowly (Seitzer et al. 2022); the squared error sees to them. The bits weigh most: they are
        exact, and a policy trained in the dream finds every rewrite that is wrongly thought legal.
      mask_emphasis: by how much more than 1 those bits weigh that belong to rewrites which pay on average
        (`PAYS_PERCENT`) or are seldom legal (`worldmodel.dynamics.mask_head.SELDOM`).
      optimiser: learning rates.
      checkpoint_every: steps between checkpoints.
    """

    steps: int = 400
    batch: int = 16
    latent_weight: float = 0.3
    mean_weight: float = 3.0
    reward_weight: float = 1.0
    idle_weight: float = 0.2
    terminal_weight: float = 0.2
    mask_weight: float = 2.0
    mask_emphasis: float = 0.0
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(3e-3, 1e-4))
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        weights = ("latent_weight", "mean_weight", "reward_weight", "idle_weight", "terminal_weight", "mask_weight")
        _require(self, 0, "steps", "mask_emphasis", *weights)
        _require(self, 1, "batch", "checkpoint_every")


@dataclass(frozen=True)
class DreamConfig:
    """Settings of a dream.

    Attributes:
      temperature: τ ≥ 0 of the sampled latents: below 1 the dream keeps to the likeliest mean, which at 0 it is; above,
        it strays. How far depends on what the world model has left open: rewrites are deterministic, and a well trained
        one is sure of them (`experiments/results/accuracy/tried.md`).
      root_fraction: share of the rollouts that start at the initial graph; the others start anywhere.
      pessimism: standard deviations between the members of an ensemble by which predicted rewards are lowered.
      legal_from: predicted probability from which a rewrite counts as legal. A policy finds all that are wrongly
        thought legal; but of a model that was trained for a short time, a strict dream lacks rewrites that pay.
      legality: who says which rewrites are legal: the world model, or the engine, which knows exactly
        (`worldmodel.dream.structure`) and then follows the dream. Rewards that telescope are then what the operators
        of its graphs save (`worldmodel.dynamics.operators`), if the model has learned that.
      telescoping: whether the environment's rewards are differences of a cost, so that what is undone is paid back. The
        rewards of a dream are then corrected to do the same (`worldmodel.dream.settlement`). False for the rewards
        final, percent and new_runtime, which are not such differences.
      noise: whether rewards that telescope scatter, at the temperature, as the costs of the training data did if these
        were drawn from recorded timings (`worldmodel.dream.noise`).
    """

    temperature: float = 1.0
    root_fraction: float = 0.5
    pessimism: float = 0.0
    legal_from: float = 0.98
    legality: Literal["predicted", "exact"] = "predicted"
    telescoping: bool = True
    noise: bool = True

    def __post_init__(self) -> None:
        _require(self, 0, "temperature", "root_fraction", "pessimism")
        if not self.root_fraction <= 1:
            raise ValueError(f"'root_fraction' is a share, at most 1, but {self.root_fraction!r} came")
        if not 0.01 <= self.legal_from <= 0.99:
            raise ValueError(f"'legal_from' is a probability from 0.01 to 0.99, but {self.legal_from!r} came")

    def certain(self) -> DreamConfig:
        """Returns the same settings with dreams in which nothing is drawn, for searches."""
        return replace(self, temperature=0.0, noise=False)

    def from_root(self) -> DreamConfig:
        """Returns the same settings with all rollouts from the initial graph."""
        return replace(self, root_fraction=1.0)


@dataclass(frozen=True)
class WorldModelConfig:
    """The sizes and budgets of all parts of a world model."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    encoder_training: EncoderTrainingConfig = field(default_factory=EncoderTrainingConfig)
    mdn_rnn: MdnRnnConfig = field(default_factory=MdnRnnConfig)
    mdn_rnn_training: MdnRnnTrainingConfig = field(default_factory=MdnRnnTrainingConfig)

    def __post_init__(self) -> None:
        if (self.mdn_rnn.dynamics == "discrete") != (self.encoder.categories > 0):
            raise ValueError(
                f"dynamics {self.mdn_rnn.dynamics!r} and an encoder with {self.encoder.categories} categories do not "
                f'go together: "discrete" needs categories, the others none'
            )
