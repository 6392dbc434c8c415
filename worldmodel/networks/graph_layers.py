"""Layers over graphs: message passing, attention, and reductions over the rows of each node or graph.

Reductions expect the rows in the order of their owners, because TensorFlow then needs a third of the time, in the
backward pass too.
"""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf
from graph_nets import blocks, modules
from graph_nets import graphs as gn_graphs


def segment_sum(values: tf.Tensor, owners: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the rows of every owner; zero for an owner without rows.

    Args:
      values: float32 [n, ...].
      owners: int32 [n], the owner of each row, ascending.
      count: how many owners there are.
    Returns:
      float32 [count, ...].
    """
    return _complete(tf.math.segment_sum(values, owners), count)


def segment_mean(values: tf.Tensor, owners: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the rows of every owner; zero for an owner without rows. See `segment_sum`."""
    return _complete(tf.math.segment_mean(values, owners), count)


def segment_max(values: tf.Tensor, owners: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the maximum over the rows of every owner; zero for an owner without rows. See `segment_sum`."""
    return _complete(tf.math.segment_max(values, owners), count)


def owners_of(sizes: tf.Tensor) -> tf.Tensor:
    """Returns the owner of every row, if owner i has the next `sizes[i]` rows: int32 [sum of sizes]."""
    return tf.repeat(tf.range(tf.shape(sizes)[0]), sizes)


def _complete(reduced: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Appends zeros for the last owners, which TensorFlow leaves out if they have no rows."""
    missing = count - tf.shape(reduced)[0]
    padding = tf.concat([[[0, missing]], tf.zeros([tf.rank(reduced) - 1, 2], tf.int32)], axis=0)
    return tf.ensure_shape(tf.pad(reduced, padding), [None, *reduced.shape[1:]])


class MessagePassingRound(snt.Module):
    """One `graph_nets` GraphNetwork round with residual connections and LayerNorm; edges keep their embedding.

    Edges have to be in the order of their receivers.

    Args:
      hidden: width of nodes and globals.
    """

    def __init__(self, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._network = modules.GraphNetwork(
            edge_model_fn=lambda: snt.nets.MLP([hidden], activate_final=True),
            node_model_fn=lambda: snt.nets.MLP([hidden, hidden]),
            global_model_fn=lambda: snt.nets.MLP([hidden, hidden]),
            reducer=segment_sum,
            edge_block_opt={"use_globals": False, "use_receiver_nodes": False},
            node_block_opt={"use_sent_edges": False},
            global_block_opt={"use_edges": False, "nodes_reducer": segment_mean},
        )
        self._node_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)
        self._global_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
        update = self._network(graph)
        return graph.replace(
            nodes=self._node_norm(graph.nodes + update.nodes),
            globals=self._global_norm(graph.globals + update.globals),
        )


class InteractionRound(snt.Module):
    """A round of an interaction network with residual connections and LayerNorm; edges keep their embedding.

    It is a `MessagePassingRound` without globals: a node knows what it reads, and nothing else of its graph. So nodes
    that see the same can be merged (`worldmodel.networks.merging`). Edges have to be in the order of their receivers.

    Args:
      hidden: width of nodes.
    Source: Battaglia et al. 2016, "Interaction Networks for Learning about Objects, Relations and Physics".
    """

    def __init__(self, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._messages = blocks.EdgeBlock(
            lambda: snt.nets.MLP([hidden], activate_final=True), use_receiver_nodes=False, use_globals=False
        )
        self._update = blocks.NodeBlock(
            lambda: snt.nets.MLP([hidden, hidden]),
            use_sent_edges=False,
            use_globals=False,
            received_edges_reducer=segment_sum,
        )
        self._norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
        update = self._update(self._messages(graph))
        return graph.replace(nodes=self._norm(graph.nodes + update.nodes))


_SLOPE = 0.2  # slope of the LeakyReLU of the scores, as published


class AttentionRound(snt.Module):
    """One round of multi-head graph attention with residual connections and LayerNorm; edges keep their embedding.

    A node attends to itself and to the senders of its edges; every edge enters in both directions, so these are all its
    neighbours. After every round the globals gather the mean of the nodes. Edges have to be in the order of their
    receivers.

    Args:
      hidden: width of nodes and globals, a multiple of `heads`.
      heads: how many attention heads there are.
    """

    def __init__(self, hidden: int, heads: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self._attention = GraphAttention(hidden, heads, reads_edges=True)
        self._global_block = blocks.GlobalBlock(
            lambda: snt.nets.MLP([hidden, hidden]), use_edges=False, nodes_reducer=segment_mean
        )
        self._node_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)
        self._global_norm = snt.LayerNorm(-1, create_scale=True, create_offset=True)

    def __call__(self, graph: gn_graphs.GraphsTuple) -> gn_graphs.GraphsTuple:
        nodes = self._node_norm(graph.nodes + tf.nn.elu(self._attention(graph)))
        update = self._global_block(graph.replace(nodes=nodes))
        return update.replace(globals=self._global_norm(graph.globals + update.globals))


class GraphAttention(snt.Module):
    """Multi-head attention of every node to itself and to the senders of its edges: [nodes, any] -> [nodes, hidden].

    A score is LeakyReLU(a · [W h_i, W h_j, e_ij]), a message is W h_j + U e_ij, and the weighted sums of the heads are
    concatenated. The terms of the edges are not in the paper; without them, attention could not tell the nodes that a
    node reads from the nodes that read it. Edges have to be in the order of their receivers.

    Args:
      hidden: size of the output, a multiple of `heads`.
      heads: how many attention heads there are.
      reads_edges: whether scores and messages have terms of the edges.
    Source: Velickovic et al. 2018, eq. 1 to 5.
    """

    def __init__(self, hidden: int, heads: int, *, reads_edges: bool, name: str | None = None) -> None:
        super().__init__(name=name)
        self._heads, self._width, self._reads_edges = heads, hidden // heads, reads_edges
        self._values = snt.Linear(hidden, with_bias=False)
        if reads_edges:
            self._edge_values, self._edge_scores = snt.Linear(hidden), snt.Linear(heads)
        draw = snt.initializers.TruncatedNormal(stddev=self._width**-0.5)
        self._sender_score = tf.Variable(draw([heads, self._width], tf.float32), name="sender_score")
        self._receiver_score = tf.Variable(draw([heads, self._width], tf.float32), name="receiver_score")

    def __call__(self, graph: gn_graphs.GraphsTuple) -> tf.Tensor:
        own = self._by_head(self._values(graph.nodes))
        sent, received = self._score(own, self._sender_score), self._score(own, self._receiver_score)
        own_scores = tf.nn.leaky_relu(sent + received, _SLOPE)
        scores = tf.gather(sent, graph.senders) + tf.gather(received, graph.receivers)
        messages = tf.gather(own, graph.senders)
        if self._reads_edges:
            scores += self._edge_scores(graph.edges)
            messages += self._by_head(self._edge_values(graph.edges))
        own_weights, weights = self._softmax(own_scores, tf.nn.leaky_relu(scores, _SLOPE), graph.receivers)
        attended = own_weights * own + segment_sum(weights * messages, graph.receivers, tf.shape(graph.nodes)[0])
        return tf.reshape(attended, [-1, self._heads * self._width])

    def _by_head(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1, self._heads, self._width])

    def _score(self, values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Reduces values [nodes, heads, width] to one score per head: [nodes, heads]."""
        return tf.reduce_sum(values * weights, axis=-1)

    def _softmax(self, own: tf.Tensor, scores: tf.Tensor, receivers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights of every node itself [nodes, heads, 1] and of its messages [edges, heads, 1].

        The weights of a node and of the messages that it receives sum to 1.
        """
        count = tf.shape(own)[0]
        relative = scores - tf.gather(own, receivers)
        # The largest score is only subtracted to prevent overflow, so it needs no gradient. The node's own score is 0.
        largest = tf.stop_gradient(tf.nn.relu(segment_max(relative, receivers, count)))
        own_weight, weights = tf.exp(-largest), tf.exp(relative - tf.gather(largest, receivers))
        total = own_weight + segment_sum(weights, receivers, count)
        return (own_weight / total)[..., tf.newaxis], (weights / tf.gather(total, receivers))[..., tf.newaxis]
