from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from controller.policies.latent import LatentPolicy
from controller.ppo.config import PolicyConfig
from tests.controller.tiny_worlds import independent_sites
from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.trajectory import LatentObservation

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
    """The location distributions of two rules at the same sites must be able to differ."""
    policy = WORLD.policy(seed=1)
    observation = WORLD.observe(tf.constant([0, 0]))
    targets = tf.constant([0, 5])  # rule 0 at site 0, rule 1 at site 2
    # The table of biases is left out, because it could do this alone.
    weights = [weight for weight in policy.trainable_variables if "bias" not in weight.name]

    @tf.function
    def descend() -> tf.Tensor:
        with tf.GradientTape() as tape:
            log_probs = policy.distribution_and_value(observation)[0].log_prob(targets)
            loss = -tf.reduce_sum(log_probs)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            if gradient is not None:  # the weights of the value have none
                weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return tf.exp(log_probs)

    for _ in range(150):
        found = descend()
    assert found.numpy().min() > 0.4  # at most 0.5 is possible


def test_it_knows_the_rules_of_its_world_model_alone() -> None:
    """Only few of the hundreds of rules in a rule set match anywhere in one graph."""
    table = ActionTable.of_codes(pack(np.array([[3, 5], [3, 7], [40, 5]])), num_rules=440)
    world_model = SimpleNamespace(table=table, latent_size=2, hidden_size=1)
    policy = LatentPolicy.for_world_model(world_model, config=PolicyConfig(noop_logit=0.0), seed=0)  # type: ignore[arg-type]
    seen = LatentObservation(tf.zeros([1, 2]), tf.zeros([1, 1]), tf.ones([1, 4], tf.bool))
    distribution, _ = policy.distribution_and_value(seen)
    first, second, third, noop = (float(tf.exp(distribution.log_prob(tf.constant([action])))[0]) for action in range(4))
    np.testing.assert_allclose([first + second, third, noop], np.full(3, 1 / 3), atol=0.02)


def test_an_untrained_policy_carries_a_rule_out_everywhere_as_often_as_at_one_of_its_sites() -> None:
    """This holds for any number of legal sites, in the table and in a list of candidates."""
    sites, everywhere = 50, 60
    pairs = [[3, site] for site in (*range(sites), everywhere)]
    table = ActionTable.of_codes(pack(np.array(pairs)), num_rules=9, everywhere=everywhere)
    world_model = SimpleNamespace(table=table, latent_size=2, hidden_size=1)
    policy = LatentPolicy.for_world_model(world_model, config=PolicyConfig(), seed=0)  # type: ignore[arg-type]
    features = tf.zeros([1, 3])
    for legal in (2, 50):
        actions = np.array([*range(legal), sites])
        mask = np.isin(np.arange(sites + 2), actions)[np.newaxis]
        for distribution, place in (
            (policy.head.over_table(features, tf.constant(mask))[0], sites),
            (policy.head.over_candidates(features, actions[np.newaxis], np.ones((1, legal + 1), bool))[0], legal),
        ):
            probability = float(tf.exp(distribution.log_prob(tf.constant([place])))[0])
            assert probability == pytest.approx(0.5, abs=0.08)  # the bound on logits takes a little from large numbers


def test_a_policy_of_single_sites_counts_rewrites_everywhere_as_illegal() -> None:
    table = ActionTable.of_codes(pack(np.array([[3, 0], [3, 1], [3, 60], [4, 0]])), num_rules=9, everywhere=60)
    world_model = SimpleNamespace(table=table, latent_size=2, hidden_size=1)
    for kind in ("hierarchical", "four-networks"):
        config = PolicyConfig(head=kind, everywhere="never")  # type: ignore[arg-type]
        policy = LatentPolicy.for_world_model(world_model, config=config, seed=0)  # type: ignore[arg-type]
        seen = LatentObservation(tf.zeros([1, 2]), tf.zeros([1, 1]), tf.ones([1, 5], tf.bool))
        found = np.exp(policy.distribution_and_value(seen)[0].all_log_probs().numpy())[0]
        assert found.sum() == pytest.approx(1.0, abs=1e-5) and (found > 0).tolist() == [*~table.is_everywhere]


def test_policies_take_turns_in_rewriting_everywhere() -> None:
    rounds = [PolicyConfig(everywhere="by-turns").of_round(number).everywhere for number in range(4)]
    assert rounds == ["always", "never", "always", "never"]
    for fixed in (PolicyConfig(), PolicyConfig(everywhere="never")):
        assert fixed.of_round(1) == fixed
