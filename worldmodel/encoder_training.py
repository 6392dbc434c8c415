"""Training the encoder through auxiliary heads and next-latent consistency.

Nothing of this stays with the world model but the encoder's weights: the heads only tell z what to hold. Every loss is
divided by what the best constant (or, for the next latent, copying) would get, so all start near 1 and weigh alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from worldmodel.actions import ActionTable
from worldmodel.config import EncoderTrainingConfig
from worldmodel.encoder import GraphEncoder
from worldmodel.episodes import Episode, EpisodeBuffer
from worldmodel.graph_store import GraphLike
from worldmodel.graphs import FeatureSpec, graphs_tuple_signature, to_graphs_tuple
from worldmodel.mdn_rnn import ActionEmbedding
from worldmodel.training import OnStep, Optimiser, TrainingLoop


class StateTargets(NamedTuple):
    """What the heads have to say of n states.

    Attributes:
      log_cost: float32 [n], ln(cost / cost of the episode's first state).
      match_counts: float32 [n, R], ln(1 + legal locations) of every rule.
      rule_mask: float32 [n, R], rules with a legal location.
      action_mask: float32 [n, A], legal actions of the table.
    """

    log_cost: np.ndarray
    match_counts: np.ndarray
    rule_mask: np.ndarray
    action_mask: np.ndarray


class EncoderDataset:
    """Transitions of a buffer as graphs and targets.

    Args:
      buffer: the episodes; NO-OP transitions are left out, they change nothing.
      table: the actions.
    """

    def __init__(self, buffer: EpisodeBuffer, table: ActionTable) -> None:
        self._buffer, self._table = buffer, table
        self._transitions = [
            (episode, t)
            for episode in buffer
            for t in range(episode.num_steps)
            if episode.actions[t, 0] != table.num_rules
        ]
        if not self._transitions:
            raise ValueError(
                "the episodes hold no rewrite to learn from; collect deeper episodes, or check that rules match"
            )

    def __len__(self) -> int:
        return len(self._transitions)

    def batch(self, rows: Sequence[int] | np.ndarray) -> tuple[list[GraphLike], StateTargets, np.ndarray]:
        """Transitions `rows`: [2n] graphs and targets (n states before, then their n states after), n actions."""
        chosen = [self._transitions[row] for row in rows]
        states = chosen + [(episode, t + 1) for episode, t in chosen]
        graphs: list[GraphLike] = [self._buffer.graphs[episode.hashes[t]] for episode, t in states]
        actions = self._table.encode(np.stack([episode.actions[t] for episode, t in chosen]))
        return graphs, self.targets(states), actions

    def targets(self, states: Sequence[tuple[Episode, int]]) -> StateTargets:
        """Targets of (episode, time) states."""
        locations = [episode.legal_actions(t)[:, 0] for episode, t in states]
        counts = np.stack([np.bincount(rules, minlength=self._table.num_rules) for rules in locations])
        masks = np.zeros((len(states), self._table.num_actions), np.float32)
        for mask, (episode, t) in zip(masks, states, strict=True):
            known = self._table.find_codes(episode.codes_at(t))
            mask[known[known >= 0]] = 1.0
        return StateTargets(
            log_cost=np.array([np.log(e.cost_ms[t] / e.cost_ms[0]) for e, t in states], np.float32),
            match_counts=np.log1p(counts).astype(np.float32),
            rule_mask=(counts > 0).astype(np.float32),
            action_mask=masks,
        )

    def sample(self, count: int, seed: Sequence[int]) -> np.ndarray:
        """`count` distinct transitions, or all where there are fewer: their numbers."""
        generator = np.random.default_rng(list(seed))
        return generator.permutation(len(self))[:count]


class EncoderHeads(snt.Module):
    """Linear heads on z and a small network for the change of z under an action.

    Args:
      statistics: targets of many states: sets the units and starting points of the heads.
      table: the actions.
      config: widths.
      latent: Z.
    """

    def __init__(
        self, statistics: StateTargets, table: ActionTable, config: EncoderTrainingConfig, latent: int
    ) -> None:
        super().__init__()
        self._cost = _RegressionHead(statistics.log_cost[:, np.newaxis])
        self._counts = _RegressionHead(statistics.match_counts)
        self._rules, self._mask = _BitHead(statistics.rule_mask), _BitHead(statistics.action_mask)
        width = config.action_embedding
        self._embedding = ActionEmbedding(table, width, width, width)
        self._change = snt.nets.MLP([config.consistency_hidden, latent])

    def losses(self, z: tf.Tensor, targets: StateTargets, actions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Named scalar losses of raw embeddings z [2n, latent] (before, then after) under `actions` [n].

        The heads see z standardised, as everything will that uses it later: else a few wide dimensions would carry
        the consistency term and the narrow ones could be noise.
        """
        mean, variance = tf.nn.moments(z, axes=[0])
        spread = tf.reduce_mean(tf.nn.relu(1.0 - tf.sqrt(variance + 1e-4)))
        z = (z - mean) * tf.math.rsqrt(variance + 1e-4)
        before, after = tf.split(z, 2)
        change = self._change(tf.concat([before, tf.gather(self._embedding(), actions)], axis=-1))
        error = tf.reduce_mean(tf.square(after - before - change))
        return {
            "cost": self._cost.loss(z, targets.log_cost[:, tf.newaxis]),
            "match_counts": self._counts.loss(z, targets.match_counts),
            "rule_mask": self._rules.loss(z, targets.rule_mask),
            "action_mask": self._mask.loss(z, targets.action_mask),
            # Relative to copying z, and with a gradient to both: z should change predictably, not little.
            "consistency": error / (tf.reduce_mean(tf.square(after - before)) + 1e-6),
            "variance": spread,
        }


class _RegressionHead(snt.Module):
    """Linear regression whose loss is in units of the targets' variance."""

    def __init__(self, targets: np.ndarray) -> None:
        super().__init__()
        self._mean, self._variance = targets.mean(axis=0), float(targets.var(axis=0).mean()) + 1e-8
        self._linear = snt.Linear(targets.shape[1])

    def loss(self, z: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        scaled = (targets - self._mean) / self._variance**0.5
        return tf.reduce_mean(tf.square(self._linear(z) - scaled))


class _BitHead(snt.Module):
    """Logistic regression whose loss is in units of the bits' entropy."""

    def __init__(self, targets: np.ndarray) -> None:
        super().__init__()
        rate = (targets.sum(axis=0) + 0.5) / (len(targets) + 1.0)
        self._logit = np.log(rate / (1.0 - rate)).astype(np.float32)
        # The floor: bits that hardly ever vary must not outweigh everything else with the one state where they do.
        self._entropy = max(0.05, float(-(rate * np.log(rate) + (1.0 - rate) * np.log(1.0 - rate)).mean()))
        self._linear = snt.Linear(targets.shape[1], w_init=snt.initializers.TruncatedNormal(stddev=0.05))

    def loss(self, z: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        logits = self._linear(z) + self._logit
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)) / self._entropy


class EncoderTraining:
    """One resumable training of an encoder on the transitions of a buffer.

        EncoderTraining(encoder, features, buffer, table, EncoderTrainingConfig(), seed=0).run(on_step=print)

    Args:
      encoder: changed in place.
      features: of the buffer's graphs.
      buffer, table: the data.
      config: how to train.
      seed: of every random draw; weights that exist already, as some of the encoder's do, are left as they are.
      directory: where checkpoints go.
    """

    def __init__(
        self,
        encoder: GraphEncoder,
        features: FeatureSpec,
        buffer: EpisodeBuffer,
        table: ActionTable,
        config: EncoderTrainingConfig,
        *,
        seed: int,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.encoder, self._config, self._seed = encoder, config, seed
        self._data = EncoderDataset(buffer, table)
        graphs, statistics, actions = self._data.batch(self._data.sample(config.calibration, (seed, 0)))
        self._heads = EncoderHeads(statistics, table, config, encoder.config.latent)
        self._build(to_graphs_tuple(graphs), statistics, actions)
        variables = [*encoder.trainable_variables, *self._heads.trainable_variables]
        self._optimiser = Optimiser(config.optimiser, variables)
        specs = [tf.TensorSpec([None, *values.shape[1:]], tf.float32) for values in statistics]
        signature = [graphs_tuple_signature(features), StateTargets(*specs), tf.TensorSpec([None], tf.int32)]
        self._update = tf.function(self._update_eagerly, input_signature=signature, autograph=False)
        tracked = {"encoder": encoder, "heads": self._heads, "optimiser": self._optimiser}
        self.loop = TrainingLoop(
            self._train_step,
            tracked,
            num_steps=config.steps,
            directory=directory,
            checkpoint_every=config.checkpoint_every,
        )

    def run(self, *, until: int | None = None, on_step: OnStep | None = None) -> None:
        """Trains to the end (or step `until`) from where the last checkpoint is, and calibrates the encoder."""
        self.loop.run(until=until, on_step=on_step)
        graphs, _, _ = self._data.batch(self._data.sample(self._config.calibration, (self._seed, 0)))
        self.encoder.calibrate(to_graphs_tuple(graphs))

    def _build(self, graphs: gn_graphs.GraphsTuple, targets: StateTargets, actions: np.ndarray) -> None:
        """Creates all variables, from the seed."""
        tf.random.set_seed(self._seed)
        self._heads.losses(self.encoder(graphs), targets, tf.constant(actions))

    def _train_step(self, step: int) -> Mapping[str, float]:
        graphs, targets, actions = self._data.batch(self._data.sample(self._config.batch, (self._seed, 1, step)))
        self._optimiser.set_rate(step, self._config.steps)
        metrics = self._update(to_graphs_tuple(graphs), StateTargets(*map(tf.constant, targets)), tf.constant(actions))
        return {name: float(value) for name, value in metrics.items()}

    def _update_eagerly(
        self, graphs: gn_graphs.GraphsTuple, targets: StateTargets, actions: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        weights = {"consistency": self._config.consistency_weight, "variance": self._config.variance_weight}
        with tf.GradientTape() as tape:
            losses = self._heads.losses(self.encoder(graphs, is_training=True), targets, actions)
            loss = tf.add_n([weights.get(name, 1.0) * value for name, value in losses.items()])
        return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}
