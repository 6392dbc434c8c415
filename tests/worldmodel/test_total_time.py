"""Latents of which one dimension is the logarithm of a graph's cost, on the toy problem with times."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_world import CELL_COST_MS, FEATURES, GONE, RULE_NAMES, SMALL, ToyEnv, ToyGraph, uniform_policy

from worldmodel.episodes import EpisodeBuffer, collect
from worldmodel.fit import fit_world_model, refit_world_model
from worldmodel.open_loop import open_loop
from worldmodel.probes import Probes, log_cost_percent
from worldmodel.reward_table import rewards_are_cost_changes
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

TIMED = Signature(RULE_NAMES, dataclasses.replace(FEATURES, node_features=(*FEATURES.node_features, "log_time")))
CONFIG = dataclasses.replace(SMALL, encoder=dataclasses.replace(SMALL.encoder, total_time=True))


class TimedEnv(ToyEnv):
    """Every cell has its time, the first one that of the rest of the cost too."""

    def graph(self) -> ToyGraph:
        graph = super().graph()
        times_us = 1e3 * np.array([CELL_COST_MS[int(cell)] for cell in self.cells if cell != GONE])
        times_us[0] += 1e3 * self.cost_ms() - times_us.sum()
        column = np.log1p(times_us) / 5.0
        return graph._replace(nodes=np.c_[graph.nodes, column].astype(np.float32))


class GenerousEnv(TimedEnv):
    """Rewards what it likes."""

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return (observation, reward + 1.0, *rest)


def play(env: ToyEnv, episodes: int = 120, seed: int = 1) -> EpisodeBuffer:
    return collect(env, uniform_policy(0.02), episodes, seed=seed)


@pytest.fixture(scope="module")
def timed() -> tuple[EpisodeBuffer, EpisodeBuffer]:
    return play(TimedEnv(8, max_steps=12)).split(0.2, seed=0)


@pytest.fixture(scope="module")
def model(timed: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    return fit_world_model(timed[0], TIMED, CONFIG, seed=0)


def test_frozen_heads_read_the_cost_from_predicted_latents(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    played = open_loop(model, timed[1], steps=5, stride=1)
    windows = played.real
    costs = log_cost_percent(timed[1], windows.episode, windows.depth + 5)
    read = Probes.of(model, timed[0]).read_cost(played.z[5])
    at_best = Probes.of(model, timed[0]).read_cost(windows.z[5])
    assert np.abs(at_best - costs).max() < 0.02 * np.std(costs)
    assert np.mean((read - costs) ** 2) < 0.05 * np.var(costs)


def test_what_rewards_add_up_to_is_what_the_cost_changes_by(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """Dream and latent cannot disagree: nothing but rewards moves the cost."""
    assert model.mdn_rnn.sizes.cost_is_told
    played = open_loop(model, timed[1], steps=6, stride=1)
    moved = played.z[1:, :, -1] - played.z[:-1, :, -1]
    slope = np.sum(moved * played.reward) / np.sum(played.reward**2)
    assert slope < 0.0
    np.testing.assert_allclose(moved, slope * played.reward, atol=1e-4)


def test_training_lives_on_the_costs_that_dreams_have(model: WorldModel) -> None:
    """In open loops too: what the network would say of the cost is asked by no loss, and stays what it was drawn as."""
    (head,) = (member.latent for member in model.mdn_rnn.members)
    weights = head._linear.w.numpy()  # type: ignore[attr-defined]
    mixtures, width = CONFIG.mdn_rnn.mixtures, CONFIG.encoder.latent
    of_cost = mixtures + width * np.arange(mixtures) + width - 1
    others = mixtures + width * np.arange(mixtures)
    assert np.abs(weights[:, of_cost]).max() < 0.05 < np.abs(weights[:, others]).max()


def test_going_on_learning_keeps_what_is_told(
    model: WorldModel, timed: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    """And so does the disk; of one step, predictions are hardly others."""
    config = dataclasses.replace(CONFIG.mdn_rnn_training, steps=1)
    more = refit_world_model(model, timed[0], config, seed=1)
    more.save(tmp_path / "model")
    loaded = WorldModel.load(tmp_path / "model", TIMED)
    assert loaded.mdn_rnn.sizes == more.mdn_rnn.sizes and loaded.mdn_rnn.sizes.cost_is_told
    before, after = (open_loop(each, timed[1], steps=1, stride=1).z[1, :, -1] for each in (more, loaded))
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_other_rewards_tell_nothing_of_costs(timed: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    generous = play(GenerousEnv(8, max_steps=12), 20)
    assert rewards_are_cost_changes(timed[0]) and not rewards_are_cost_changes(generous)
    quick = dataclasses.replace(
        CONFIG,
        encoder_training=dataclasses.replace(CONFIG.encoder_training, steps=1),
        mdn_rnn_training=dataclasses.replace(CONFIG.mdn_rnn_training, steps=1),
    )
    assert not fit_world_model(generous, TIMED, quick, seed=0).mdn_rnn.sizes.cost_is_told
