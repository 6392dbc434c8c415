"""`GraphEncoder`: a graph network that embeds a whole computation graph in z."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sonnet as snt
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from worldmodel.config import EncoderConfig
from worldmodel.networks.graph_layers import (
    AttentionRound,
    InteractionRound,
    MessagePassingRound,
    owners_of,
    segment_max,
    segment_sum,
)
from worldmodel.networks.merging import merged
from worldmodel.signature import LOG_TIME_UNIT, TIME, FeatureSpec

# A round updates nodes and globals of width `hidden`; edges come in the order of their receivers.
Round = Callable[[gn_graphs.GraphsTuple], gn_graphs.GraphsTuple]
RoundFactory = Callable[[int], Round]
"""A function that builds round i."""


class FeatureEmbedding(snt.Module):
    """A layer that embeds the category column of rows [n, 1 + floats] and mixes it with the floats: [n, width]."""

    def __init__(self, categories: int, embedding: int, width: int, name: str | None = None) -> None:
        super().__init__(name=name)
        # The initial values are small, so that a category never seen in training adds next to nothing to its row.
        self._embed = snt.Embed(categories, embedding, initializer=snt.initializers.TruncatedNormal(stddev=0.1))
        self._mix = snt.Linear(width)
        self._norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        category = self._embed(tf.cast(rows[:, 0], tf.int32))
        return self._norm(tf.nn.relu(self._mix(tf.concat([category, rows[:, 1:]], axis=-1))))


class Calibration(snt.Module):
    """A layer that centres and scales features whose spread between graphs is tiny compared with their size.

    A rewrite touches a few of some hundred nodes, so a pooled feature changes by a fraction of a percent. In training
    the statistics are those of the batch, because constants would be wrong as soon as the weights below change.
    Afterwards they are constants from `measure`, so that an embedding depends on its graph alone.
    """

    _EPSILON = 1e-6  # variance below which a feature counts as constant: float rounding must not be amplified

    def __init__(self, width: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.mean = tf.Variable(tf.zeros([width]), trainable=False, name="mean")
        self.variance = tf.Variable(tf.ones([width]), trainable=False, name="variance")

    def measure(self, features: Sequence[tf.Tensor]) -> None:
        """Sets the constants to the mean and variance within a start graph, averaged over start graphs.

        Args:
          features: [graphs, width] for every start graph.
        """
        moments = [tf.nn.moments(each, axes=[0]) for each in features]
        self.mean.assign(tf.reduce_mean([mean for mean, _ in moments], axis=0))
        self.variance.assign(tf.reduce_mean([variance for _, variance in moments], axis=0))

    def __call__(self, features: tf.Tensor, *, is_training: bool) -> tf.Tensor:
        mean, variance = tf.nn.moments(features, axes=[0]) if is_training else (self.mean, self.variance)
        return (features - mean) * tf.math.rsqrt(variance + self._EPSILON)


def pool_nodes(graph: gn_graphs.GraphsTuple) -> tf.Tensor:
    """Returns mean, maximum and sum/√n over the nodes of every graph, and its globals if there are any.

    Returns:
      float32 [G, 3 · hidden + globals].
    """
    owners, num_graphs = owners_of(graph.n_node), tf.shape(graph.n_node)[0]
    total = segment_sum(graph.nodes, owners, num_graphs)
    largest = segment_max(graph.nodes, owners, num_graphs)
    count = tf.cast(graph.n_node, tf.float32)[:, tf.newaxis]
    of_graph = [] if graph.globals is None else [graph.globals]
    return tf.concat([total / count, largest, total / tf.sqrt(count), *of_graph], axis=-1)


def log_total_time(nodes: tf.Tensor, n_node: tf.Tensor, column: int) -> tf.Tensor:
    """Returns ln(1 + t) of the time t of all nodes of every graph, in microseconds: [G, 1].

    Args:
      column: the column of the nodes that holds their `log_time`.
    """
    times = tf.math.expm1(nodes[:, column] * LOG_TIME_UNIT)
    return tf.math.log1p(segment_sum(times[:, tf.newaxis], owners_of(n_node), tf.shape(n_node)[0]))


def by_receiver(graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
    """Returns the graphs with their edges in the order of their receivers, in which sums over edges are fastest."""
    order = tf.argsort(graph.receivers, stable=True)
    fields = {name: tf.gather(getattr(graph, name), order) for name in ("edges", "senders", "receivers")}
    return graph.replace(**fields)


def round_factory(config: EncoderConfig) -> RoundFactory:
    """Returns the function that builds the rounds of kind `config.kind`."""
    if config.kind == "attention":
        return lambda i: AttentionRound(config.hidden, config.heads, name=f"round_{i}")
    kind = InteractionRound if config.kind == "interaction" else MessagePassingRound
    return lambda i: kind(config.hidden, name=f"round_{i}")


def discretised(logits: tf.Tensor, categories: int) -> tf.Tensor:
    """Returns one-hot codes of the most likely categories, with the gradient of their probabilities (straight through).

    Args:
      logits: [G, latent], the logits of latent / categories variables, end to end.
    """
    groups = tf.reshape(logits, [-1, logits.shape[-1] // categories, categories])
    probabilities = tf.nn.softmax(groups)
    codes = tf.one_hot(tf.argmax(groups, axis=-1), categories)
    return tf.reshape(codes + probabilities - tf.stop_gradient(probabilities), tf.shape(logits))


class GraphEncoder(snt.Module):
    """A network from a GraphsTuple of G graphs (see `embedding.to_graphs_tuple`) to raw embeddings [G, latent].

    The embedding does not depend on the order of nodes or edges. It is not standardised: `WorldModel` does that.

    Args:
      config: the kind and sizes of the encoder.
      features: the columns of nodes and edges.
      make_round: builds round i; by default a round of the kind that `config` names.
      make_readout: builds the map from pooled features to the learned part of z; by default one linear layer, so that
        small differences between graphs reach z undistorted.
    Raises:
      ValueError: if z should hold the total time, but nodes have no such feature.
    """

    def __init__(
        self,
        config: EncoderConfig,
        features: FeatureSpec,
        *,
        make_round: RoundFactory | None = None,
        make_readout: Callable[[], Callable[[tf.Tensor], tf.Tensor]] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.config = config
        if config.holds_time and TIME not in features.node_features:
            raise ValueError(
                f"expected a feature '{TIME}' of nodes, from which z can hold the total time, but there are only "
                f"{', '.join(features.node_features)}; set total_time=false"
            )
        self._time_column = features.node_features.index(TIME) if config.holds_time else None
        make_round = make_round or round_factory(config)
        self._node_embedding = FeatureEmbedding(features.num_operators, config.operator_embedding, config.hidden)
        self._edge_embedding = FeatureEmbedding(features.num_dtypes, config.dtype_embedding, config.edge_hidden)
        self._rounds = [make_round(i) for i in range(config.rounds)]
        self._calibration = Calibration((3 + config.has_globals) * config.hidden + config.holds_time)
        self._readout = make_readout() if make_readout else snt.Linear(config.latent - config.holds_time)

    def embedded(self, graph: gn_graphs.GraphsTuple, colours: tf.Tensor | None = None) -> gn_graphs.GraphsTuple:
        """Returns the graphs after all rounds: nodes [ΣN, hidden], and globals [G, hidden] if the encoder has any.

        Args:
          colours: int64 [ΣN], for an encoder without globals: nodes of one colour are embedded together.
        Raises:
          ValueError: there are colours, and globals too.
        """
        if colours is not None and self.config.has_globals:
            raise ValueError(
                f"an encoder of kind '{self.config.kind}' has globals, so that nodes of one colour differ; leave the "
                "colours out, or set kind=interaction"
            )
        seen, stands = (graph, None) if colours is None else merged(graph, colours)
        seen = by_receiver(seen)
        of_graphs = tf.zeros([tf.shape(graph.n_node)[0], self.config.hidden]) if self.config.has_globals else None
        state = seen.replace(
            nodes=self._node_embedding(seen.nodes), edges=self._edge_embedding(seen.edges), globals=of_graphs
        )
        for update in self._rounds:
            state = update(state)
        nodes = state.nodes if stands is None else tf.gather(state.nodes, stands)
        return graph.replace(nodes=nodes, globals=state.globals)

    def pooled(self, graph: gn_graphs.GraphsTuple) -> tf.Tensor:
        """Returns the pooled features before calibration and readout: [G, 4 · hidden (+ 1)], or 3 without globals.

        The last one is the total time, if z holds it.
        """
        return self._pooled(graph, self.embedded(graph))

    def _pooled(self, graph: gn_graphs.GraphsTuple, embedded: gn_graphs.GraphsTuple) -> tf.Tensor:
        pooled = pool_nodes(embedded)
        if self._time_column is None:
            return pooled
        return tf.concat([pooled, log_total_time(graph.nodes, graph.n_node, self._time_column)], axis=-1)

    def calibrate(self, graphs: Sequence[gn_graphs.GraphsTuple]) -> None:
        """Fits the calibration, after training, to one batch of graphs for every start graph.

        The graphs of a batch should differ as much as the graphs that will be encoded.
        """
        self._calibration.measure([self.pooled(batch) for batch in graphs])

    def __call__(self, graph: gn_graphs.GraphsTuple, is_training: bool = False) -> tf.Tensor:
        return self.with_nodes(graph, is_training)[0]

    def with_nodes(
        self, graph: gn_graphs.GraphsTuple, is_training: bool = False, colours: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the raw embeddings [G, latent] of the graphs, and those [ΣN, hidden] of their nodes in order.

        Args:
          colours: see `embedded`.
        """
        embedded = self.embedded(graph, colours)
        return self._read_out(self._pooled(graph, embedded), is_training), embedded.nodes

    def _read_out(self, pooled: tf.Tensor, is_training: bool) -> tf.Tensor:
        features = self._calibration(pooled, is_training=is_training)
        if self._time_column is not None:
            return tf.concat([self._readout(features[:, :-1]), features[:, -1:]], axis=-1)
        raw = self._readout(features)
        return discretised(raw, self.config.categories) if self.config.categories else raw
