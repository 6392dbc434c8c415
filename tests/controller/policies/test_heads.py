"""All heads keep one contract: only legal actions, one policy for table and candidates, and the optimum is learned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from controller.evaluation import play_episode
from controller.interface import StoredControllerError
from controller.policies.graph import GraphPolicy
from controller.policies.head import make_head
from controller.policies.hierarchical import HierarchicalCategorical
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from controller.ppo.learner import PpoLearner
from controller.worlds.graph_view import GraphObservation, GraphView
from controller.worlds.real import RealWorld
from environment import GraphSubstitutionEnv
from tests.controller.exhaustive import best_improvement
from tests.controller.joined import joined
from tests.controller.shared_product import READERS, shared_product
from tests.controller.tiny_worlds import TinyWorld, detour, independent_sites
from worldmodel.config import EncoderConfig

OF_TABLES = ("hierarchical", "four-networks")
HEADS = (*OF_TABLES, "pointer")
ENCODER = EncoderConfig(latent=4, hidden=8, edge_hidden=4, rounds=1)
SMALL = PolicyConfig(torso=(16,), width=4, mask_width=4)
RULES, SITES = np.array([0, 0, 0, 1, 2, 2, 2, 3]), np.array([0, 1, 3, 1, 0, 2, 3, 4])
EVERYWHERE = SITES == 3
BATCH, NODES = 5, 6
MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))


def log_probs_of(distribution: HierarchicalCategorical, actions: int) -> np.ndarray:
    rows = tf.zeros([BATCH], tf.int32)
    return np.stack([distribution.log_prob(rows + action).numpy() for action in range(actions)], axis=1)


def problem(seed: int = 0) -> tuple[tf.Tensor, np.ndarray, tf.Tensor]:
    """Returns features [BATCH, 7], masks [BATCH, A + 1] with NO-OP, and an embedding [BATCH, A + 1, NODES] of nodes."""
    rng = np.random.default_rng(seed)
    mask = rng.random((BATCH, len(RULES))) < 0.6
    mask[:, -1] = True
    nodes = rng.standard_normal((BATCH, len(RULES), NODES))
    return tf.constant(rng.standard_normal((BATCH, 7)), tf.float32), mask, tf.constant(nodes, tf.float32)


@pytest.mark.parametrize("head", OF_TABLES)
def test_table_and_candidates_are_one_policy(head: str) -> None:
    """Candidates are the legal actions in any order, with padding between them."""
    features, mask, _ = problem()
    config = dataclasses.replace(SMALL, head=head)
    network = make_head(RULES, SITES, config, np.random.default_rng(1), EVERYWHERE)
    table, value = network.over_table(features, tf.constant(mask))
    order = np.random.default_rng(2).permutation(len(RULES))
    own, own_value = network.over_candidates(features, tf.constant(np.tile(order, (BATCH, 1))), mask[:, order])
    expected = log_probs_of(table, len(RULES))
    np.testing.assert_allclose(log_probs_of(own, len(RULES)), expected[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own_value, value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(expected).sum(axis=1), 1.0, rtol=1e-5)
    assert (expected[~mask] < -1e8).all()
    for one, other in zip(table.entropies(), own.entropies(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    if network.has_location_critic:
        legal = np.array([np.flatnonzero(row)[0] for row in mask])
        places = np.array([list(order).index(action) for action in legal])
        expected = table.location_value(tf.constant(legal, tf.int32))
        np.testing.assert_allclose(own.location_value(tf.constant(places, tf.int32)), expected, rtol=1e-4)


def test_permuted_candidates_have_permuted_probabilities_of_the_pointer() -> None:
    """There is no other trace of their order, and none of how much padding there is."""
    features, mask, nodes = problem()
    network = make_head(RULES, SITES, dataclasses.replace(SMALL, head="pointer"), np.random.default_rng(1), EVERYWHERE)
    actions = np.tile(np.arange(len(RULES)), (BATCH, 1))
    network.over_candidates(features, actions, mask, nodes)  # creates the weights
    network._score.w.assign(np.random.default_rng(3).standard_normal(network._score.w.shape))  # scores that differ
    before, value = network.over_candidates(features, actions, mask, nodes)
    expected = log_probs_of(before, len(RULES))
    order = np.random.default_rng(2).permutation(len(RULES))
    pad = ((0, 0), (0, 3))
    after, other_value = network.over_candidates(
        features,
        tf.constant(np.pad(actions[:, order], pad)),
        tf.constant(np.pad(mask[:, order], pad)),
        tf.constant(np.pad(nodes.numpy()[:, order], (*pad, (0, 0)))),
    )
    np.testing.assert_allclose(log_probs_of(after, len(RULES)), expected[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other_value, value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(expected).sum(axis=1), 1.0, rtol=1e-5)
    assert np.ptp(expected[0][mask[0]]) > 0.5, "a policy without preferences would pass, whatever the order"


@pytest.mark.parametrize("head", HEADS)
def test_untrained_heads_are_uniform_over_rules_then_over_locations(head: str) -> None:
    features, mask, nodes = problem(4)
    config = dataclasses.replace(SMALL, head=head, noop_logit=0.0)
    network = make_head(RULES, SITES, config, np.random.default_rng(1))
    actions = np.tile(np.arange(len(RULES)), (BATCH, 1))
    found = np.exp(log_probs_of(network.over_candidates(features, actions, mask, nodes)[0], len(RULES)))
    for row, legal in enumerate(mask):
        counts = np.bincount(RULES[legal], minlength=4)
        expected = legal / np.maximum(counts[RULES], 1) / np.count_nonzero(counts)
        np.testing.assert_allclose(found[row], expected, atol=0.03)


@pytest.mark.parametrize("world", [pytest.param(MIXED, marks=pytest.mark.full), detour()], ids=["mixed", "detour"])
def test_four_networks_learn_the_optimum(world: TinyWorld) -> None:
    """The shared trunk does so in `tests.controller.ppo.test_learner`."""
    config = PpoConfig(updates=30, batch=64, horizon=6, learning_rate=1e-2)
    policy = world.policy(config=PolicyConfig(head="four-networks", torso=(32, 32), noop_logit=0.0))
    learner, errors = PpoLearner(policy, config), []
    for update in range(config.updates):
        played = world.rollout(policy, batch=config.batch, horizon=config.horizon, seed=update)
        errors.append(learner.update(played)["first_ratio_error"])
    assert world.play(policy, config.horizon)[1] == pytest.approx(world.best_return(config.horizon))
    assert max(errors) < 1e-5


@pytest.mark.usefixtures("untraced")
def test_the_ratio_of_two_choices_shows_a_mask_that_acting_did_not_have() -> None:
    policy = MIXED.policy(config=PolicyConfig(head="four-networks", torso=(8,)))
    played = MIXED.rollout(policy, batch=16, horizon=6, seed=0)
    metrics = PpoLearner(policy, PpoConfig(epochs=1)).update(played._replace(legal=tf.ones_like(played.legal)))
    assert metrics["first_ratio_error"] > 0.1


def test_a_pointer_cannot_be_asked_to_act_on_latents() -> None:
    with pytest.raises(ValueError, match="a dream has no nodes: train it in the real environment"):
        MIXED.policy(config=dataclasses.replace(SMALL, head="pointer"))


def ratio_errors(controller: PpoController, steps: int) -> list[float]:
    """Trains a controller where a rule pays only if it is carried out everywhere; returns the ratios' first errors."""
    errors: list[float] = []
    world = RealWorld(lambda: shared_product(max_steps=steps))
    controller.train(world, on_progress=lambda done, total, metrics: errors.append(metrics["first_ratio_error"]))
    return errors


def model_free(head: str, env: GraphSubstitutionEnv, updates: int) -> PpoController:
    steps = env.max_steps
    config = PpoConfig(updates=updates, batch=8, horizon=steps, epochs=2, minibatches=1, learning_rate=3e-2)
    return PpoController.for_real(env, config, dataclasses.replace(SMALL, head=head), ENCODER, seed=0)


@pytest.mark.usefixtures("untraced")
def test_four_networks_act_and_learn_on_graphs_under_the_same_masks() -> None:
    assert max(ratio_errors(model_free("four-networks", shared_product(max_steps=2), updates=2), 2)) < 1e-4


def test_the_pointer_learns_model_free() -> None:
    env = shared_product(max_steps=2)
    controller = model_free("pointer", env, updates=20)
    assert max(ratio_errors(controller, 2)) < 1e-4
    optimum = best_improvement(shared_product(everywhere=False, max_steps=READERS))
    found = play_episode(env, controller, seed=0, deterministic=True).improvement
    assert found == pytest.approx(optimum, abs=1e-6) and found > 0


def graph_policy(env: GraphSubstitutionEnv, head: str = "pointer") -> GraphPolicy:
    return GraphPolicy(env, ENCODER, dataclasses.replace(SMALL, head=head), seed=0)


def test_a_policy_embeds_nodes_that_see_the_same_once_for_all_states() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", everywhere=True)
    policy = GraphPolicy(env, dataclasses.replace(ENCODER, kind="interaction"), SMALL, seed=0)
    view = policy.view(env)
    seen = [view.reset(seed=0)[0], *(view.step(action)[0] for action in (0, 3, 1))]
    batch = joined(seen)
    colours = batch.colours.flat_values
    assert len(np.unique(colours)) < len(colours) / 2
    apart = batch._replace(colours=batch.colours.with_flat_values(tf.range(len(colours), dtype=tf.int64)))
    (shared, values), (alone, others) = (policy.distribution_and_value(each) for each in (batch, apart))
    np.testing.assert_allclose(values, others, atol=1e-5)
    chosen = tf.zeros(len(seen), tf.int32)
    np.testing.assert_allclose(shared.log_prob(chosen), alone.log_prob(chosen), atol=1e-5)


@pytest.mark.parametrize("head", ["hierarchical", "four-networks", "pointer"])
def test_on_graphs_too_a_policy_of_single_sites_counts_rewrites_everywhere_as_illegal(head: str) -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", everywhere=True)
    config = dataclasses.replace(SMALL, head=head, everywhere="never")
    policy = GraphPolicy(env, ENCODER, config, seed=0)
    seen = policy.view(env).reset(seed=0)[0]
    places = seen.candidates[0].numpy() % env.num_places
    everywhere = places == env.num_locations
    everywhere[-1] = False  # NO-OP
    found = np.exp(policy.distribution_and_value(seen)[0].all_log_probs().numpy())[0]
    assert everywhere.any() and found.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_array_equal(found > 0, ~everywhere)


def permuted(seen: GraphObservation, order: np.ndarray) -> GraphObservation:
    """Returns the observation of one state with its candidates in another order."""
    pairs = seen.rewritten.flat_values.numpy()
    pairs = np.stack([np.argsort(order)[pairs[:, 0]], pairs[:, 1]], axis=1)
    pairs = pairs[np.lexsort(pairs.T[::-1])].astype(np.int32)
    return seen._replace(
        candidates=seen.candidates.with_flat_values(tf.gather(seen.candidates.flat_values, order)),
        rewritten=seen.rewritten.with_flat_values(tf.constant(pairs)),
    )


def test_the_pointer_reads_which_nodes_a_candidate_rewrites_and_not_its_place() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    policy, (seen, _) = graph_policy(env), GraphView(env).reset()
    for variable in policy.trainable_variables:
        variable.assign(variable + 0.3 * np.random.default_rng(0).standard_normal(variable.shape))
    count = len(seen.candidates[0])

    def probabilities(observation: GraphObservation) -> np.ndarray:
        rows = tf.nest.map_structure(lambda field: tf.concat([field] * count, axis=0), observation)
        return np.exp(policy.distribution_and_value(rows)[0].log_prob(tf.range(count)))

    expected, order = probabilities(seen), np.random.default_rng(1).permutation(count)
    np.testing.assert_allclose(probabilities(permuted(seen, order)), expected[order], rtol=1e-3, atol=1e-6)
    rules = seen.candidates[0].numpy() // env.num_places
    assert any(np.ptp(expected[rules == rule]) > 1e-4 for rule in np.unique(rules)), "sites of a rule look alike"
    places, nodes = tf.unstack(seen.rewritten.flat_values, axis=1)
    elsewhere = seen.rewritten.with_flat_values(tf.stack([places, nodes[::-1]], axis=1))
    assert np.abs(probabilities(seen._replace(rewritten=elsewhere)) - expected).max() > 1e-4


def test_a_pointer_plays_on_a_graph_never_seen_and_other_heads_do_not(tmp_path: Path) -> None:
    names = "squeezenet1.1-tiny", "nasrnn-tiny"
    here, there = (GraphSubstitutionEnv(name, max_steps=3, strict=True) for name in names)
    assert here.num_places != there.num_places
    for head in HEADS:
        policy = dataclasses.replace(SMALL, head=head)
        source, target = (PpoController.for_real(env, policy=policy, encoder=ENCODER) for env in (here, there))
        source.save(tmp_path / head)
        if head != "pointer":
            with pytest.raises(StoredControllerError, match="trained for another graph"):
                target.load(tmp_path / head)
            continue
        target.load(tmp_path / head)
        assert play_episode(there, target, seed=0).num_steps == 3  # strict: an illegal action raises
