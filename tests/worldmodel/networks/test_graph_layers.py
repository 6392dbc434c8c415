from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from graph_nets import graphs as gn_graphs

from worldmodel.networks.graph_layers import AttentionRound, owners_of, segment_max, segment_mean, segment_sum

HIDDEN, HEADS, WIDTH = 6, 2, 3
LINKS = np.array([[1, 0], [2, 0], [0, 1], [0, 2], [5, 4], [4, 5]])  # sender, receiver; node 3 stands alone


def graph_of(nodes: np.ndarray, edges: np.ndarray) -> gn_graphs.GraphsTuple:
    return gn_graphs.GraphsTuple(
        nodes=tf.constant(nodes, tf.float32),
        edges=tf.constant(edges, tf.float32),
        senders=tf.constant(LINKS[:, 0], tf.int32),
        receivers=tf.constant(LINKS[:, 1], tf.int32),
        n_node=tf.constant([4, 2]),
        n_edge=tf.constant([4, 2]),
        globals=tf.zeros([2, HIDDEN]),
    )


@pytest.fixture(scope="module")
def layer() -> AttentionRound:
    tf.random.set_seed(0)
    return AttentionRound(HIDDEN, HEADS)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(6, HIDDEN)), generator.normal(size=(len(LINKS), 4))


def layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def attend(layer: AttentionRound, nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the layer's nodes, computed node by node and head by head as in the paper."""
    attention = layer._attention
    values, edge_values = nodes @ attention._values.w.numpy(), edges @ attention._edge_values.w.numpy()
    edge_scores = edges @ attention._edge_scores.w.numpy()
    attended = np.zeros_like(nodes)
    for node in range(len(nodes)):
        for head in range(HEADS):
            part = slice(head * WIDTH, (head + 1) * WIDTH)
            mine = attention._receiver_score.numpy()[head] @ values[node, part]
            scores = [mine + attention._sender_score.numpy()[head] @ values[node, part]]
            messages = [values[node, part]]
            for edge in np.flatnonzero(LINKS[:, 1] == node):
                sent = values[LINKS[edge, 0], part]
                scores.append(mine + attention._sender_score.numpy()[head] @ sent + edge_scores[edge, head])
                messages.append(sent + edge_values[edge, part])
            weights = np.exp(np.where(np.array(scores) > 0, scores, 0.2 * np.array(scores)))
            attended[node, part] = weights / weights.sum() @ np.array(messages)
    return layer_norm(nodes + np.where(attended > 0, attended, np.expm1(attended)))


def test_it_is_the_published_formula(layer: AttentionRound) -> None:
    """All biases and norms still have their initial values."""
    nodes, edges = drawn(0)
    np.testing.assert_allclose(layer(graph_of(nodes, edges)).nodes, attend(layer, nodes, edges), atol=1e-4)


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_large_scores_overflow_nowhere(layer: AttentionRound, scale: float) -> None:
    for seed in range(5):
        nodes, edges = drawn(seed)
        graph = graph_of(scale * nodes, scale * edges)
        with tf.GradientTape() as tape:
            updated = layer(graph)
            total = tf.reduce_sum(updated.nodes**2) + tf.reduce_sum(updated.globals**2)
        for gradient in tape.gradient(total, layer.trainable_variables):
            assert np.all(np.isfinite(gradient))
        assert np.all(np.isfinite(updated.nodes))


def test_the_shift_against_overflow_has_no_part_in_gradients(layer: AttentionRound) -> None:
    """The gradient is compared with finite differences of the formula itself."""
    nodes, edges = drawn(1)
    direction = np.random.default_rng(2).normal(size=nodes.shape)
    weights = np.random.default_rng(3).normal(size=nodes.shape)
    with tf.GradientTape() as tape:
        inputs = tf.constant(nodes, tf.float32)
        tape.watch(inputs)
        total = tf.reduce_sum(layer(graph_of(nodes, edges).replace(nodes=inputs)).nodes * weights.astype(np.float32))
    found = np.sum(tape.gradient(total, inputs).numpy() * direction)
    step = 1e-5
    ends = [np.sum(attend(layer, nodes + side * step * direction, edges) * weights) for side in (-1, 1)]
    assert found == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-3)


@pytest.mark.parametrize(("reduce", "of_rows"), [(segment_sum, np.sum), (segment_mean, np.mean), (segment_max, np.max)])
@pytest.mark.parametrize("sizes", [[3], [0, 2, 0, 1, 0, 0], [1, 1, 4], [0, 0], [5, 0]])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_every_owner_gets_what_its_rows_come_to(
    reduce: Callable[..., tf.Tensor], of_rows: Callable[..., np.ndarray], sizes: list[int], shape: tuple[int, ...]
) -> None:
    values = np.random.default_rng(0).normal(size=(sum(sizes), *shape)).astype(np.float32)
    owners = owners_of(tf.constant(sizes))
    np.testing.assert_array_equal(owners, np.repeat(np.arange(len(sizes)), sizes))
    parts = np.split(values, np.cumsum(sizes)[:-1])
    expected = [of_rows(part, axis=0) if len(part) else np.zeros(shape) for part in parts]
    found = reduce(tf.constant(values), owners, tf.constant(len(sizes)))
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-6, atol=1e-6)


def test_rows_out_of_order_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="not increasing"):
        segment_sum(tf.ones([3]), tf.constant([0, 2, 1]), tf.constant(3))
