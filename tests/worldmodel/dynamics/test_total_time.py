"""Latents of which one dimension is the logarithm of a graph's cost, on the toy problem with times."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tracing import untraced
from tests.worldmodel.toy_world import (
    CELL_COST_MS,
    FEATURES,
    GONE,
    LENIENT,
    RULE_NAMES,
    SMALL,
    ToyEnv,
    ToyGraph,
    UniformPolicy,
    uniform_policy,
)
from worldmodel.accuracy.open_loop import open_loop
from worldmodel.accuracy.probes import Probes, log_cost_percent
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dynamics.mdn_rnn import MOST_LOG_COST
from worldmodel.fitting import fit, refit
from worldmodel.from_episodes import adapt
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

pytestmark = pytest.mark.xdist_group("total time")  # one worker: the model is trained once

TIMED = Signature(
    RULE_NAMES,
    dataclasses.replace(FEATURES, node_features=(*FEATURES.node_features, "log_time")),
    log_cost_rewards=True,
)
UNDECLARED = dataclasses.replace(TIMED, log_cost_rewards=False)
CONFIG = dataclasses.replace(SMALL, encoder=dataclasses.replace(SMALL.encoder, total_time=True))


class TimedEnv(ToyEnv):
    """Every cell has its time, the first one that of the rest of the cost too."""

    def graph(self) -> ToyGraph:
        graph = super().graph()
        times_us = 1e3 * np.array([CELL_COST_MS[int(cell)] for cell in self.cells if cell != GONE])
        times_us[0] += 1e3 * self.cost_ms() - times_us.sum()
        column = np.log1p(times_us) / 5.0
        return graph._replace(nodes=np.c_[graph.nodes, column].astype(np.float32))


class IndifferentEnv(TimedEnv):
    """Nothing is worth anything."""

    def cost_ms(self) -> float:
        return 20.0


def play(env: ToyEnv, episodes: int = 120, seed: int = 1) -> EpisodeBuffer:
    return collect(env, uniform_policy(0.02), episodes, seed=seed)


@pytest.fixture(scope="module")
def timed() -> tuple[EpisodeBuffer, EpisodeBuffer]:
    return play(TimedEnv(8, max_steps=12)).split(0.2, seed=0)


@pytest.fixture(scope="module")
def model(timed: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    return fit(timed[0], TIMED, CONFIG, seed=0)


def test_frozen_heads_read_the_cost_from_predicted_latents(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    played = open_loop(model, timed[1], steps=5, stride=1)
    windows = played.real
    costs = log_cost_percent(timed[1], windows.episode, windows.depth + 5)
    read = Probes.of(model, timed[0]).read_cost(played.dreamed.state[5])
    at_best = Probes.of(model, timed[0]).read_cost(windows.trajectory.state[5])
    assert np.abs(at_best - costs).max() < 0.02 * np.std(costs)
    assert np.mean((read - costs) ** 2) < 0.05 * np.var(costs)


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_what_rewards_add_up_to_is_what_the_cost_changes_by(
    temperature: float, model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """At a temperature too, where the rest of z is drawn."""
    assert model.mdn_rnn.sizes.cost_in_latent
    played = open_loop(model, timed[1], steps=6, stride=1, temperature=temperature)
    moved = played.dreamed.state[1:, :, -1] - played.dreamed.state[:-1, :, -1]
    slope = np.sum(moved * played.dreamed.reward) / np.sum(played.dreamed.reward**2)
    assert slope < 0.0
    np.testing.assert_allclose(moved, slope * played.dreamed.reward, atol=1e-4)


def test_noise_is_in_what_is_paid_and_in_nothing_else(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    """Nodes show costs without it, and so does z."""
    model.save(tmp_path / "model")
    noisy = WorldModel.load(tmp_path / "model", TIMED)
    noisy.mdn_rnn.sizes = noisy.mdn_rnn.sizes._replace(cost_noise=5.0)
    actions = model.table.encode(timed[0][0].actions[:3]).astype(np.int32)[:, np.newaxis].repeat(64, axis=1)
    states = []
    for noise in (True, False):
        config = dataclasses.replace(LENIENT, temperature=1.0, root_fraction=1.0, noise=noise)
        dream = DreamEnv.of_episodes(noisy, timed[0], config)
        state, rewards = dream.start(64, tf.constant([0, 0], tf.int32)), []
        for step, action in enumerate(actions):
            state, reward, _ = dream.step(state, tf.constant(action), tf.constant([0, step]))
            rewards.append(reward.numpy())
        states.append((state, np.array(rewards)))
    (with_noise, paid), (without, plain) = states
    assert np.abs(paid - plain).mean() > 2.0
    np.testing.assert_array_equal(with_noise.z[:, -1], without.z[:, -1])


def test_a_saving_counts_for_more_as_the_graph_gets_cheaper(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """By as much as the cost has fallen, which latents tell; of graphs never trained on too."""
    other = play(TimedEnv(start=(1, 0, 0, 1, 0, 1, 0), max_steps=12), 20, seed=3)
    for bound, buffer in ((model, timed[1]), (adapt(model, other), other)):
        played = open_loop(bound, buffer, steps=6, stride=1)
        windows, inputs = played.real, bound.inputs(bound.start_graph())
        latents = [(0, windows.trajectory.state[0], 1e-4), (6, windows.trajectory.state[6], 1e-4)]
        for step, z, tolerance in [*latents, (6, played.dreamed.state[6], 0.01)] if bound is model else latents:
            costs = log_cost_percent(buffer, windows.episode, windows.depth + step)
            scale = bound.mdn_rnn.cost.reward_scale(tf.constant(z), inputs).numpy()
            np.testing.assert_allclose(np.log(scale), -costs / 100.0, atol=tolerance)
            assert np.ptp(costs) > 10.0


def test_a_rewrite_saves_as_much_time_in_a_larger_graph(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """And so less in percent of it: the model was trained on half as long a string."""
    long = play(TimedEnv(16, max_steps=12), 20, seed=4)
    adapted = adapt(model, long)
    share = timed[0][0].cost_ms[0] / long[0].cost_ms[0]
    assert share < 0.7
    graph = adapted.start_graph()
    of_rules = model.statistics.rule_mean[graph.table.rules], model.statistics.rule_spread[graph.table.rules]
    np.testing.assert_allclose(graph.rewards.mean, share * of_rules[0], rtol=1e-3)
    np.testing.assert_allclose(graph.rewards.spread, share * of_rules[1], rtol=1e-3)
    played = open_loop(adapted, long, steps=1, stride=1)
    error = np.abs(played.dreamed.reward - played.real.trajectory.reward).mean()
    assert error < 0.2 * np.abs(played.real.trajectory.reward).mean()


def test_the_scale_of_costs_that_cannot_be_is_bounded(model: WorldModel) -> None:
    inputs = model.inputs(model.start_graph())
    z = np.zeros((2, CONFIG.encoder.latent), np.float32)
    z[:, -1] = (-1e9, 1e9)
    scale = np.sort(model.mdn_rnn.cost.reward_scale(tf.constant(z), inputs).numpy())
    np.testing.assert_allclose(np.log(scale), (-MOST_LOG_COST, MOST_LOG_COST), rtol=1e-5)


def test_training_lives_on_the_costs_that_dreams_have(model: WorldModel) -> None:
    """In open loops too: what the network would say of the cost is asked by no loss, and stays what it was drawn as."""
    (head,) = (member.latent for member in model.mdn_rnn.members)
    weights = head.kind._linear.w.numpy()  # type: ignore[attr-defined]
    mixtures, width = CONFIG.mdn_rnn.mixtures, CONFIG.encoder.latent
    of_cost = mixtures + width * np.arange(mixtures) + width - 1
    others = mixtures + width * np.arange(mixtures)
    assert np.abs(weights[:, of_cost]).max() < 0.05 < np.abs(weights[:, others]).max()


def test_going_on_learning_keeps_what_is_told(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    """In its unit, whatever new rewards are like; and so does the disk."""
    more_play = play(TimedEnv(8, max_steps=3), 40, seed=2)
    more_play.extend(timed[0])
    config = dataclasses.replace(CONFIG.mdn_rnn_training, steps=1)
    with untraced():
        more = refit(model, more_play, config, seed=1)
    more.save(tmp_path / "model")
    loaded = WorldModel.load(tmp_path / "model", TIMED)
    told = model.mdn_rnn.cost.per_reward
    assert told is not None and float(told) < 0.0
    for each in (more, loaded):
        assert each.mdn_rnn.sizes.cost_in_latent and each.mdn_rnn.cost.per_reward is not None
        assert float(each.mdn_rnn.cost.per_reward) == float(told)
        assert each.mdn_rnn.sizes.reward_deviation == model.mdn_rnn.sizes.reward_deviation
    before, after = (open_loop(each, timed[1], steps=1, stride=1).dreamed.state[1, :, -1] for each in (more, loaded))
    np.testing.assert_allclose(before, after, atol=1e-6)


def hardly_trained(
    buffer: EpisodeBuffer, *, total_time: bool = True, signature: Signature = TIMED, **changes: Any
) -> WorldModel:
    config = dataclasses.replace(
        CONFIG,
        encoder=dataclasses.replace(CONFIG.encoder, total_time=total_time),
        encoder_training=dataclasses.replace(CONFIG.encoder_training, steps=1),
        mdn_rnn_training=dataclasses.replace(CONFIG.mdn_rnn_training, steps=1),
        mdn_rnn=dataclasses.replace(CONFIG.mdn_rnn, **changes),
    )
    with untraced():
        return fit(buffer, signature, config, seed=0)


def test_without_such_rewards_the_latent_holds_no_cost(timed: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    assert not hardly_trained(timed[0], signature=UNDECLARED).mdn_rnn.sizes.cost_in_latent


@pytest.mark.parametrize("changes", [{"dynamics": "deterministic"}, {"ensemble": 2}])
def test_costs_are_told_whatever_predicts_the_rest(
    changes: dict[str, Any], timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """From several start graphs too."""
    both = play(TimedEnv(start=(1, 0, 0, 1, 0, 1), max_steps=12), 30, seed=3)
    both.extend(timed[0])
    model = hardly_trained(both, **changes)
    for start in both.by_start():
        bound = model.bind(start)
        dream = DreamEnv(
            bound, start_states(bound, both.by_start()[start]), dataclasses.replace(LENIENT, temperature=0.0)
        )
        with untraced():
            rollout = dream.rollout(UniformPolicy(), batch=8, horizon=4, seed=0)
        moved = np.diff(rollout.state.numpy()[..., -1], axis=0)
        assert np.isfinite(moved).all() and np.abs(moved).max() > 0.0


def test_a_graph_that_was_not_trained_on_has_its_cost_told_too(model: WorldModel) -> None:
    """By the same change for the same reward; where it begins is told from its own start graph."""
    other = play(TimedEnv(start=(1, 0, 0, 1, 0, 1, 0), max_steps=12), 20, seed=3)
    played = open_loop(adapt(model, other), other, steps=3, stride=1)
    slope = float(model.mdn_rnn.cost.per_reward)  # type: ignore[arg-type]
    real = np.diff(played.real.trajectory.state[..., -1], axis=0)
    np.testing.assert_allclose(real, slope * played.real.trajectory.reward, atol=0.02)
    np.testing.assert_allclose(np.diff(played.dreamed.state[..., -1], axis=0), slope * played.dreamed.reward, atol=1e-4)


def test_rewards_need_not_be_learned_where_rewrites_save_the_same_everywhere(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """The tables are enough, and training does no harm; without a cost, percentages differ from state to state."""
    untrained = hardly_trained(timed[0])
    blind = hardly_trained(timed[0], total_time=False)

    def error(judged: WorldModel) -> float:
        played = open_loop(judged, timed[1], steps=1, stride=1)
        return float(np.abs(played.dreamed.reward - played.real.trajectory.reward).mean())

    assert error(untrained) < 0.05
    assert error(model) < 0.05
    assert error(blind) > 0.3


def test_where_no_rewrite_earns_anything_dreams_do_not_either() -> None:
    buffer = play(IndifferentEnv(8, max_steps=12), 20)
    model = hardly_trained(buffer)
    assert model.mdn_rnn.sizes.cost_in_latent
    played = open_loop(model, buffer, steps=4, stride=1)
    assert np.isfinite(played.dreamed.state).all()
    np.testing.assert_allclose(played.dreamed.reward, 0.0, atol=1e-3)
