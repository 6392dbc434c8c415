"""What a graph saves by the bits of its state: how well it fits, what sites share, and what it does not read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.worldmodel.toy_world import ToyEnv, uniform_policy
from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dynamics import potential
from worldmodel.dynamics.potential import Potential, RulePotential, fitted


def saved_by(found_in: Potential, buffer: EpisodeBuffer, data: EpisodeData) -> tuple[np.ndarray, np.ndarray]:
    """Returns what all states of some episodes save in percent, by a potential and really, without their means."""
    found, real = [], []
    for row, episode in enumerate(buffer):
        whole = data.trajectory([row])
        bits = np.concatenate([whole.legal[:, 0], whole.past[:, 0]], axis=1)
        one, two = found_in.pairs.T
        found.append(bits @ found_in.bits.T.ravel() + (bits[:, one] & bits[:, two]) @ found_in.weights)
        real.append(100 * (1 - episode.cost_ms / episode.cost_ms[0]))
    return tuple(each - each.mean() for each in map(np.concatenate, (found, real)))  # type: ignore[return-value]


def test_it_knows_states_that_it_has_not_seen(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    table = split[0].action_table()
    found_in, _ = fitted(split[0], table, of_log_cost=True)
    assert len(found_in.weights)
    found, real = saved_by(found_in, split[1], EpisodeData(split[1], table))
    assert np.square(found - real).mean() < 0.1 * np.square(real).mean()


def test_of_other_rewards_it_knows_their_sums(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    """Rewards of twice what a step saves make a potential of twice as much."""
    differences = [100 * -np.diff(each.cost_ms) / each.cost_ms[0] for each in split[0]]
    doubled = [replace(each, rewards=2 * paid) for each, paid in zip(split[0], differences, strict=True)]
    before = EpisodeBuffer(split[0].rule_names, split[0].graphs, doubled)
    found_in, _ = fitted(before, (table := before.action_table()), of_log_cost=False)
    found, real = saved_by(found_in, split[1], EpisodeData(split[1], table))
    assert np.square(found - 2 * real).mean() < 0.1 * np.square(2 * real).mean()


def test_a_bit_that_was_never_seen_has_the_weight_of_its_rule(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    never_taken = int(table.codes[0])
    others = [episode for episode in episodes if never_taken not in pack(episode.actions)]
    before = EpisodeBuffer(episodes.rule_names, episodes.graphs, others)
    of_actions, of_rules = fitted(before, table, of_log_cost=True)
    whole = [EpisodeData(before, table).trajectory([row]).past[:, 0] for row in range(len(before))]
    never = ~np.concatenate(whole).any(axis=0)
    never[-1] = False
    assert never.any()
    np.testing.assert_allclose(of_actions.bits[never, 1], of_rules.bits[table.rules[never], 1], atol=1e-5)
    assert np.abs(of_rules.bits).max() > 0.1


def test_noop_and_everywhere_actions_have_no_weight() -> None:
    buffer = collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), 20, seed=1)
    table = buffer.action_table()
    assert not fitted(buffer, table, of_log_cost=True)[0].bits[-1].any()


def test_a_product_explains_what_two_bits_only_do_together() -> None:
    """Each of two bits costs nothing alone, and both together save 5 %: no sum over bits can say that."""
    rng = np.random.default_rng(0)
    table = ActionTable(pack(np.array([[0, 3], [1, 4], [2, 9]])), 3)
    bits = (rng.random((200, 6)) < 0.5).astype(np.float32)
    left = 5.0 * bits[:, 0] * bits[:, 4]
    for weights in (2.5 * bits[:, 0], 2.5 * bits[:, 4]):
        left = left - weights
    products = potential._products(bits, left - left.mean(), table, np.arange(3))
    assert products[0].tolist() == [0, 0, 1, 1, 1], "legal(0) and past(1), one site further"
    (pair,) = potential._sites(products[0], table)
    assert pair.tolist() == [0, 4 + 1]


def test_products_are_found_again_on_another_graph() -> None:
    rule = RulePotential(
        bits=np.zeros((3, 2), np.float32),
        products=np.array([[0, 0, 1, 1, 2]], np.int32),
        weights=np.array([4.0], np.float32),
    )
    table = ActionTable(pack(np.array([[0, 1], [0, 5], [0, 6], [1, 3], [1, 8]])), 2)
    on_it = rule.on(table, share=0.5)
    assert on_it.pairs.tolist() == [[0, 6 + 3], [2, 6 + 4]] and on_it.weights.tolist() == [2.0, 2.0]
    assert not on_it.bits.any()


def test_the_mean_of_graphs_counts_those_that_have_a_rule() -> None:
    bits = [np.array(each, np.float32) for each in ([[1, 0], [0, 0]], [[3, 0], [0, 4]])]
    products = [np.array(each, np.int32) for each in ([[0, 0, 0, 0, 1]], [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]])]
    weights = [np.array(each, np.float32) for each in ([1.0], [3.0, 5.0])]
    mean = RulePotential.mean([RulePotential(*each) for each in zip(bits, products, weights, strict=True)])
    assert mean.bits.tolist() == [[2, 0], [0, 4]] and mean.weights.tolist() == [2.0, 5.0]
    assert mean.products.tolist() == [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_few_states_and_few_bits_are_solved_alike(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=shape), rng.normal(size=shape[0])
    weights = potential._ridge(features, targets)
    centred = features - features.mean(axis=0)
    slope = centred.T @ (centred @ weights - targets + targets.mean()) + potential.PENALTY * weights
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)


def test_of_many_states_it_takes_some(episodes: EpisodeBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(potential, "MOST_STATES", 50)
    table = episodes.action_table()
    assert len(potential._states(episodes, table, np.arange(table.num_actions), of_log_cost=True)[0]) <= 50
