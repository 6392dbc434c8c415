from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest
import tensorflow as tf

from controller.interface import StoredControllerError
from controller.policies.latent import LatentPolicy
from controller.ppo.config import PpoConfig
from controller.ppo.learner import PpoLearner, Schedule, gains_of_the_best
from tests.controller.tiny_worlds import TinyWorld, detour, independent_sites

QUICK = PpoConfig(updates=30, batch=64, horizon=6, learning_rate=1e-2, minibatches=4)
MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
HARMFUL = independent_sites(-np.ones((2, 3)))


def train(
    world: TinyWorld, policy: LatentPolicy, learner: PpoLearner, config: PpoConfig, updates: int
) -> list[dict[str, float]]:
    metrics = []
    for update in range(learner.num_updates, updates):
        rollout = world.rollout(policy, batch=config.batch, horizon=config.horizon, seed=update)
        metrics.append(learner.update(rollout))
    return metrics


@pytest.mark.parametrize(
    "world", [pytest.param(MIXED, marks=pytest.mark.full), HARMFUL, detour()], ids=["mixed", "harmful", "detour"]
)
def test_learns_the_optimum(world: TinyWorld) -> None:
    policy = world.policy()
    metrics = train(world, policy, PpoLearner(policy, QUICK), QUICK, QUICK.updates)
    actions, total = world.play(policy, QUICK.horizon)
    assert total == pytest.approx(world.best_return(QUICK.horizon))
    if world is HARMFUL:
        assert actions == [len(world.rules)]  # NO-OP at once
    # The first pass of every update sees the policy that acted, under the masks that it acted under; the tolerance is
    # float32 rounding of differently batched products.
    assert max(each["first_ratio_error"] for each in metrics) < 1e-5
    assert metrics[0]["divergence"] > 1e-5  # later passes move the policy


def test_a_step_earns_what_it_raises_the_best_sum_by() -> None:
    rewards = np.array([[-5.0, 2.0], [8.0, -1.0], [-2.0, 1.0], [1.0, 0.5], [0.0, 0.0]], np.float32)
    expected = [[0.0, 2.0], [3.0, 0.0], [0.0, 0.0], [0.0, 0.5], [0.0, 0.0]]
    np.testing.assert_allclose(gains_of_the_best(tf.constant(rewards)), expected, atol=1e-6)


def test_a_step_also_earns_a_share_of_its_reward() -> None:
    """Without critic and discount, the first step has the advantage that all steps of its row have earned."""
    config = PpoConfig(goal="best", reward_share=0.5, reward_scaling=False, discount=1.0, trace_decay=1.0, horizon=2)
    world = independent_sites(np.array([[3.0, -2.0]]))
    policy = world.policy()
    played = world.rollout(policy, batch=32, horizon=2, seed=0)
    schedule = Schedule(*(tf.constant(0.0) for _ in Schedule._fields))
    found = PpoLearner(policy, config)._targets(played._replace(value=tf.zeros_like(played.value)), schedule)
    rewards = played.reward.numpy()
    expected = np.maximum(0.0, rewards.cumsum(axis=0).max(axis=0)) + 0.5 * rewards.sum(axis=0)
    first = found.rows.numpy() < 32
    np.testing.assert_allclose(found.returns.numpy()[first], expected, atol=1e-5)


@pytest.mark.parametrize("goal", ["last", "best"])
def test_what_costs_is_avoided_after_the_best_only_if_the_last_graph_counts(goal: Literal["last", "best"]) -> None:
    world = independent_sites(np.array([[1.0, 1.0, 1.0, -3.0]]))
    config = dataclasses.replace(QUICK, goal=goal)
    policy = world.policy()
    train(world, policy, PpoLearner(policy, config), config, config.updates)
    actions, total = world.play(policy, config.horizon)
    assert set(actions[:3]) == {0, 1, 2}
    assert total == (3.0 if goal == "last" else 3.0 - 3.0 * (3 in actions))


def test_the_detour_does_not_pay_at_first() -> None:
    """Greedy play takes the other way and earns less, so only planning finds the detour."""
    world = detour()
    assert world.rewards[0].max() > 0 > world.rewards[0, 1]
    assert world.best_return(1) == world.best_return(2) < world.best_return(3)


@pytest.mark.usefixtures("untraced")
def test_the_ratio_shows_a_mask_that_acting_did_not_have() -> None:
    policy = MIXED.policy()
    played = MIXED.rollout(policy, batch=64, horizon=6, seed=0)
    metrics = PpoLearner(policy, QUICK, seed=0).update(played._replace(legal=tf.ones_like(played.legal)))
    assert metrics["first_ratio_error"] > 0.1


def test_a_state_of_another_structure_is_refused() -> None:
    state = PpoLearner(MIXED.policy(), QUICK).state()
    other = detour()
    with pytest.raises(StoredControllerError, match="trained for another graph"):
        PpoLearner(other.policy(), QUICK).restore(state)


@pytest.mark.usefixtures("untraced")
def test_rewards_may_have_any_unit() -> None:
    """Scaling makes learning itself, not just its optimum, independent of the unit; a power of two makes this exact."""
    policies = [MIXED.policy() for _ in range(2)]
    played = MIXED.rollout(policies[0], batch=64, horizon=6, seed=0)
    larger = played._replace(reward=played.reward * 1024.0)
    for policy, lived in zip(policies, (played, larger), strict=True):
        PpoLearner(policy, QUICK).update(lived)
    for weight, other in zip(policies[0].variables, policies[1].variables, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_more_minibatches_than_steps_and_clipped_values_train() -> None:
    config = dataclasses.replace(QUICK, minibatches=1000, target_divergence=None)
    policy = MIXED.policy()
    (metrics,) = train(MIXED, policy, PpoLearner(policy, config), config, 1)
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["passes"] == QUICK.epochs


@pytest.mark.usefixtures("untraced")
def test_the_gradient_norm_is_that_before_it_was_bounded() -> None:
    norms = []
    for bound in (1e-3, 1e3):
        config = dataclasses.replace(QUICK, epochs=1, minibatches=1, gradient_norm=bound)
        policy = MIXED.policy()
        norms += [each["gradient_norm"] for each in train(MIXED, policy, PpoLearner(policy, config), config, 1)]
    assert norms[0] == pytest.approx(norms[1]) and norms[0] > 1e-3


@pytest.mark.usefixtures("untraced")
def test_passes_stop_once_the_policy_has_moved_too_far() -> None:
    config = dataclasses.replace(QUICK, target_divergence=1e-9)
    policy = MIXED.policy()
    assert train(MIXED, policy, PpoLearner(policy, config), config, 1)[0]["passes"] == 1


@pytest.mark.parametrize(("name", "value"), [("updates", 0), ("discount", 1.5), ("clip", 0.0), ("reward_share", -0.5)])
def test_impossible_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        PpoConfig(**{name: value})


def test_schedules_start_and_end_where_asked() -> None:
    rates = {"learning_rate": 8e-3, "last_learning_rate": 2e-4, "decay_power": 2.0}
    config = PpoConfig(updates=11, rule_entropy=(0.1, 0.0), **rates)
    rates = [config.learning_rate_at(update) for update in range(11)]
    assert rates[0] == 8e-3
    assert rates[-1] == 2e-4
    assert rates[5] == pytest.approx(2e-4 + (8e-3 - 2e-4) / 4)
    assert [config.entropy_weights_at(update)[0] for update in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0])
