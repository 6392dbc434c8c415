"""Training of the encoder with auxiliary heads and next-latent consistency.

The world model keeps only the encoder's weights; the heads only teach z what to hold. Every loss is divided by the loss
of the best constant prediction (for the next latent, of copying), so all losses start near 1 and weigh alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from environment.costs.interface import counted_ms
from worldmodel.config import EncoderTrainingConfig
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import Episode, EpisodeBuffer
from worldmodel.data.graph_store import GraphLike
from worldmodel.encoder.embedding import graphs_tuple_signature, to_graphs_tuple
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.networks.action_embedding import ActionEmbedding
from worldmodel.signature import FeatureSpec
from worldmodel.training import OnStep, Optimiser, TrainingLoop


class StateTargets(NamedTuple):
    """The targets of the heads for n states.

    Attributes:
      log_cost: float32 [n], ln(cost / cost of the episode's first state), as the agent saw these costs.
      match_counts: float32 [n, R], ln(1 + number of legal locations) of every rule.
      rule_mask: float32 [n, R], 1 for rules with a legal location.
      action_mask: float32 [n, A], 1 for legal actions of the table.
    """

    log_cost: np.ndarray
    match_counts: np.ndarray
    rule_mask: np.ndarray
    action_mask: np.ndarray


class EncoderDataset:
    """Transitions of one start graph as graphs and targets.

    Args:
      buffer: the episodes of the start graph.
      table: the actions of the start graph.
      transitions: (place of the episode in the buffer, time) of each transition; by default all transitions except
        those by NO-OP, which change nothing.
    """

    def __init__(
        self, buffer: EpisodeBuffer, table: ActionTable, transitions: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self._buffer, self.table = buffer, table
        self._transitions = list(_rewrites(buffer) if transitions is None else transitions)

    def __len__(self) -> int:
        return len(self._transitions)

    @property
    def num_states(self) -> int:
        """The number of distinct states before or after any of the transitions."""
        return len({graph_hash for i, t in self._transitions for graph_hash in self._buffer[i].hashes[t : t + 2]})

    def within(self, most_states: int, seed: Sequence[int]) -> EncoderDataset:
        """Returns random transitions that together have at most `most_states` distinct states.

        It is the whole data set if that has no more states.
        """
        if self.num_states <= most_states:
            return self
        drawn: list[tuple[int, int]] = []
        states: set[str] = set()
        for number in np.random.default_rng(list(seed)).permutation(len(self)).tolist():
            i, t = self._transitions[number]
            new = set(self._buffer[i].hashes[t : t + 2]) - states
            if len(states) + len(new) > most_states:
                break
            states |= new
            drawn.append((i, t))
        return EncoderDataset(self._buffer, self.table, drawn)

    def batch(self, rows: Sequence[int] | np.ndarray) -> tuple[list[GraphLike], StateTargets, np.ndarray]:
        """Returns the transitions `rows`: [2n] graphs and targets (n states before, then the n after), n actions."""
        chosen = [(self._buffer[i], t) for i, t in (self._transitions[row] for row in rows)]
        states = chosen + [(episode, t + 1) for episode, t in chosen]
        graphs: list[GraphLike] = [self._buffer.graphs[episode.hashes[t]] for episode, t in states]
        actions = self.table.encode(np.stack([episode.actions[t] for episode, t in chosen]))
        return graphs, self.targets(states), actions

    def in_words(self, rows: Sequence[int] | np.ndarray) -> str:
        """Describes the transitions `rows` in words.

        It names episodes by their places, because episode numbers begin anew with every collection.
        """
        chosen = ", ".join(f"{t} of episode {i}" for i, t in (self._transitions[row] for row in rows))
        return f"transitions {chosen} of {len(self._buffer)}, counted from 0, from the graph {self._buffer[0].start}"

    def targets(self, states: Sequence[tuple[Episode, int]]) -> StateTargets:
        """Returns the targets of (episode, time) states."""
        counts = np.stack([episode.match_counts(t, self.table.num_rules) for episode, t in states])
        masks = np.zeros((len(states), self.table.num_actions), np.float32)
        for mask, (episode, t) in zip(masks, states, strict=True):
            known = self.table.find_codes(episode.codes_at(t))
            mask[known[known >= 0]] = 1.0
        return StateTargets(
            log_cost=np.array(
                [np.log(counted_ms(e.seen_ms[t], e.seen_ms[0]) / e.seen_ms[0]) for e, t in states], np.float32
            ),
            match_counts=np.log1p(counts).astype(np.float32),
            rule_mask=(counts > 0).astype(np.float32),
            action_mask=masks,
        )

    def sample(self, count: int, seed: Sequence[int]) -> np.ndarray:
        """Draws the numbers of `count` distinct transitions; of all of them if there are fewer."""
        generator = np.random.default_rng(list(seed))
        return generator.permutation(len(self))[:count]


def _rewrites(buffer: EpisodeBuffer) -> Iterator[tuple[int, int]]:
    for i, episode in enumerate(buffer):
        for t in np.flatnonzero(episode.actions[:, 0] != buffer.num_rules).tolist():
            yield i, t


class EncoderHeads(snt.Module):
    """The auxiliary heads of one start graph: linear heads on z, and a small network for the change of z by an action.

    Args:
      statistics: the targets of many states, which set the units and starting points of the heads.
      table: the actions.
      config: the widths of the heads.
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
        self._embedding = ActionEmbedding(table.num_rules + 1, table.num_sites, width, width, width)
        self._actions = tf.constant(table.rules), tf.constant(table.sites)
        self._change = snt.nets.MLP([config.consistency_hidden, latent])

    def losses(self, z: tf.Tensor, targets: StateTargets, actions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns named scalar losses of raw embeddings z [2n, latent] (before, then after) under `actions` [n].

        The heads see z standardised, as everything that uses z later does. Otherwise a few wide dimensions would carry
        the consistency term, and the narrow ones could be noise.
        """
        mean, variance = tf.nn.moments(z, axes=[0])
        spread = tf.reduce_mean(tf.nn.relu(1.0 - tf.sqrt(variance + 1e-4)))
        z = (z - mean) * tf.math.rsqrt(variance + 1e-4)
        before, after = tf.split(z, 2)
        change = self._change(tf.concat([before, tf.gather(self._embedding(*self._actions), actions)], axis=-1))
        error = tf.reduce_mean(tf.square(after - before - change))
        return {
            "cost": self._cost.loss(z, targets.log_cost[:, tf.newaxis]),
            "match_counts": self._counts.loss(z, targets.match_counts),
            "rule_mask": self._rules.loss(z, targets.rule_mask),
            "action_mask": self._mask.loss(z, targets.action_mask),
            # The error is relative to copying z, with a gradient to both: z should change predictably, not little.
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
        # The floor keeps bits that hardly ever vary from outweighing everything else with the one state where they do.
        self._entropy = max(0.05, float(-(rate * np.log(rate) + (1.0 - rate) * np.log(1.0 - rate)).mean()))
        self._linear = snt.Linear(targets.shape[1], w_init=snt.initializers.TruncatedNormal(stddev=0.05))

    def loss(self, z: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        logits = self._linear(z) + self._logit
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)) / self._entropy


class EncoderTraining:
    """A resumable training of an encoder on the transitions of several start graphs, each with its own heads.

        EncoderTraining(encoder, features, datasets, EncoderTrainingConfig(), seed=0).run(on_step=print)

    Args:
      encoder: changed in place.
      features: the features of the graphs.
      datasets: the transitions of every start graph. All transitions of a step come from one start graph, because
        rewrites change little compared with the differences between start graphs.
      config: how to train.
      seed: the seed of every random draw; weights that exist already, as some of the encoder's do, stay as they are.
      directory: the directory of the checkpoints.
    """

    def __init__(
        self,
        encoder: GraphEncoder,
        features: FeatureSpec,
        datasets: Sequence[EncoderDataset],
        config: EncoderTrainingConfig,
        *,
        seed: int,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.encoder, self._datasets, self._config, self._seed = encoder, list(datasets), config, seed
        tf.random.set_seed(seed)
        self._heads = [self._make_heads(data, number) for number, data in enumerate(self._datasets)]
        head_variables = [variable for heads in self._heads for variable in heads.trainable_variables]
        self._optimiser = Optimiser(config.optimiser, [*encoder.trainable_variables, *head_variables])
        self._updates = [self._make_update(heads, features) for heads in self._heads]
        self.loop = TrainingLoop(
            self._train_step,
            {"encoder": encoder, "heads": self._heads, "optimiser": self._optimiser},
            num_steps=config.steps,
            directory=directory,
            checkpoint_every=config.checkpoint_every,
            batch_of=lambda step: self._datasets[self._draw_dataset(step)].in_words(self._rows(step)),
        )

    def run(self, *, until: int | None = None, on_step: OnStep | None = None) -> None:
        """Trains from the last checkpoint to the end (or to step `until`), and calibrates the encoder."""
        self.loop.run(until=until, on_step=on_step)
        samples = [self._calibration(number)[0] for number in range(len(self._datasets))]
        self.encoder.calibrate([to_graphs_tuple(graphs) for graphs in samples])

    def _calibration(self, number: int) -> tuple[list[GraphLike], StateTargets, np.ndarray]:
        data = self._datasets[number]
        return data.batch(data.sample(self._config.calibration, (self._seed, 0, number)))

    def _make_heads(self, data: EncoderDataset, number: int) -> EncoderHeads:
        """Returns heads with all their variables; creates those of the encoder too."""
        graphs, statistics, actions = self._calibration(number)
        heads = EncoderHeads(statistics, data.table, self._config, self.encoder.config.latent)
        heads.losses(self.encoder(to_graphs_tuple(graphs)), statistics, tf.constant(actions))
        return heads

    def _make_update(self, heads: EncoderHeads, features: FeatureSpec) -> Any:
        """Returns a training step for the states of one start graph, as one trace."""

        def update(graphs: gn_graphs.GraphsTuple, targets: StateTargets, actions: tf.Tensor) -> dict[str, tf.Tensor]:
            weights = {"consistency": self._config.consistency_weight, "variance": self._config.variance_weight}
            with tf.GradientTape() as tape:
                losses = heads.losses(self.encoder(graphs, is_training=True), targets, actions)
                loss = tf.add_n([weights.get(name, 1.0) * value for name, value in losses.items()])
            return {"loss": loss, **losses, "gradient_norm": self._optimiser.minimise(loss, tape)}

        targets = StateTargets(tf.TensorSpec([None], tf.float32), *[tf.TensorSpec([None, None], tf.float32)] * 3)
        signature = [graphs_tuple_signature(features), targets, tf.TensorSpec([None], tf.int32)]
        return tf.function(update, input_signature=signature, autograph=False)

    def _train_step(self, step: int) -> Mapping[str, float]:
        number = self._draw_dataset(step)
        data = self._datasets[number]
        graphs, targets, actions = data.batch(self._rows(step))
        self._optimiser.set_rate(step, self._config.steps)
        targets = StateTargets(*map(tf.constant, targets))
        metrics = self._updates[number](to_graphs_tuple(graphs), targets, tf.constant(actions))
        return {name: float(value) for name, value in metrics.items()}

    def _rows(self, step: int) -> np.ndarray:
        data = self._datasets[self._draw_dataset(step)]
        return data.sample(self._config.batch, (self._seed, 1, step))

    def _draw_dataset(self, step: int) -> int:
        """Draws the number of a data set, with probabilities in proportion to their transitions."""
        sizes = np.array([len(data) for data in self._datasets], float)
        return int(np.random.default_rng([self._seed, 2, step]).choice(len(sizes), p=sizes / sizes.sum()))
