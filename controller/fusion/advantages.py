"""Learned advantages of fusion decisions: labels, batches, training, and how good predictions are.

    model = AdvantageModel(AdvantageConfig(), seed=0)
    model.train([(graph, samples), ...])
    sizes = model.predict(unseen, configuration)      # [n], one for each configurable tensor

Source: Local advantage functions (facts in the module `controller.fusion.samples`): labels sign(a) · log(1 + |a| / σ)
with the median σ of each graph; 90 % of a batch from the top decile of |a|; |a| itself by default, because its sign is
hard to predict.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import sonnet as snt
import tensorflow as tf
from scipy import stats

from controller import stored
from controller.fusion.network import AdvantageNetwork
from controller.fusion.samples import TOP_SHARE, Samples
from environment.fusion import FusionGraph
from environment.fusion.graphs import NODE_COLUMNS
from taso_ext.files import write_arrays

FORMAT_VERSION = 1
Progress = Callable[[int, int, dict[str, float]], None]
Data = Sequence[tuple[FusionGraph, Samples]]


@dataclass(frozen=True)
class AdvantageConfig:
    """The settings of a model of advantages.

    Attributes:
      hidden, layers: sizes of the network.
      steps, batch, tensors: gradient steps; samples in each; and the tensors of the configurations that they are drawn
        from (whole configurations are added until there are so many).
      learning_rate: of Adam, decayed to a tenth along a cosine.
      label: `log` for sign(a) · log(1 + |a| / σ), `linear` for a / σ.
      signed: whether the target is the label itself rather than its absolute value.
      top_share_of_batch: share of a batch that is drawn from the top decile; TOP_SHARE draws as samples come.
    """

    hidden: int = 64
    layers: int = 3
    steps: int = 2000
    batch: int = 512
    tensors: int = 2000
    learning_rate: float = 2e-3
    label: Literal["log", "linear"] = "log"
    signed: bool = False
    top_share_of_batch: float = 0.9

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "steps", "batch", "tensors"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"fusion: {name} is {getattr(self, name)}; it counts something and must be at least 1."
                )
        if not 0 <= self.top_share_of_batch <= 1 or self.learning_rate <= 0 or self.label not in ("log", "linear"):
            raise ValueError(
                "fusion: top_share_of_batch must lie in [0, 1], learning_rate be positive and label be log or linear, "
                f"got {self.top_share_of_batch}, {self.learning_rate} and {self.label!r}."
            )


def labels(advantages_ms: np.ndarray, scale_ms: float, config: AdvantageConfig) -> np.ndarray:
    """Returns the targets of advantages, in the same shape: monotone in a, or in |a| if they are not signed."""
    relative = advantages_ms / scale_ms
    if config.label == "log":
        relative = np.sign(relative) * np.log1p(np.abs(relative))
    return relative if config.signed else np.abs(relative)


class Batch:
    """Configurations of several graphs, side by side as one graph, with the weight of each sample in the loss.

    Attributes:
      nodes, links, bits: what `AdvantageNetwork` reads; N is the number of tensors of all configurations.
      targets: float32 [N], 0 where nothing is asked.
      weights: float32 [N], how often a tensor was drawn; they sum to the size of the batch.
    """

    def __init__(
        self,
        drawn: Sequence[tuple[FusionGraph, np.ndarray, np.ndarray, np.ndarray]],
        rng: np.random.Generator,
        config: AdvantageConfig,
    ) -> None:
        """
        Args:
          drawn: graphs with a configuration uint8 [n], its targets [n], and which of them are in the top decile [n].
        """
        sizes = [len(graph.problem) for graph, *_ in drawn]
        starts = np.cumsum([0, *sizes])
        self.nodes = np.concatenate([graph.nodes for graph, *_ in drawn])
        self.links = np.concatenate([graph.links + start for (graph, *_), start in zip(drawn, starts, strict=False)])
        self.bits = np.zeros(starts[-1], np.float32)
        self.targets = np.zeros(starts[-1], np.float32)
        places, tops = [], []
        for (graph, bits, targets, is_top), start in zip(drawn, starts, strict=False):
            place = graph.configurable + start
            self.bits[place], self.targets[place] = bits, targets
            places.append(place)
            tops.append(is_top)
        self.weights = np.zeros(starts[-1], np.float32)
        place, top = np.concatenate(places), np.concatenate(tops)
        wanted = round(config.batch * config.top_share_of_batch) if top.any() else 0
        for group, size in ((place[top], wanted), (place[~top], config.batch - wanted)):
            if len(group):
                np.add.at(self.weights, rng.choice(group, size), 1.0)


class AdvantageModel:
    """A network with its training; two models with the same seed and data are equal."""

    def __init__(self, config: AdvantageConfig, *, seed: int = 0) -> None:
        self.config, self._seed = config, seed
        with tf.init_scope():
            tf.random.set_seed(seed)
        self._network = AdvantageNetwork(config.hidden, config.layers)
        self._network(tf.zeros([2, len(NODE_COLUMNS)]), tf.constant([[0, 1]]), tf.zeros([2]))  # makes the variables
        self._learning_rate = tf.Variable(config.learning_rate, trainable=False)
        self._optimizer = snt.optimizers.Adam(self._learning_rate)
        arrays = [
            tf.TensorSpec([None, len(NODE_COLUMNS)]),
            tf.TensorSpec([None, 2], tf.int32),
            *[tf.TensorSpec([None])] * 3,
        ]
        self._forward = tf.function(self._network, input_signature=arrays[:3], autograph=False)
        self._step = tf.function(self._learn, input_signature=arrays, autograph=False)

    def _learn(
        self, nodes: tf.Tensor, links: tf.Tensor, bits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        with tf.GradientTape() as tape:
            error = self._network(nodes, links, bits)[:, 0] - targets
            size = tf.abs(error)
            huber = tf.where(size < 1, 0.5 * error**2, size - 0.5)
            loss = tf.reduce_sum(weights * huber) / tf.reduce_sum(weights)
        variables = self._network.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        self._optimizer.apply(gradients, variables)
        return loss

    def train(self, data: Data, on_progress: Progress | None = None) -> float:
        """Trains on samples of graphs, each graph as often as every other; returns the mean loss of the last tenth.

        Raises:
          ValueError: there is no graph.
          FloatingPointError: the loss is NaN or infinite.
        """
        if not data:
            raise ValueError("advantages are learned from at least one training graph, got none")
        rng = np.random.default_rng([self._seed, 341])
        prepared = [(g, s.configurations, labels(s.advantages_ms, s.scale_ms, self.config), s.is_top) for g, s in data]
        steps, losses = self.config.steps, []
        for step in range(steps):
            self._learning_rate.assign(self.config.learning_rate * (0.55 + 0.45 * np.cos(np.pi * step / steps)))
            drawn: list[tuple[FusionGraph, np.ndarray, np.ndarray, np.ndarray]] = []
            while sum(len(graph.problem) for graph, *_ in drawn) < self.config.tensors:
                graph, *columns = prepared[rng.integers(len(prepared))]
                frame = rng.integers(len(columns[0]))
                drawn.append((graph, *(column[frame] for column in columns)))
            batch = Batch(drawn, rng, self.config)
            loss = float(self._step(batch.nodes, batch.links, batch.bits, batch.targets, batch.weights))
            if not np.isfinite(loss):
                raise FloatingPointError(f"fusion: the loss is {loss} at step {step}; lower learning_rate")
            losses.append(loss)
            if on_progress is not None:
                on_progress(step + 1, steps, {"loss": loss})
        return float(np.mean(losses[-max(1, steps // 10) :]))

    def predict(self, graph: FusionGraph, configuration: np.ndarray) -> np.ndarray:
        """Returns the predicted label of each configurable tensor: float32 [n].

        Args:
          configuration: uint8 [N], of all tensors.
        """
        found = self._forward(graph.nodes, graph.links, configuration.astype(np.float32))
        predicted: np.ndarray = found.numpy()[graph.configurable, 0]
        return predicted

    def scores(self, graph: FusionGraph, configuration: np.ndarray) -> np.ndarray:
        """Returns how soon to try each decision [n]: by predicted size, or by saving if signs are learned."""
        predicted = self.predict(graph, configuration)
        return -predicted if self.config.signed else np.abs(predicted)

    def _variables(self) -> dict[str, tf.Variable]:
        return stored.named({"network": self._network.variables})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights and the settings of the network."""
        sizes = {name: np.array(asdict(self.config)[name]) for name in ("hidden", "layers", "signed")}
        weights = {name: variable.numpy() for name, variable in self._variables().items()}
        write_arrays(path, {"format_version": np.array(FORMAT_VERSION), **sizes, **weights})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AdvantageModel:
        """Reads a model.

        Raises:
          StoredControllerError: the file cannot be read, or is of another version.
        """
        arrays = stored.read(path, FORMAT_VERSION)
        sizes = {name: arrays.pop(name, np.array(1)).item() for name in ("hidden", "layers", "signed")}
        model = cls(AdvantageConfig(hidden=sizes["hidden"], layers=sizes["layers"], signed=bool(sizes["signed"])))
        stored.assign(model._variables(), arrays)
        return model


def quality(predicted: np.ndarray, advantages_ms: np.ndarray) -> dict[str, float]:
    """Returns how well predictions order decisions by the size of their advantage.

    Args:
      predicted: [F, n] or [n], numbers whose absolute values order the decisions of a configuration.
      advantages_ms: the true advantages, in the same shape.
    Returns:
      `spearman`: rank correlation with |a|; `recall`: share of the top decile of |a| that is in the top decile of the
      predictions. Both are means over configurations. A constant prediction has correlation 0.
    """
    rows = [(np.abs(np.atleast_2d(each))) for each in (predicted, advantages_ms)]
    correlations, recalls = [], []
    for guess, truth in zip(*rows, strict=True):
        constant = np.ptp(guess) == 0 or np.ptp(truth) == 0
        correlations.append(0.0 if constant else float(stats.spearmanr(guess, truth).statistic))
        top = max(1, round(TOP_SHARE * len(truth)))
        best, chosen = (set(np.argsort(-each, kind="stable")[:top].tolist()) for each in (truth, guess))
        recalls.append(len(best & chosen) / top)
    return {"spearman": float(np.mean(correlations)), "recall": float(np.mean(recalls))}


class OperatorMeans:
    """The trivial predictor that knows the mean label of |a| for each operator type, from the training graphs."""

    def __init__(self, data: Data) -> None:
        config = AdvantageConfig()
        operators = np.concatenate([np.tile(g.nodes[g.configurable, 0], len(s.configurations)) for g, s in data])
        sizes = np.concatenate([labels(s.advantages_ms, s.scale_ms, config).ravel() for _, s in data])
        self._means = {operator: float(sizes[operators == operator].mean()) for operator in np.unique(operators)}
        self._mean = float(sizes.mean())

    def predict(self, graph: FusionGraph) -> np.ndarray:
        """Returns the mean of each configurable tensor's operator, and the mean of all for an unknown one: [n]."""
        return np.array([self._means.get(each, self._mean) for each in graph.nodes[graph.configurable, 0]])
