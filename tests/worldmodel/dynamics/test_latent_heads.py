"""The kinds of dynamics, by what they promise alike and by what sets them apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from environment.statistics.paired import spearman
from tests import tracing
from tests.worldmodel.toy_world import LENIENT, SIGNATURE, SMALL, UniformPolicy
from worldmodel.accuracy.open_loop import open_loop, play
from worldmodel.config import MdnRnnConfig, WorldModelConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dynamics.latent_heads import Categorical, LatentKind, Mixture, Vector
from worldmodel.encoder.graph_encoder import discretised
from worldmodel.fitting import fit

LATENT, GROUPS = 12, 4
KINDS: dict[str, LatentKind] = {
    "mdn": Mixture(3, LATENT, (-3.0, 1.0)),
    "deterministic": Vector(LATENT),
    "discrete": Categorical(LATENT, LATENT // GROUPS, inertia=0.0),
}


def some_parameters(head: LatentKind, rows: int, scale: float = 3.0) -> object:
    features = scale * tf.random.stateless_normal([rows, 5], [1, 2])
    z = tf.reshape(tf.one_hot(tf.zeros([rows, GROUPS], tf.int32), LATENT // GROUPS), [rows, LATENT])
    head(features, z)
    (linear,) = (m for m in head.submodules if m.name == "linear")  # type: ignore[attr-defined]
    linear.w.assign(tf.random.stateless_normal(linear.w.shape, [3, 4]))
    return head(features, z)


@pytest.mark.parametrize("name", KINDS)
def test_at_temperature_zero_a_draw_is_the_most_likely(name: str) -> None:
    head = KINDS[name]
    parameters = some_parameters(head, 50)
    drawn = head.sample(parameters, tf.constant(0.0), tf.constant([5, 6]))
    np.testing.assert_array_equal(drawn, head.most_likely(parameters))


@pytest.mark.parametrize("name", KINDS)
def test_what_is_most_likely_is_never_less_so_than_what_was_drawn(name: str) -> None:
    """In nats; of a mixture only where one component has all the weight, else a mean may lie beside the peak."""
    head = KINDS[name]
    parameters = some_parameters(head, 200)
    drawn = head.sample(parameters, tf.constant(1.0), tf.constant([7, 8]))
    best, other = (head.losses(parameters, z)["latent"].numpy() for z in (head.most_likely(parameters), drawn))
    assert np.mean(best <= other + 1e-6) > (0.95 if name == "mdn" else 0.999)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_held_is_moved_no_further_than_it_has_to_be(name: str) -> None:
    """Categories are what they are."""
    head, rows = KINDS[name], 40
    parameters = some_parameters(head, rows)
    free, middle = head.most_likely(parameters), tf.zeros([rows, LATENT])
    drawn = head.most_likely(head.held(parameters, middle - 0.5, middle + 0.5))
    assert np.abs(free).max() > 0.5
    np.testing.assert_array_equal(drawn, free if name == "discrete" else np.clip(free, -0.5, 0.5))


def test_categories_are_drawn_as_often_as_they_are_likely() -> None:
    """Chi-squared at temperature 1, for every variable: the 99.9 % quantile of 2 degrees of freedom is 13.8."""
    head, rows = KINDS["discrete"], 20_000
    parameters = some_parameters(head, 1, scale=1.0)
    repeated = type(parameters)(tf.repeat(parameters.logits, rows, axis=0))  # type: ignore[attr-defined, call-arg]
    drawn = tf.reshape(head.sample(repeated, tf.constant(1.0), tf.constant([9, 1])), [rows, GROUPS, -1])
    expected = rows * np.exp(parameters.logits.numpy()[0])  # type: ignore[attr-defined]
    statistic = ((drawn.numpy().sum(axis=0) - expected) ** 2 / expected).sum(axis=-1)
    assert np.allclose(expected.sum(axis=-1), rows) and (statistic < 13.8).all()


def test_every_draw_of_categories_is_a_code() -> None:
    head = KINDS["discrete"]
    drawn = head.sample(some_parameters(head, 30), tf.constant(1.5), tf.constant([2, 2])).numpy()
    groups = drawn.reshape(30, GROUPS, -1)
    assert set(np.unique(groups)) <= {0.0, 1.0} and (groups.sum(axis=-1) == 1).all()


def test_a_discrete_embedding_is_a_code_with_a_gradient() -> None:
    logits = tf.Variable(tf.random.stateless_normal([7, LATENT], [1, 1]))
    with tf.GradientTape() as tape:
        codes = discretised(logits, LATENT // GROUPS)
        loss = tf.reduce_sum(codes * tf.random.stateless_normal([7, LATENT], [2, 2]))
    np.testing.assert_allclose(codes.numpy().reshape(7, GROUPS, -1).sum(axis=-1), 1.0, atol=1e-6)
    assert (np.abs(tape.gradient(loss, logits)).sum(axis=1) > 0).all()


def test_dynamics_and_encoder_have_to_go_together() -> None:
    with pytest.raises(ValueError, match="0 categories do not go together"):
        WorldModelConfig(mdn_rnn=MdnRnnConfig(dynamics="discrete"))
    with pytest.raises(ValueError, match="cannot consist of variables with 5 categories"):
        dataclasses.replace(SMALL.encoder, categories=5)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("discrete", marks=pytest.mark.full),
        pytest.param("deterministic", marks=pytest.mark.full),
        "ensemble",
    ],
)
def test_other_dynamics_learn_the_toy_too(name: str, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    encoder, dynamics = SMALL.encoder, SMALL.mdn_rnn
    if name == "discrete":
        encoder = dataclasses.replace(encoder, latent=32, categories=4)
    settings = {"ensemble": 2} if name == "ensemble" else {"dynamics": name}
    config = dataclasses.replace(
        SMALL,
        encoder=encoder,
        mdn_rnn=dataclasses.replace(dynamics, **settings),
        mdn_rnn_training=dataclasses.replace(SMALL.mdn_rnn_training, steps=70),
    )
    with tracing.traced():  # the only part of enough steps
        model = fit(split[0], SIGNATURE, config, seed=0)
    one = open_loop(model, split[1], steps=1, stride=1)
    assert spearman(one.dreamed.reward[0], one.real.trajectory.reward[0]) > 0.9
    again = [play(model, one.real, seed=seed).dreamed.state for seed in (1, 2)]
    assert np.array_equal(*again), "temperature 0 leaves nothing to chance, nor which member of an ensemble is asked"
    played = open_loop(model, split[1], steps=3, stride=3)
    real = played.real.trajectory.state
    assert np.mean((played.dreamed.state[3] - real[3]) ** 2) < np.mean((real[3] - real[0]) ** 2)
    plain, wary = (
        DreamEnv(model, start_states(model, split[0]), dataclasses.replace(LENIENT, pessimism=pessimism)).rollout(
            UniformPolicy(), batch=32, horizon=4, seed=0
        )
        for pessimism in (0.0, 5.0)
    )
    first_actions_agree = plain.action[0] == wary.action[0]
    assert tf.reduce_all(first_actions_agree)
    lower = plain.reward[0].numpy() - wary.reward[0].numpy()
    assert lower.mean() > 0.01 if name == "ensemble" else np.allclose(lower, 0)


@pytest.mark.parametrize("name", ["mdn", "deterministic"])
def test_the_last_dimension_can_be_told(name: str) -> None:
    """Whatever component is drawn from; all else stays."""
    head = KINDS[name]
    parameters = some_parameters(head, 20)
    told = head.with_last(parameters, tf.range(20.0))
    likely, before = head.most_likely(told).numpy(), head.most_likely(parameters).numpy()
    np.testing.assert_array_equal(likely[:, -1], np.arange(20.0))
    np.testing.assert_array_equal(likely[:, :-1], before[:, :-1])


def test_categories_have_no_last_number() -> None:
    head = KINDS["discrete"]
    with pytest.raises(TypeError, match="no last real number"):
        head.with_last(some_parameters(head, 2), tf.zeros(2))
