"""What a graph saves by the bits of its state: how well it fits, what sites share, and what it does not read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.worldmodel.toy_world import ToyEnv, uniform_policy
from worldmodel.data.actions import pack
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dynamics import potential
from worldmodel.dynamics.potential import fitted


def saved_by(weights: np.ndarray, buffer: EpisodeBuffer, data: EpisodeData) -> tuple[np.ndarray, np.ndarray]:
    """Returns what all states of some episodes save in percent, by the weights and really, without their means."""
    found, real = [], []
    for row, episode in enumerate(buffer):
        whole = data.trajectory([row])
        found.append(whole.legal[:, 0] @ weights[:, 0] + whole.past[:, 0] @ weights[:, 1])
        real.append(100 * (1 - episode.cost_ms / episode.cost_ms[0]))
    return tuple(each - each.mean() for each in map(np.concatenate, (found, real)))  # type: ignore[return-value]


def test_it_knows_states_that_it_has_not_seen(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    table = split[0].action_table()
    weights, _ = fitted(split[0], table)
    found, real = saved_by(weights, split[1], EpisodeData(split[1], table))
    assert np.square(found - real).mean() < 0.1 * np.square(real).mean()


def test_a_bit_that_was_never_seen_has_the_weight_of_its_rule(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    never_taken = int(table.codes[0])
    others = [episode for episode in episodes if never_taken not in pack(episode.actions)]
    before = EpisodeBuffer(episodes.rule_names, episodes.graphs, others)
    of_actions, of_rules = fitted(before, table)
    whole = [EpisodeData(before, table).trajectory([row]).past[:, 0] for row in range(len(before))]
    never = ~np.concatenate(whole).any(axis=0)
    never[-1] = False
    assert never.any()
    np.testing.assert_allclose(of_actions[never, 1], of_rules[table.rules[never], 1], atol=1e-5)
    assert np.abs(of_rules).max() > 0.1


def test_noop_and_everywhere_actions_have_no_weight() -> None:
    buffer = collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), 20, seed=1)
    table = buffer.action_table()
    assert not fitted(buffer, table)[0][-1].any()


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
    assert len(potential._states(episodes, table, np.arange(table.num_actions))[0]) <= 50
