"""A policy that is transferred to another action table decides alike about what the two tables share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from controller.interface import StoredControllerError
from controller.policies.latent import LatentPolicy
from controller.policies.transfer import warm_start
from controller.ppo.config import PolicyConfig
from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.trajectory import LatentObservation

NUM_RULES, LATENT, HIDDEN = 5, 4, 6
CONFIG = PolicyConfig(torso=(16, 16), width=8, mask_width=8)


def table_of(*pairs: tuple[int, int]) -> ActionTable:
    return ActionTable.of_codes(pack(np.array(pairs)), NUM_RULES)


def policy_over(table: ActionTable, seed: int) -> LatentPolicy:
    """Returns a policy with random weights, because many weights of a fresh policy are zero."""
    _, rules = np.unique(table.rules, return_inverse=True)
    policy = LatentPolicy(rules, table.sites, latent_size=LATENT, hidden_size=HIDDEN, config=CONFIG, seed=seed)
    rng = np.random.default_rng(seed)
    for variable in policy.variables:
        variable.assign(rng.normal(size=variable.shape))
    return policy


def decided(policy: LatentPolicy, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the log-probabilities of all actions in one state and the repeated value of the state, both [A + 1]."""
    rng = np.random.default_rng(7)
    z, h = (tf.constant(rng.normal(size=(1, width)), tf.float32) for width in (LATENT, HIDDEN))
    rows = len(mask)
    observation = LatentObservation(*(tf.repeat(each, rows, axis=0) for each in (z, h, mask[np.newaxis])))
    distribution, value = policy.distribution_and_value(observation)
    return distribution.log_prob(tf.range(rows)).numpy(), value.numpy()


TABLE = table_of((0, 1), (0, 4), (1, 1), (3, 4), (3, 9))


def test_the_same_table_gives_the_same_policy() -> None:
    source, target = policy_over(TABLE, 1), policy_over(TABLE, 2)
    mask = np.array([True, True, False, True, True, True])
    warm_start(source, TABLE, target, TABLE)
    for expected, got in zip(decided(source, mask), decided(target, mask), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_sites_are_known_by_their_rules_wherever_they_are() -> None:
    """The other table is of the same graph with its operators renumbered; no two sites have the same set of rules."""
    moved = {1: 30, 4: 20, 9: 10}
    pairs = np.stack([TABLE.rules[:-1], [moved[int(site)] for site in TABLE.locations[:-1]]], axis=1)
    other = table_of(*map(tuple, pairs))  # type: ignore[arg-type]
    source, target = policy_over(TABLE, 1), policy_over(other, 2)
    warm_start(source, TABLE, target, other)
    mask = np.array([True, False, True, True, True, True])
    places = np.append(other.encode(pairs), other.num_actions)
    (expected, value), (got, other_value) = decided(source, mask), decided(target, mask[np.argsort(places)])
    np.testing.assert_allclose(got[places], expected, rtol=1e-4)
    assert other_value[0] == pytest.approx(value[0], rel=1e-4)


def test_more_rules_and_sites_are_no_obstacle_and_nothing_of_the_source_changes() -> None:
    other = table_of((0, 2), (0, 5), (1, 2), (2, 2), (3, 5), (3, 6), (4, 7))
    source, target = policy_over(TABLE, 1), policy_over(other, 2)
    before = [variable.numpy() for variable in source.variables]
    warm_start(source, TABLE, target, other)
    log_probs, value = decided(target, np.ones(other.num_actions + 1, bool))
    assert np.exp(log_probs).sum() == pytest.approx(1, rel=1e-4) and np.isfinite(value).all()
    for variable, expected in zip(source.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), expected)
    new = target.head.table_weights
    np.testing.assert_array_equal(new.rules.numpy()[:, [2, 4]], 0)  # rules 2 and 4 are new and start untrained
    np.testing.assert_array_equal(new.gates.numpy()[[2, 4]], 1)


def test_four_networks_are_not_transferred() -> None:
    config = dataclasses.replace(CONFIG, head="four-networks")
    _, rules = np.unique(TABLE.rules, return_inverse=True)
    source, target = (
        LatentPolicy(rules, TABLE.sites, latent_size=LATENT, hidden_size=HIDDEN, config=config, seed=seed)
        for seed in (1, 2)
    )
    with pytest.raises(StoredControllerError, match="plays only on the graph that it was trained on"):
        warm_start(source, TABLE, target, TABLE)
