from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from controller.policies.hierarchical import MASKED, MAX_LOGIT, HierarchicalCategorical, OwnActions, SharedActions

NUM_RULES = 4  # the last is NO-OP, with one action
RULES = np.array([0, 2, 0, 1, 2, 2, 3])
BATCH, ACTIONS = 5, len(RULES)
SHARED, OWN = "shared", "own"


def logits(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rule logits, location logits, mask. NO-OP is always legal; row 0 has nothing else, row 1 has everything."""
    rng = np.random.default_rng(seed)
    mask = rng.random((BATCH, ACTIONS)) < 0.5
    mask[0], mask[1], mask[:, -1] = False, True, True
    rule_logits = 2 * rng.standard_normal((BATCH, NUM_RULES))
    return rule_logits.astype(np.float32), 2 * rng.standard_normal((BATCH, ACTIONS)).astype(np.float32), mask


def distribution(seed: int, grouping: str = SHARED, **options: float) -> HierarchicalCategorical:
    rule_logits, location_logits, mask = (tf.constant(field) for field in logits(seed))
    if grouping == SHARED:
        groups = SharedActions(RULES, NUM_RULES)
    else:
        groups = OwnActions(tf.constant(np.tile(RULES, (BATCH, 1)), tf.int32), NUM_RULES)
    return HierarchicalCategorical(rule_logits, location_logits, mask, groups, **options)


def all_log_probs(policy: HierarchicalCategorical) -> np.ndarray:
    return np.stack([policy.log_prob(tf.fill([BATCH], action)).numpy() for action in range(ACTIONS)], axis=1)


def by_definition(seed: int, temperature: float = 1.0) -> np.ndarray:
    """Probabilities [BATCH, ACTIONS] with loops over everything."""
    rule_logits, location_logits, mask = logits(seed)
    squashed = MAX_LOGIT * np.tanh(location_logits / MAX_LOGIT) / temperature
    probabilities = np.zeros((BATCH, ACTIONS))
    for row in range(BATCH):
        legal_rules = sorted(set(RULES[mask[row]]))
        of_rule = np.exp(rule_logits[row] / temperature)[legal_rules]
        for rule, share in zip(legal_rules, of_rule / of_rule.sum(), strict=True):
            actions = np.flatnonzero((rule == RULES) & mask[row])
            of_location = np.exp(squashed[row, actions])
            probabilities[row, actions] = share * of_location / of_location.sum()
    return probabilities


@pytest.mark.parametrize("grouping", [SHARED, OWN])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_probabilities_equal_the_definition(grouping: str, temperature: float) -> None:
    for seed in range(4):
        found = np.exp(all_log_probs(distribution(seed, grouping, temperature=temperature)))
        np.testing.assert_allclose(found, by_definition(seed, temperature), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("grouping", [SHARED, OWN])
def test_illegal_actions_have_no_probability_and_legal_ones_all_of_it(grouping: str) -> None:
    mask = logits(0)[2]
    log_probs = all_log_probs(distribution(0, grouping))
    assert (log_probs[~mask] == np.float32(MASKED)).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("grouping", [SHARED, OWN])
def test_entropies_sum_to_the_entropy_of_the_joint_distribution(grouping: str) -> None:
    of_rule, of_location = distribution(2, grouping).entropies()
    joint = by_definition(2)
    expected = -np.sum(joint * np.log(np.where(joint > 0, joint, 1.0)), axis=1)
    np.testing.assert_allclose(of_rule + of_location, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([of_rule[0], of_location[0]], 0.0, atol=1e-6)  # nothing to choose


@pytest.mark.parametrize("grouping", [SHARED, OWN])
def test_samples_are_legal_and_as_frequent_as_they_are_likely(grouping: str) -> None:
    """False alarm: 5σ on each of 35 frequencies, below 1e-4 in all."""
    policy, mask, draws = distribution(3, grouping), logits(3)[2], 4000
    sample = tf.function(policy.sample)
    actions = np.stack([sample(tf.constant([9, i])).numpy() for i in range(draws)])
    counts = np.stack([(actions == action).sum(axis=0) for action in range(ACTIONS)], axis=1)
    assert not counts[~mask].any()
    expected = by_definition(3)
    deviation = np.abs(counts / draws - expected)
    assert (deviation <= 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-6).all()


@pytest.mark.parametrize("grouping", [SHARED, OWN])
def test_mode_is_the_likeliest_rule_then_its_likeliest_location(grouping: str) -> None:
    for seed in range(4):
        joint = by_definition(seed)
        of_rule = np.stack([joint[:, rule == RULES].sum(axis=1) for rule in range(NUM_RULES)], axis=1)
        best_rule = of_rule.argmax(axis=1)
        expected = np.where(best_rule[:, None] == RULES, joint, -1.0).argmax(axis=1)
        np.testing.assert_array_equal(distribution(seed, grouping).mode(), expected)


def test_low_temperature_samples_the_mode() -> None:
    """False alarm: below 5 · 0.001, and the seeds are fixed."""
    policy = distribution(5, temperature=0.2)
    sharp = by_definition(5, temperature=0.2)
    sure = sharp.max(axis=1) > 0.999
    assert sure.any()
    np.testing.assert_array_equal(policy.sample(tf.constant([1, 2])).numpy()[sure], policy.mode().numpy()[sure])


def test_equal_seeds_give_equal_samples_and_others_do_not() -> None:
    policy = distribution(1)
    draws = [policy.sample(tf.constant([0, i])).numpy().tolist() for i in (1, 1, 2, 3, 4)]
    assert draws[0] == draws[1]
    assert len({tuple(draw) for draw in draws}) > 1


@pytest.mark.parametrize("grouping", [SHARED, OWN])
def test_gradients_are_finite_where_rules_are_masked_and_logits_extreme(grouping: str) -> None:
    rule_logits, location_logits, mask = logits(0)
    weights = [tf.Variable(100 * rule_logits), tf.Variable(1000 * location_logits)]
    if grouping == SHARED:
        groups = SharedActions(RULES, NUM_RULES)
    else:
        groups = OwnActions(tf.constant(np.tile(RULES, (BATCH, 1)), tf.int32), NUM_RULES)
    with tf.GradientTape() as tape:
        policy = HierarchicalCategorical(weights[0], weights[1], tf.constant(mask), groups)
        loss = tf.reduce_sum(policy.log_prob(policy.mode())) + tf.add_n([tf.reduce_sum(e) for e in policy.entropies()])
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(loss, weights))
