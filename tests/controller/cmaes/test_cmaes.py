from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from controller.cmaes.config import FORMAT_VERSION, CmaesConfig
from controller.cmaes.controller import CmaesController
from controller.cmaes.policy import LinearPolicy, LinearScores, principal_components
from controller.evaluation import play_episode
from controller.interface import StoredControllerError
from controller.records import EpisodeRecord
from taso_ext.files import write_arrays
from tests.controller.tiny_worlds import TinyView, TinyWorld, detour, independent_sites
from worldmodel.errors import NonFiniteLoss

QUICK = CmaesConfig(generations=25, population=48, rollouts=1, horizon=6, features=4, keys=8)
MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
HARMFUL = independent_sites(-np.ones((2, 3)))


def controller(
    world: TinyWorld = MIXED, config: CmaesConfig = QUICK, seed: int = 0, **options: float
) -> CmaesController:
    """The embedding of an action is a random vector; [z, h] is the state as one-hot, and 0."""
    embedded = np.random.default_rng(0).standard_normal((world.num_actions + 1, 8))
    kinds = np.append(world.rules, world.rules.max() + 1)
    scores = LinearScores(embedded, kinds, inputs=len(world.legal) + 1, features=config.features, keys=config.keys)
    return CmaesController(scores, config, view=lambda env: env, seed=seed, **options)


def played(player: CmaesController, world: TinyWorld, seed: int = 0, *, deterministic: bool = True) -> EpisodeRecord:
    return play_episode(TinyView(world), player, seed=seed, deterministic=deterministic)


def stored(player: CmaesController, path: Path) -> dict[str, np.ndarray]:
    player.save(path)
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("world", [MIXED, HARMFUL, detour()], ids=["mixed", "harmful", "detour"])
def test_it_learns_the_optimum_of_what_can_be_enumerated(world: TinyWorld) -> None:
    """In 3 of 3 seeds; with 40 generations in 20 of 20, and with half the population in 17 of 20 in the first world."""
    for seed in range(3):
        player = controller(world, seed=seed)
        player.train(world)
        record = played(player, world)
        assert record.costs_ms[0] - record.costs_ms[-1] == pytest.approx(world.best_return(QUICK.horizon))


def test_training_goes_on_bit_for_bit_from_a_checkpoint_made_on_the_way(tmp_path: Path) -> None:
    config = dataclasses.replace(QUICK, generations=6)
    whole, resumed, seen = controller(config=config), controller(config=config), []

    def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
        seen.append((done, total, sorted(metrics)))
        if done == 3:
            whole.save(tmp_path / "controller")

    whole.train(MIXED, seed=7, on_progress=note)
    assert seen == [(done, 6, ["best_return", "length", "return", "sigma"]) for done in range(1, 7)]
    resumed.load(tmp_path / "controller")
    assert resumed.num_generations == 3
    resumed.train(MIXED, seed=7)
    expected, found = stored(whole, tmp_path / "whole"), stored(resumed, tmp_path / "resumed")
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(expected[name], found[name])
    for seed in range(3):
        assert played(whole, MIXED, seed, deterministic=False) == played(resumed, MIXED, seed, deterministic=False)


def test_the_global_generator_of_numpy_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()
    controller(config=dataclasses.replace(QUICK, generations=1)).train(MIXED)
    assert np.random.get_state()[1].tolist() == before


def test_episodes_play_the_mean_or_a_controller_of_their_seed() -> None:
    player = controller()
    assert len({played(player, MIXED, seed).actions for seed in range(6)}) == 1
    sampled = [played(player, MIXED, seed, deterministic=False).actions for seed in (0, 1, 2, 3, 0)]
    assert sampled[0] == sampled[-1] and len(set(sampled)) > 2
    still = controller(sampling_temperature=0.0)
    assert played(still, MIXED, 1, deterministic=False).actions == played(player, MIXED).actions


def test_each_row_of_a_batch_follows_its_own_controller() -> None:
    player = controller()
    scores = player.policy._scores
    drawn = np.random.default_rng(1).standard_normal((3, scores.num_parameters))
    scores.projection.assign(np.random.default_rng(2).standard_normal(scores.projection.shape))
    together, states = LinearPolicy(scores, 3), np.array([0, 9, 0, 9, 0, 9])
    together.parameters.assign(drawn)
    found = together(MIXED.observe(tf.constant(states)), tf.constant([0, 0]))[0].numpy()
    alone = LinearPolicy(scores, 1)
    for row, state in enumerate(states):
        alone.parameters.assign(drawn[row // 2][np.newaxis])
        assert found[row] == alone(MIXED.observe(tf.constant([state])), tf.constant([0, 0]))[0].numpy()[0]
    assert len(set(found.tolist())) > 1


def test_the_number_of_parameters_does_not_depend_on_the_number_of_actions() -> None:
    large = LinearScores(np.random.default_rng(0).standard_normal((900, 64)), np.arange(900) % 30, inputs=288, **SIZES)
    assert large.num_parameters == 17 * 32 + 30
    assert LinearScores(np.ones((2, 64)), np.array([0, 1]), inputs=288, **SIZES).num_parameters == 17 * 32 + 2


SIZES = {"features": 16, "keys": 32}


def test_principal_components_have_unit_variance_and_no_noise() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 10)) + 5.0
    mean, projection = principal_components(rows, 4)
    found = (rows - mean) @ projection
    np.testing.assert_allclose(np.cov(found[:, :3].T, bias=True), np.eye(3), atol=1e-4)
    assert not found[:, 3].any()
    assert not principal_components(np.ones((5, 3)), 2)[1].any()


def test_a_return_that_is_no_number_stops_the_training() -> None:
    world = dataclasses.replace(MIXED, rewards=np.full(MIXED.rewards.shape, np.nan), _compiled={})
    with pytest.raises(NonFiniteLoss, match="generation 1"):
        controller().train(world)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format_version": np.array(FORMAT_VERSION + 1)}, f"format {FORMAT_VERSION + 1}, expected {FORMAT_VERSION}"),
        ({"mean": np.zeros(3)}, "another graph, rule set or configuration: its 'mean'"),
        ({"fitness": np.zeros((2, 5))}, "its 'fitness' has the shape"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    player, path = controller(), tmp_path / "controller"
    write_arrays(path, stored(player, path) | change)
    with pytest.raises(StoredControllerError, match=said):
        player.load(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    player, path = controller(), tmp_path / "controller"
    player.save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoredControllerError, match="missing or damaged"):
        player.load(path)


def test_a_history_that_cannot_be_repeated_still_plays(tmp_path: Path) -> None:
    config = dataclasses.replace(QUICK, generations=2)
    player, path = controller(config=config), tmp_path / "controller"
    player.train(MIXED)
    arrays = stored(player, path)
    write_arrays(path, arrays | {"mean": arrays["mean"] + 1e-9})
    other = controller(config=dataclasses.replace(config, generations=3))
    other.load(path)
    assert played(other, MIXED).actions == played(player, MIXED).actions
    with pytest.raises(StoredControllerError, match=r"still plays.*--run-dir"):
        other.train(MIXED)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"population": 3}, "population of 3"), ({"sigma": 0.0}, "sigma is 0"), ({"keys": 0}, "keys is 0")],
)
def test_senseless_settings_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CmaesConfig(**wrong)  # type: ignore[arg-type]
