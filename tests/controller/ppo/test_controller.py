from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from controller.evaluation import EpisodeRecord, play_episode
from controller.interface import StoredControllerError
from controller.ppo.config import FORMAT_VERSION, PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from taso_ext.files import write_arrays
from tests.controller.tiny_worlds import TinyView, TinyWorld, independent_sites
from worldmodel.data.trajectory import Policy, Trajectory
from worldmodel.errors import NonFiniteLoss

WORLD = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
POLICY = PolicyConfig(torso=(32,), width=8, mask_width=4, noop_logit=-1.0)
CONFIG = PpoConfig(updates=4, batch=32, horizon=6, learning_rate=1e-2)
ONE_PASS = dataclasses.replace(CONFIG, epochs=1, minibatches=1)


def controller(config: PpoConfig = CONFIG, **options: float) -> PpoController:
    return PpoController(WORLD.policy(seed=5, config=POLICY), config, view=lambda env: env, seed=5, **options)


def played(player: PpoController, seed: int, *, deterministic: bool) -> EpisodeRecord:
    return play_episode(TinyView(WORLD), player, seed=seed, deterministic=deterministic)


def stored(player: PpoController, path: Path) -> dict[str, np.ndarray]:
    player.save(path)
    with np.load(path) as arrays:
        return dict(arrays)


def test_training_goes_on_bit_for_bit_from_a_checkpoint_made_on_the_way(tmp_path: Path) -> None:
    path, whole, resumed, seen = tmp_path / "controller", controller(), controller(), []

    def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
        seen.append((done, total, metrics))
        if done == 2:
            whole.save(path)

    whole.train(WORLD, on_progress=note)
    resumed.load(path)
    assert resumed.num_updates == 2
    resumed.train(WORLD)
    assert resumed.num_updates == CONFIG.updates
    expected, found = stored(whole, tmp_path / "whole"), stored(resumed, tmp_path / "resumed")
    assert expected.keys() == found.keys()
    for name in expected:  # weights, moments of the optimiser, scales and counters
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)
    assert played(whole, 0, deterministic=False) == played(resumed, 0, deterministic=False)
    assert [(done, total) for done, total, _ in seen] == [(done, CONFIG.updates) for done in range(1, 5)]
    for _, _, metrics in seen:
        assert metrics["return"] <= metrics["best_return"] <= WORLD.best_return(CONFIG.horizon)
        assert 1 <= metrics["length"] <= CONFIG.horizon


@dataclasses.dataclass
class Poisoned:
    """`WORLD`, from the third rollout on with one reward that is `poison`; as a dream, or as the real environment."""

    poison: float
    real: bool = False
    rollouts: int = 0

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Trajectory:
        self.rollouts += 1
        rollout = WORLD.rollout(policy, batch=batch, horizon=horizon, seed=seed)
        if self.rollouts > 2:
            poison = np.zeros(rollout.reward.shape, np.float32)
            poison[0, 0] = self.poison
            rollout = rollout._replace(reward=rollout.reward + poison)
        return rollout._replace(state=rollout.observations(), hidden=(), legal=()) if self.real else rollout


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_a_reward_that_is_no_number_stops_before_anything_is_saved(poison: float, real: bool, tmp_path: Path) -> None:
    """1e30 is one, but its square, which returns are scaled by, is beyond float32."""
    player, path = controller(ONE_PASS), tmp_path / "controller"
    with pytest.raises(NonFiniteLoss, match=r"return_scale = (nan|inf).*update 3"):
        player.train(Poisoned(poison, real), on_progress=lambda *_: player.save(path))
    with np.load(path) as arrays:
        assert int(arrays["num_updates"]) == 2
        assert all(np.isfinite(each).all() for each in arrays.values())


@pytest.mark.usefixtures("untraced")
def test_a_weight_that_is_no_number_stops_before_anything_is_saved(tmp_path: Path) -> None:
    player, path = controller(ONE_PASS), tmp_path / "controller"

    def poison(done: int, total: int, metrics: Mapping[str, float]) -> None:
        assert metrics["gradient_norm"] > 0
        player.save(path)
        weight = player.policy.trainable_variables[0]
        weight.assign(np.full(weight.shape, np.nan))

    with pytest.raises(NonFiniteLoss, match=r"policy_loss = nan.*update 2"):
        player.train(WORLD, on_progress=poison)
    intact = controller(ONE_PASS)
    intact.load(path)
    intact.train(WORLD)  # it goes on from there
    assert intact.num_updates == CONFIG.updates


def test_trained_policies_play_as_their_seed_says() -> None:
    player = controller()
    assert played(player, 1, deterministic=False) == played(player, 1, deterministic=False)
    sampled = {played(player, seed, deterministic=False).actions for seed in range(6)}
    assert len(sampled) > 1
    deterministic = {played(player, seed, deterministic=True).actions for seed in range(6)}
    assert len(deterministic) == 1


def test_a_low_sampling_temperature_makes_rare_actions_rarer() -> None:
    """False alarm: none, the seeds are fixed."""
    cold, warm = controller(sampling_temperature=0.2), controller(sampling_temperature=1.0)
    assert played(cold, 0, deterministic=True).actions == played(warm, 0, deterministic=True).actions
    lengths = [[len(played(player, seed, deterministic=False).actions) for seed in range(8)] for player in (cold, warm)]
    assert sum(lengths[0]) > sum(lengths[1])  # NO-OP, at a logit of -1, ends fewer episodes
    with pytest.raises(ValueError, match="sampling temperature is 0"):
        controller(sampling_temperature=0.0)


def test_a_checkpoint_of_another_graph_is_refused(tmp_path: Path) -> None:
    controller().save(tmp_path / "controller")
    other: TinyWorld = independent_sites(np.ones((1, 2)))
    stranger = PpoController(other.policy(), CONFIG, view=lambda env: env)
    with pytest.raises(StoredControllerError, match="trained for another graph"):
        stranger.load(tmp_path / "controller")


@pytest.mark.parametrize("version", [None, 1, FORMAT_VERSION + 1])
def test_a_checkpoint_of_another_format_is_refused(version: int | None, tmp_path: Path) -> None:
    """Files of before there were versions have none; the first one knew all rules of the rule set."""
    player, path = controller(), tmp_path / "controller"
    arrays = stored(player, path)
    found = arrays.pop("format_version")
    assert found == FORMAT_VERSION
    write_arrays(path, arrays if version is None else {**arrays, "format_version": np.array(version)})
    with pytest.raises(StoredControllerError, match=rf"format {version or 0}, expected {FORMAT_VERSION}.*--run-dir"):
        player.load(path)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_damaged_checkpoint_is_refused(left: float, tmp_path: Path) -> None:
    player, path = controller(), tmp_path / "controller"
    player.save(path)
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    with pytest.raises(StoredControllerError, match="missing or damaged"):
        player.load(path)


GOLDEN = Path(__file__).parent / "goldens" / "ppo_v2.npz"
GOLDEN_LOG_PROBS, GOLDEN_VALUE = [-1.120252, -1.08115, -1.141227, -4.188415], -0.381760
GOLDEN_WORLD = independent_sites(np.array([[1.0, 2.0, -1.0]]))


def golden_controller() -> PpoController:
    small = PolicyConfig(torso=(4,), width=2, mask_width=2)
    config = PpoConfig(updates=2, batch=8, horizon=3)
    return PpoController(GOLDEN_WORLD.policy(seed=1, config=small), config, view=lambda env: env, seed=1)


def test_a_checkpoint_of_long_ago_acts_as_it_did() -> None:
    """Stored by this format's first program: `golden_controller()`, trained in `GOLDEN_WORLD`."""
    player = golden_controller()
    player.load(GOLDEN)
    assert player.num_updates == 2
    distribution, value = player.policy.distribution_and_value(GOLDEN_WORLD.observe(tf.constant([0])))
    log_probs = [float(distribution.log_prob(tf.constant([action]))[0]) for action in range(4)]
    assert log_probs == pytest.approx(GOLDEN_LOG_PROBS, abs=1e-5)
    assert float(value[0]) == pytest.approx(GOLDEN_VALUE, abs=1e-5)
