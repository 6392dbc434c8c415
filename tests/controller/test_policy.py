from __future__ import annotations

import numpy as np
import tensorflow as tf
from tiny_worlds import independent_sites

from controller.policy_config import PolicyConfig

WORLD = independent_sites(np.ones((2, 3)))
STATES = tf.constant([0, 1, 5, 0b111000, 0b111110, 0b111111])


def probabilities(seed: int, **config: float) -> np.ndarray:
    policy = WORLD.policy(seed=seed, config=PolicyConfig(torso=(16,), width=4, mask_width=4, **config))
    chosen = policy.distribution_and_value(WORLD.observe(STATES))[0]
    actions = range(len(WORLD.rules) + 1)
    return np.exp(np.stack([chosen.log_prob(tf.fill([len(STATES)], action)) for action in actions], axis=1))


def test_starts_nearly_uniform_over_rules_then_over_locations() -> None:
    found = probabilities(seed=0, noop_logit=0.0)
    legal = WORLD.legal[STATES.numpy()]
    for row, mask in enumerate(legal):
        counts = np.bincount(WORLD.rules[mask], minlength=2)
        share = 1.0 / (1 + np.count_nonzero(counts))  # the rules that are legal, and NO-OP
        expected = np.append(np.where(mask, share / np.maximum(counts, 1)[WORLD.rules], 0.0), share)
        np.testing.assert_allclose(found[row], expected, atol=0.02)


def test_noop_starts_as_rare_as_asked() -> None:
    assert probabilities(seed=0, noop_logit=-4.0)[:3, -1].max() < np.exp(-4.0)
    np.testing.assert_allclose(probabilities(seed=0, noop_logit=-4.0)[-1, -1], 1.0)  # nothing else is legal


def test_equal_seeds_give_equal_policies_and_others_do_not() -> None:
    np.testing.assert_array_equal(probabilities(seed=3), probabilities(seed=3))
    assert (probabilities(seed=3) != probabilities(seed=4)).any()


def test_the_location_depends_on_the_rule_chosen() -> None:
    """Two rules at the same sites: their location distributions must be able to differ."""
    policy = WORLD.policy(seed=1)
    observation = WORLD.observe(tf.constant([0, 0]))
    targets = tf.constant([0, 5])  # rule 0 at site 0, rule 1 at site 2
    # Without the table of biases, which could do it alone.
    weights = [weight for weight in policy.trainable_variables if "bias" not in weight.name]

    @tf.function
    def descend() -> tf.Tensor:
        with tf.GradientTape() as tape:
            log_probs = policy.distribution_and_value(observation)[0].log_prob(targets)
            loss = -tf.reduce_sum(log_probs)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            if gradient is not None:  # the value's
                weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return tf.exp(log_probs)

    for _ in range(150):
        found = descend()
    assert found.numpy().min() > 0.4  # of 0.5 that are possible
