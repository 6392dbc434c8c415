"""The embedding of a candidate is what encoding it by itself gives, and only what differs is computed again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import ArrayLike

from controller.worlds.candidate_view import CandidateObservation, CandidateView, by_kind
from controller.xrlflow.config import XrlflowConfig
from controller.xrlflow.encoder import CandidateEncoder, EncodedGraphs
from environment import GraphSubstitutionEnv
from tests.controller.joined import joined

CONFIG = XrlflowConfig(width=16, layers=3, embedding=8, log_cost=True)
NAMES = ("squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny")


def env_of(name: str) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(name, costs="roofline:rtx2070", max_steps=20)


def view_of(env: GraphSubstitutionEnv, config: XrlflowConfig = CONFIG, most: int = 10**6) -> CandidateView:
    return CandidateView(env, reach=config.reach, most=most)


def walked(view: CandidateView, actions: Sequence[int]) -> CandidateObservation:
    """Returns what the view shows after some actions."""
    seen, _ = view.reset(seed=0)
    for action in actions:
        seen, *_ = view.step(action)
    found: CandidateObservation = seen
    return found


def assert_equal_sums(mine: ArrayLike, alone: ArrayLike, what: str = "") -> None:
    """Asserts that embeddings are equal but for the rounding of their sums, whose terms cancel in small components."""
    largest = float(np.abs(alone).max())
    np.testing.assert_allclose(mine, alone, rtol=0, atol=1e-5 * largest, err_msg=what)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layers", [1, 3])
def test_a_candidate_is_embedded_as_alone(name: str, layers: int) -> None:
    config = dataclasses.replace(CONFIG, layers=layers)
    env, encoder = env_of(name), CandidateEncoder(config)
    view = view_of(env, config)
    for walk in ([], [3], [3, 5]):
        encoded = encoder(walked(view, walk))
        for number in range(1, len(encoded.kind), 7):
            after = walked(view, [*walk, number])
            mine = encoded.embedding[int(encoded.kind[number])]
            assert_equal_sums(mine, encoder(after).embedding[0])


def apart(seen: CandidateObservation) -> CandidateObservation:
    """Returns the observation of one state with a kind for each candidate."""
    parts, counts = seen.parts[0].numpy(), seen.counts[0].numpy()
    rows = [(number, *row) for number, kind in enumerate(seen.kind[0].numpy()) for row in parts_of(parts, counts, kind)]
    number, table = len(seen.kind[0]), np.array(rows, np.int32)
    ragged = [table[:, :2], table[:, 2], np.ones(number, np.int32), np.arange(number, dtype=np.int32)]
    fields = [tf.RaggedTensor.from_row_lengths(array, [len(array)]) for array in ragged]
    return seen._replace(**dict(zip(("parts", "counts", "kinds", "kind"), fields, strict=True)))


def parts_of(parts: np.ndarray, counts: np.ndarray, kind: int) -> list[tuple[int, int]]:
    mine = parts[:, 0] == kind
    return list(zip(parts[mine, 1].tolist(), counts[mine].tolist(), strict=True))


@pytest.mark.parametrize("name", ["bert-base-tiny", "nasrnn-tiny"])
def test_candidates_of_one_kind_share_what_each_would_be_embedded_as(name: str) -> None:
    env = env_of(name)
    seen, encoder = walked(view_of(env), [2]), CandidateEncoder(CONFIG)
    together, alone = encoder(seen), encoder(apart(seen))
    assert len(together.state) < len(alone.state) == len(env.state.legal_actions()) + 1
    assert seen.kinds[0].numpy().tolist() == np.bincount(seen.kind[0]).tolist()
    assert seen.kinds[0].numpy()[0] == 1 and seen.kind[0].numpy()[0] == 0, "the present graph is a kind of its own"
    for field in ("embedding", "change"):
        shared = tf.gather(getattr(together, field), together.kind)
        assert_equal_sums(shared, tf.gather(getattr(alone, field), alone.kind), field)


def test_a_candidate_that_changes_nothing_is_not_the_present_graph() -> None:
    parts = np.array([[0, 0], [0, 1], [2, 0], [2, 1], [3, 0], [3, 1], [5, 1]])
    parts, counts, kinds, kind = by_kind(parts, np.array([3, 2, 3, 2, 3, 2, -1]), 7)
    assert kind.tolist() == [0, 1, 2, 2, 1, 3, 1] and kinds.tolist() == [1, 3, 2, 1]
    assert parts.tolist() == [[0, 0], [0, 1], [2, 0], [2, 1], [3, 1]] and counts.tolist() == [3, 2, 3, 2, -1]
    parts, counts, kinds, kind = by_kind(np.array([[0, 0]]), np.array([1]), 1)
    assert (parts.tolist(), counts.tolist(), kinds.tolist(), kind.tolist()) == ([[0, 0]], [1], [1], [0])


def test_a_state_is_encoded_in_a_batch_as_alone() -> None:
    view, encoder = view_of(env_of("squeezenet1.1-tiny")), CandidateEncoder(CONFIG)
    states = [walked(view, walk) for walk in ([], [2], [2, 4])]
    padding = view.layout.stack([view.layout.empty(view.begin(seed=0)[0])])
    padded = joined([states[0], padding, *states[1:]])
    together = encoder(padded)
    assert set(together.state.numpy()) == {0, 2, 3}, "padding has no graph"
    for row, state in zip((0, 2, 3), states, strict=True):
        mine = together.state == row
        for name, alone in zip(EncodedGraphs._fields[:2], encoder(state)[:2], strict=True):
            assert_equal_sums(getattr(together, name)[mine], alone, name)


@pytest.mark.parametrize("name", NAMES)
def test_nodes_of_one_colour_share_what_each_would_be_embedded_as(name: str) -> None:
    view, encoder = view_of(env_of(name)), CandidateEncoder(CONFIG)
    batch = joined([walked(view, walk) for walk in ([], [2], [2, 4])])
    colours = batch.colours.flat_values
    assert len(np.unique(colours)) < 0.7 * len(colours)
    apart = batch._replace(colours=batch.colours.with_flat_values(tf.range(len(colours), dtype=tf.int64)))
    for shared, alone in zip(encoder(batch)[:2], encoder(apart)[:2], strict=True):
        assert_equal_sums(shared, alone)


def test_candidates_differ_and_the_present_graph_does_not_change() -> None:
    encoded = CandidateEncoder(CONFIG)(walked(view_of(env_of("bert-base-tiny")), []))
    change = np.abs(encoded.change).max(axis=1)
    assert change[0] == 0.0 and (change[1:] > 0).mean() > 0.9


def test_gradients_reach_every_weight() -> None:
    """Those of scores are 0 where all scores of a layer are on one side of the kink of its LeakyReLU."""
    tf.random.set_seed(0)
    seen, encoder = walked(view_of(env_of("squeezenet1.1-tiny")), []), CandidateEncoder(CONFIG)
    encoder(seen)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(encoder(seen).embedding))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    for variable, gradient in zip(encoder.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert "receiver_score" in variable.name or float(tf.norm(tf.convert_to_tensor(gradient))) > 0, variable.name


def test_candidates_beyond_the_limit_are_counted() -> None:
    env = env_of("bert-base-tiny")
    view = view_of(env, most=10)
    seen, _ = view.reset(seed=0)
    legal = len(env.state.legal_actions())  # without everywhere-actions
    assert legal > 10 and seen.dropped.numpy().tolist() == [legal - 10]
    assert seen.candidates.row_lengths().numpy().tolist() == [11]
    assert view.step(0)[0].dropped.numpy().tolist() == [legal - 10], "NO-OP leaves the graph as it is"


def test_noop_is_the_present_graph_and_others_are_rewrites() -> None:
    env = env_of("squeezenet1.1-tiny")
    view = view_of(env)
    view.reset(seed=0)
    legal = env.legal_actions()
    *_, terminated, truncated, info = view.step(1)
    assert info["action"].tolist() == legal[0].tolist() and not (terminated or truncated)
    *_, terminated, _, info = view.step(0)
    assert info["action"].tolist()[0] == env.num_rules and terminated
